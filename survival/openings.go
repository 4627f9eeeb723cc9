package survival

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/sim"
)

// site is a node and what is on it.
type site struct {
	node        *v1.Node
	zone        string
	allocatable ledger.Resources // without what other reservations hold
	requested   ledger.Resources
	otherPods   ledger.Resources // what pods ask for that are not protected and do not belong to the node
}

// opening says which room of a node displaced pods may use.
type opening int

const (
	openHeld  opening = iota // what is held for them
	openShare                // as much on some nodes as gives each zone its share
	openTopUp                // as much on some nodes as makes what is left of the held room large enough
	openFree                 // all that is free
	openAll                  // also that of other pods, as if these had gone
	openings
)

// openingSteps returns what is open in a replay, one after the other. While free room is being opened, no policy takes
// a zone for full. Then the free room is closed and the steps start again with that allowed, for pods whose policy must
// first call a zone full.
func (p *planner) openingSteps() []opening {
	out := []opening{openHeld, openShare, openTopUp, openFree}
	if len(p.policies) > 0 {
		out = append(out, out...)
	}
	return append(out, openAll)
}

// placement is where a displaced pod goes.
type placement struct {
	pod     *v1.Pod // the one that was lost
	node    string  // empty if it waits
	foundAt opening // the first one with which it found a node
}

// replayLoss replays a loss. First only what is held is open to the displaced pods, then to those that still wait one
// opening after the other. It returns where the pods go, those that found room first coming first.
func (p *planner) replayLoss(ctx context.Context, l *loss, order int, seed int64, held amounts) ([]placement, error) {
	objects := make([]client.Object, 0, len(p.objects)+len(p.pods)+len(p.sites))
	objects = append(objects, p.objects...)
	for _, policy := range p.policies {
		objects = append(objects, neverFull(policy))
	}
	otherPods, free := map[*site]*v1.Pod{}, amounts{}
	for _, s := range p.nodes {
		node, filler, room := s.openRoom(openHeld, held[s.node.Name], 1)
		objects, otherPods[s], free[s.node.Name] = append(objects, node, filler), filler, room
	}
	if r := p.holdOpen(free, 1); r != nil {
		objects = append(objects, r)
	}
	for _, pod := range p.pods {
		if s := p.sites[pod.Spec.NodeName]; s == nil || !l.includes(s.node) || p.protects(pod) {
			objects = append(objects, pod)
		}
	}
	options := p.options.Sim
	options.Seed, options.Rank, options.Bare = options.Seed+seed, rankOf(order, p.late, p.protects), true
	s, err := sim.New(ctx, objects, options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	loss := s.Lose(l.includes)
	displaced := map[types.UID]bool{}
	for _, pod := range loss.Displaced {
		displaced[pod.UID] = true
	}
	var out []placement
	base := held // what is held, and what the pods use that have found room
	for n, step := range p.openingSteps() {
		if len(displaced) == 0 {
			break
		}
		closing := n > 0 && step == openHeld
		if closing {
			base = held.raisedBy(out)
			for _, policy := range p.policies {
				allowed := *policy
				allowed.Generation++
				if err := s.Put(&allowed); err != nil {
					return nil, err
				}
			}
		}
		var opened map[*site]ledger.Resources
		switch step {
		case openShare:
			opened = p.shareOpenings(base)
		case openTopUp:
			opened = p.topUpOpenings(l, base, out, stillDisplaced(loss.Displaced, displaced))
		default:
		}
		serial := int64(n) + 2
		for _, node := range sim.List[*v1.Node](s) {
			at := p.sites[node.Name]
			more, changes := opened[at]
			if !changes && !closing && step < openFree {
				continue
			}
			more = more.Clone()
			has := base[node.Name]
			more.Add(&has, 1)
			node, filler, room := at.openRoom(step, more, serial)
			s.Remove(otherPods[at])
			if err := errors.Join(s.Put(node), s.Add(filler)); err != nil {
				return nil, err
			}
			otherPods[at], free[at.node.Name] = filler, room
		}
		if r := p.holdOpen(free, serial); r != nil && n > 0 { // the first one is there
			if err := s.Put(r); err != nil {
				return nil, err
			}
		}
		if err := s.Run(ctx); err != nil {
			return nil, err
		}
		replaced := s.Replaced()
		for _, pod := range sim.List[*v1.Pod](s) {
			if lost := replaced[pod.UID]; lost != nil && displaced[lost.UID] && pod.Spec.NodeName != "" {
				delete(displaced, lost.UID)
				out = append(out, placement{lost, pod.Spec.NodeName, step})
			}
		}
	}
	for _, pod := range stillDisplaced(loss.Displaced, displaced) {
		out = append(out, placement{pod: pod, foundAt: openings})
	}
	return out, nil
}

// neverFull is a policy that waits for room where it wants its pods, for longer than a replay takes. What is held has
// to serve it soon, and not only when it takes a zone for full.
func neverFull(policy *v1alpha1.ZoneSpreadPolicy) *v1alpha1.ZoneSpreadPolicy {
	out := *policy
	out.Spec.UnavailableZones.FullAfter = &metav1.Duration{Duration: 2 * sim.LongestGrace}
	return &out
}

// freeRoom is what is free on the node.
func (s *site) freeRoom() ledger.Resources { return s.allocatable.Minus(&s.requested) }

// holdOpen reserves what is open for the protected pods: ReserveCache then prefers among it what it will prefer among
// what is held.
func (p *planner) holdOpen(open amounts, generation int64) *v1alpha1.ZoneReservation {
	r := newReservation(p.asked, open, p.own)
	if r != nil {
		r.UID, r.Generation = "zonewise-survival", generation
	}
	return r
}

// openRoom returns the node, a filler on it that leaves no other free room than what is open, and this: a given amount,
// until all free room is. The scheduler then sees the node as it will be when others have taken all that they may have.
func (s *site) openRoom(step opening, held ledger.Resources, serial int64) (*v1.Node, *v1.Pod, ledger.Resources) {
	node := *s.node
	node.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	all := ledger.ResourcesOf(node.Status.Allocatable)
	open := s.freeRoom()
	if step < openFree {
		open.SetMin(&held)
	}
	open = open.Positive()
	rest := all.Minus(&s.requested)
	rest.Add(&open, -1)
	if step == openAll {
		all.Add(&s.otherPods, 1)
		open.Add(&s.otherPods, 1)
		for name := range s.otherPods.Named() {
			if _, has := node.Status.Allocatable[name]; has {
				node.Status.Allocatable[name] = *amount.Quantity(name, all.Amount(name))
			}
		}
	} else {
		// The filler is one pod, whatever it leaves.
		node.Status.Allocatable[v1.ResourcePods] = *amount.Quantity(
			v1.ResourcePods, min(all.Pods, s.requested.Pods+open.Pods)+1,
		)
	}
	rest.Pods = 0
	rest = rest.Positive()
	return &node, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "zonewise-survival", Name: s.node.Name,
			UID: types.UID(fmt.Sprintf("zonewise-survival-%s-%d", s.node.Name, serial)),
		},
		Spec: v1.PodSpec{
			NodeName: s.node.Name, Priority: ptr.To[int32](math.MaxInt32),
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: rest.List()}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}, open
}

// shareOpenings chooses the nodes that give each zone its share: those on which something is held already, then those
// with the most room. On few nodes fewer pieces are left that are too small.
func (p *planner) shareOpenings(held amounts) map[*site]ledger.Resources {
	rest, more := map[string]ledger.Resources{}, map[*site]ledger.Resources{}
	for zone, share := range p.shares {
		rest[zone] = share.Clone()
	}
	var nodes []*site
	for _, s := range p.nodes {
		has := held[s.node.Name]
		if left, ok := rest[s.zone]; ok {
			left.Add(&has, -1)
			rest[s.zone] = left
		}
		if !usable(s.node) {
			continue
		}
		room := s.freeRoom()
		room.Add(&has, -1)
		more[s] = room.Positive()
		nodes = append(nodes, s)
	}
	slices.SortStableFunc(nodes, func(a, b *site) int {
		x, y := held[a.node.Name], held[b.node.Name]
		return cmp.Or(cmp.Compare(p.sizeOf(y), p.sizeOf(x)), cmp.Compare(p.sizeOf(more[b]), p.sizeOf(more[a])))
	})
	out := map[*site]ledger.Resources{}
	for _, s := range nodes {
		if left, ok := rest[s.zone]; ok && (left.MilliCPU > 0 || left.Memory > 0) {
			room := more[s]
			part := room.Clone()
			part.SetMin(&left)
			part = part.Positive()
			part.Pods = room.Pods
			left.Add(&part, -1)
			rest[s.zone], out[s] = left, part
		}
	}
	return out
}

// topUpOpenings chooses a node for each pod that waits, the largest first: the one on which the least more has to be
// held for it, beside what the pods have left that have found room.
func (p *planner) topUpOpenings(
	lost *loss, held amounts, placed []placement, pods []*v1.Pod,
) map[*site]ledger.Resources {
	left := amounts{}
	for name, room := range held {
		left[name] = room.Clone()
	}
	for _, found := range placed {
		request := footprintOf(found.pod)
		left.add(found.node, &request, -1)
	}
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return slices.Compare(smallFirst(b), smallFirst(a)) })
	out := map[*site]ledger.Resources{}
	for _, pod := range pods {
		request := footprintOf(pod)
		var best *site
		var least ledger.Resources
		for _, s := range p.nodes {
			if _, chosen := out[s]; chosen || lost.includes(s.node) || !usable(s.node) {
				continue
			}
			has, rest := held[s.node.Name], left[s.node.Name]
			rest = rest.Positive()
			more, room := request.Minus(&rest), s.freeRoom()
			room.Add(&has, -1)
			more = more.Positive()
			if more.Exceeds(&room) == "" && (best == nil || p.sizeOf(more) < p.sizeOf(least)) {
				best, least = s, more
			}
		}
		if best != nil {
			out[best] = least
		}
	}
	return out
}

// stillDisplaced returns the pods that are still displaced.
func stillDisplaced(pods []*v1.Pod, displaced map[types.UID]bool) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !displaced[pod.UID] })
}
