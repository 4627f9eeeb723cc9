package chaos

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
)

// halfNode is what pods of the scenarios ask for: two of them fill a node.
const halfNode = nodeMilliCPU / 2

// scenario is a short story with several writes of the scheduler. In each, more is asked for than there is room for at the wrong moment.
type scenario struct {
	name      string
	resources []string // whose views matter
	nodes     func() []*v1.Node
	demand    func() *demand
	// ready and done say what is missing before the step, and after it; "" is nothing.
	ready, done func(*play, *history.Index, int64) string
	// blind are the resources without which a new leader cannot know what would break the story: what the one before it has bound.
	blind []string
	// step is what happens, from the moment on from which writes are counted.
	step func(context.Context, *play) error
}

var scenarios = []*scenario{
	releaseOfGang("release of a gang", false),
	releaseOfGang("release of a native gang", true),
	preemptionByGang("preemption by a gang", false),
	preemptionByGang("preemption by a native gang", true),
	{
		// The node of a reservation's slot is lost and registered again, and more fillers wait than fit beside the slot.
		name: "move of a reservation", resources: []string{"pods", "nodes", "zonereservations"}, blind: []string{"pods"},
		nodes: func() []*v1.Node { return []*v1.Node{newNode("a", 1), newNode("a", 2), newNode("b", 1)} },
		demand: func() *demand {
			r := newReservation("slot", "owner", "4", v1alpha1.ModeGuarantee, 1)
			r.Spec.Zones = r.Spec.Zones[:1]
			d := emptyDemand()
			d.services, d.reservations = []*service{{name: "low", milliCPU: halfNode, replicas: 7, class: fillerClass}}, []*v1alpha1.ZoneReservation{r}
			return d
		},
		ready: slotAnd("low", 5),
		step: func(ctx context.Context, p *play) error {
			x, revision, err := p.now(ctx)
			if err != nil {
				return err
			}
			node := slotNode(x, revision)
			lost := newNode(node[:1], int(node[1]-'0'))
			if err := p.cluster.client.Delete(ctx, lost.DeepCopy()); err != nil {
				return err
			}
			if err := p.until(ctx, func(_ *play, x *history.Index, revision int64) string {
				if at := slotNode(x, revision); at == node {
					return "the slot is still on node " + node
				}
				return ""
			}); err != nil {
				return err
			}
			return p.cluster.client.Create(ctx, lost)
		},
		done: slotAnd("low", 5),
	},
	{
		// A zone is lost, its pods go to the others when it counts as closed, and it comes back.
		name: "fail-over of a policy", resources: []string{"pods", "nodes", "zonespreadpolicies"},
		nodes: func() []*v1.Node { return []*v1.Node{newNode("a", 1), newNode("b", 1), newNode("c", 1)} },
		demand: func() *demand {
			policy := newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
				s.MaxPerZone = ptr.To(intstr.FromInt32(4))
				for _, z := range zones {
					s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: z})
				}
				s.UnavailableZones.DownAfter = &metav1.Duration{Duration: time.Second}
			})
			d := emptyDemand()
			d.services, d.policies = []*service{{name: "web", milliCPU: 500, replicas: 6}}, []*v1alpha1.ZoneSpreadPolicy{policy}
			return d
		},
		ready: allBound("web", 6),
		step: func(ctx context.Context, p *play) error {
			lost := newNode("a", 1)
			if err := p.cluster.client.Delete(ctx, lost.DeepCopy()); err != nil {
				return err
			}
			if err := p.until(ctx, func(p *play, x *history.Index, revision int64) string {
				if n := onNode(x, revision, "web", "a1"); n > 0 {
					return fmt.Sprintf("%d pods are still on node a1", n)
				}
				return allBound("web", 6)(p, x, revision)
			}); err != nil {
				return err
			}
			if err := p.cluster.client.Create(ctx, lost); err != nil {
				return err
			}
			p.controllers.change(func(d *demand) { d.services[0].replicas = 9 })
			return nil
		},
		done: func(p *play, x *history.Index, revision int64) string {
			if missing := allBound("web", 9)(p, x, revision); missing != "" {
				return missing
			}
			if onNode(x, revision, "web", "a1") == 0 {
				return "no pod is in zone a, which is back"
			}
			return ""
		},
	},
}

// releaseOfGang: two gangs that do not fit beside each other. One is released, and when it is gone, the other one.
func releaseOfGang(name string, native bool) *scenario {
	return &scenario{
		name: name, resources: []string{"pods", "podgroups"},
		nodes:  func() []*v1.Node { return []*v1.Node{newNode("a", 1), newNode("b", 1), newNode("c", 1)} },
		demand: emptyDemand,
		ready:  nothingMissing,
		step: func(ctx context.Context, p *play) error {
			p.controllers.change(func(d *demand) {
				d.gangs = append(d.gangs, newGang("gang-1", 4, "", native), newGang("gang-2", 4, "", native))
			})
			first := ""
			if err := p.until(ctx, func(_ *play, x *history.Index, revision int64) string {
				one, two := boundOf(x, revision, "gang-1"), boundOf(x, revision, "gang-2")
				if first = "gang-1"; two > one {
					first = "gang-2"
				}
				if max(one, two) < 4 {
					return fmt.Sprintf("%d and %d of 4 members are bound", one, two)
				}
				return ""
			}); err != nil {
				return err
			}
			p.controllers.change(func(d *demand) {
				for i, g := range d.gangs {
					if g.name == first {
						d.gangs = append(d.gangs[:i:i], d.gangs[i+1:]...)
						return
					}
				}
			})
			return nil
		},
		done: func(_ *play, x *history.Index, revision int64) string {
			if n := boundOf(x, revision, "gang-1") + boundOf(x, revision, "gang-2"); n != 4 {
				return fmt.Sprintf("%d of 4 members are bound", n)
			}
			return ""
		},
	}
}

// preemptionByGang: fillers are everywhere, and an urgent gang comes.
func preemptionByGang(name string, native bool) *scenario {
	return &scenario{
		name: name, resources: []string{"pods", "podgroups"},
		nodes: func() []*v1.Node { return []*v1.Node{newNode("a", 1), newNode("b", 1), newNode("c", 1)} },
		demand: func() *demand {
			d := emptyDemand()
			d.services = []*service{{name: "low", milliCPU: halfNode, replicas: 6, class: fillerClass}}
			return d
		},
		ready: allBound("low", 6),
		step: func(_ context.Context, p *play) error {
			p.controllers.change(func(d *demand) { d.gangs = append(d.gangs, newGang("urgent", 3, urgentClass, native)) })
			return nil
		},
		done: func(p *play, x *history.Index, revision int64) string {
			if missing := allBound("urgent", 3)(p, x, revision); missing != "" {
				return missing
			}
			return allBound("low", 3)(p, x, revision)
		},
	}
}

func nothingMissing(*play, *history.Index, int64) string { return "" }

func newGang(name string, size int, class string, native bool) *gang {
	return &gang{service: service{name: name, gang: name, native: native && hasNativeGangs, milliCPU: halfNode, replicas: size, class: class}, size: size, minMember: size}
}

// boundOf is how many pods of an app are bound.
func boundOf(x *history.Index, revision int64, app string) (n int) {
	for _, l := range x.Lives {
		if l.Pod.Labels[appLabel] == app && l.BoundAt(revision) {
			n++
		}
	}
	return n
}

// onNode is how many of them are on a node.
func onNode(x *history.Index, revision int64, app, node string) (n int) {
	for _, l := range x.OnNode[node] {
		if l.Pod.Labels[appLabel] == app && l.BoundAt(revision) {
			n++
		}
	}
	return n
}

// allBound wants so many pods of an app bound.
func allBound(app string, want int) func(*play, *history.Index, int64) string {
	return func(_ *play, x *history.Index, revision int64) string {
		if n := boundOf(x, revision, app); n != want {
			return fmt.Sprintf("%d pods of %s are bound, not %d", n, app, want)
		}
		return ""
	}
}

// slotNode is the node of the reservation's slot, by its status.
func slotNode(x *history.Index, revision int64) string {
	r, _ := history.At(x.Reservations["slot"], revision)
	if r.Object == nil {
		return ""
	}
	for _, zone := range r.Object.Status.Zones {
		for _, node := range zone.Nodes {
			if node.Slots > 0 {
				return node.Name
			}
		}
	}
	return ""
}

// slotAnd wants the slot on a node that has room for it, and so many pods of an app bound beside it.
func slotAnd(app string, want int) func(*play, *history.Index, int64) string {
	return func(p *play, x *history.Index, revision int64) string {
		node := slotNode(x, revision)
		if node == "" {
			return "no node has the slot"
		}
		if n := onNode(x, revision, app, node); n > 1 {
			return fmt.Sprintf("the slot is on node %s beside %d pods", node, n)
		}
		return allBound(app, want)(p, x, revision)
	}
}

// createAll creates objects, in order.
func createAll(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
