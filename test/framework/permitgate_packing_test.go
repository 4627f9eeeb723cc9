package framework

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// zonesOf counts bound pods by zone, with which the names of their nodes begin.
func (c *cluster) zonesOf(names ...string) map[string]int {
	c.t.Helper()
	zones := map[string]int{}
	for _, name := range names {
		zones[c.nodeOf(name)[:1]]++
	}
	return zones
}

// packed annotates a PodGroup.
func (c *cluster) packed(name string, minMember int32, annotation string) {
	c.groups.edit(name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = minMember
		group.Annotations = map[string]string{annotation: v1.LabelTopologyZone}
	})
}

// guard returns a pod that keeps members out of a domain.
func guard(node, key string) *st.PodWrapper {
	return member("", "guard-"+node, 0).Node(node).
		PodAntiAffinity(key, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, st.PodAntiAffinityWithRequiredReq)
}

// packing is where the members of a packed gang g go.
type packing struct {
	annotation string
	size       int32
	prepare    func(c *cluster, pod func(name string) *st.PodWrapper)
	want       map[string]int // empty when its members may be anywhere
	says       *refusals      // nil unless it waits
}

// refusals are what is said of a gang of each API that waits.
type refusals struct{ crd, native string }

// packings are those beside two nodes of 4 CPUs in zone a, and two of 2 in zone b.
var packings = map[string]packing{
	"the tightest": {podgroup.RequiredTopologyAnnotation, 4, nil, map[string]int{"b": 4}, nil},
	"the largest":  {podgroup.RequiredTopologyAnnotation, 8, nil, map[string]int{"a": 8}, nil},
	"beside what is there": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster, _ func(string) *st.PodWrapper) {
		c.bind("b-0", member("", "other"))
	}, map[string]int{"a": 4}, nil},
	"with a member that is bound": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster, pod func(string) *st.PodWrapper) {
		c.bind("a-0", pod("g-9"))
	}, map[string]int{"a": 4}, nil},
	"with a quorum that is bound": {podgroup.RequiredTopologyAnnotation, 1, func(c *cluster, pod func(string) *st.PodWrapper) {
		c.bind("a-0", pod("g-9"))
	}, map[string]int{"a": 1}, nil},
	"the filters refuse the tightest": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster, _ func(string) *st.PodWrapper) {
		c.create(guard("b-0", v1.LabelTopologyZone))
	}, map[string]int{"a": 4}, nil},
	"the filters refuse the tightest, and the next is free": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster, _ func(string) *st.PodWrapper) {
		c.create(guard("b-0", v1.LabelTopologyZone))
		c.addZonalNode("c-0", "c", 4)
		c.bind("c-0", member("", "low", 4).Priority(-1))
	}, map[string]int{"a": 4}, nil},
	"none is large enough": {
		podgroup.RequiredTopologyAnnotation, 9, nil, nil, &refusals{
			"needs 9 in one topology.kubernetes.io/zone, at most 8 fit in topology.kubernetes.io/zone a",
			"for 9 members at once in one topology.kubernetes.io/zone",
		},
	},
	"none is large enough, and one preferred": {podgroup.PreferredTopologyAnnotation, 9, nil, map[string]int{}, nil},
	"preferred": {podgroup.PreferredTopologyAnnotation, 4, nil, map[string]int{"b": 4}, nil},
	"preferred, and the filters refuse it": {podgroup.PreferredTopologyAnnotation, 8, func(c *cluster, _ func(string) *st.PodWrapper) {
		c.create(guard("a-0", v1.LabelHostname))
	}, map[string]int{"a": 4, "b": 4}, nil},
}

func newPackingCluster(t *testing.T) *cluster {
	t.Helper()
	c := newGangCluster(t)
	for i := range 2 {
		c.addZonalNode(fmt.Sprintf("a-%d", i), "a", 4)
		c.addZonalNode(fmt.Sprintf("b-%d", i), "b", 2)
	}
	return c
}

// run creates the members of the gang, which has its group already, and sees where they go.
func (p *packing) run(t *testing.T, c *cluster, args string, pod func(name string) *st.PodWrapper, requireSaid func()) {
	t.Helper()
	if p.prepare != nil {
		p.prepare(c, pod)
	}
	c.start(withArgs(args))
	names := c.createAlike("g", int(p.size), pod, []change{train})
	if p.says != nil {
		requireSaid()
		c.requireUnbound(names...)
		return
	}
	c.requireBound(names...)
	if len(p.want) > 0 {
		require.Equal(t, p.want, c.zonesOf(names...))
	}
	c.quiet()
	if c.exists("low") {
		require.NotEmpty(t, c.bound("low"), "no pod is preempted while another domain has room")
	}
	require.Zero(t, c.recorder.count("PodGroup g GangPreempts", ""))
}

// TestPacking: all members in one zone, the tightest that holds the gang; the next one where the filters refuse it;
// none where none holds it, unless that is only preferred.
func TestPacking(t *testing.T) {
	inBubbles(t, packings, func(t *testing.T, tt packing) {
		c := newPackingCluster(t)
		c.packed("g", tt.size, tt.annotation)
		tt.run(t, c, slowBackoff, func(name string) *st.PodWrapper { return member("g", name) }, func() {
			c.requireEvent("PodGroup g GangRolledBack", tt.says.crd)
		})
	})
}

// TestPackedGangPreemptsInItsDomainOnly: no pod is evicted elsewhere when the filters refuse the domain of a member
// that is bound.
func TestPackedGangPreemptsInItsDomainOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		for i := range 3 {
			c.addZonalNode(fmt.Sprintf("a-%d", i), "a", 1)
			c.addZonalNode(fmt.Sprintf("b-%d", i), "b", 1)
		}
		c.packed("g", 3, podgroup.RequiredTopologyAnnotation)
		c.bind("a-0", train(member("g", "g-0")))
		for _, i := range []string{"1", "2"} {
			c.bind("a-"+i, guard("a-"+i, v1.LabelHostname))
			c.bind("b-"+i, member("", "low-"+i).Priority(-1))
		}
		c.start(withArgs(preempting))
		c.create(train(member("g", "g-1")), train(member("g", "g-2")))
		c.requireEvent("PodGroup g GangRolledBack", "")
		c.requireUnbound("g-1", "g-2")
		c.requireLeft([]string{"low-1", "low-2"}, nil)
	})
}

// TestPackedGangMovesOn: a gang of which no member is left may go to another domain, also if it never needs a round;
// one that is there keeps its domain, which is another when the PodGroup names another label.
func TestPackedGangMovesOn(t *testing.T) {
	type test struct {
		change func(c *cluster)
		bound  bool
	}
	inBubbles(t, map[string]test{
		"no member is left": {func(c *cluster) { c.delete("g-0") }, true},
		"a member is left":  {func(*cluster) {}, false},
		"another label": {func(c *cluster) {
			c.groups.annotate("g", map[string]string{podgroup.RequiredTopologyAnnotation: "pool"})
		}, true},
	}, func(t *testing.T, tt test) {
		c := newGangCluster(t)
		for _, zone := range []string{"a", "b"} {
			n := newNode(zone+"-0", zone, "2")
			n.Labels["pool"] = "one"
			c.add(n)
		}
		c.packed("g", 1, podgroup.RequiredTopologyAnnotation)
		c.start(withArgs(slowBackoff))
		c.create(member("g", "g-0"))
		c.requireBound("g-0")
		node := c.nodeOf("g-0")
		tt.change(c)
		c.bind(node, member("", "filler", 2))
		c.quiet()
		c.create(member("g", "g-1"))
		if tt.bound {
			c.requireBound("g-1")
		} else {
			c.requireUnbound("g-1")
		}
	})
}

// requireConditions waits until the conditions of pods contain words.
func (c *cluster) requireConditions(words string, names ...string) {
	c.t.Helper()
	c.soon(func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(c.condition(name), words) })
	})
}

// TestConditionsOfMembersFollowTheReason for which their gang waits.
func TestConditionsOfMembersFollowTheReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "1s"}`, 3)
		names := c.createGang("g", 4)
		c.requireConditions("short of cpu", names...)
		c.editNode("node-0", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}} })
		c.requireConditions("tainted", names...)
	})
}

// TestMissingMembersGetTheCondition by which autoscalers size a cluster: all of them, once for each reason.
func TestMissingMembersGetTheCondition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members = 8
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "1s"}`, 3)
		names := c.createGang("g", members)
		c.requireConditions("the cluster has no room", names...)
		// kube-scheduler itself writes the one that was in a cycle, in its own time.
		c.soon(func() bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(c.condition(name), "0/1 nodes are available") })
		})
		c.quiet()
		for _, name := range names {
			pod := c.getPod(name)
			for _, condition := range pod.Status.Conditions {
				require.Equal(t, v1.ConditionFalse, condition.Status)
				require.Equal(t, v1.PodReasonUnschedulable, condition.Reason)
				require.Contains(t, condition.Message, "the cluster has no room for 8 members at once: short of cpu")
			}
		}
		patches := c.server.Patches.Load()
		const backoffs = 5
		for range backoffs {
			c.pass(1100 * time.Millisecond)
			c.quiet()
		}
		// kube-scheduler may repeat one of its own, while its informer does not show the first.
		require.Less(t, c.server.Patches.Load()-patches, int64(backoffs), "the same reason is not written again")
		c.addNode("new", members)
		c.requireBound(names...)
	})
}

// TestPackedGangPausesBetweenDomains: all domains are refused by the filters only, pods come and go, and cycles of
// members take a second. They take a tenth of the time, also when each domain has been tried.
func TestPackedGangPausesBetweenDomains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		zones := []string{"a", "b", "c", "d", "e", "f"}
		for _, zone := range zones {
			c.addZonalNode(zone+"-0", zone, 1)
			c.addZonalNode(zone+"-1", zone, 1)
		}
		c.start(withArgs(`{"gangPreemption": false, "bindRehearsal": "Never"}`))
		for _, zone := range zones {
			c.bind(zone+"-0", guard(zone+"-0", v1.LabelTopologyZone))
		}
		c.quiet()
		var cycles atomic.Int64
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(pod string) *fwk.Status {
				if strings.HasPrefix(pod, "g-") {
					time.Sleep(time.Second)
					cycles.Add(1)
				}
				return nil
			}
		})
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.createMembers("g", 2, train)
		const seconds = 600
		for i := range seconds {
			other := fmt.Sprintf("other-%d", i)
			c.bind("a-0", member("", other, 0))
			c.pass(time.Second)
			c.delete(other)
		}
		require.Greater(t, cycles.Load(), int64(2*len(zones)), "all domains have had their turn, and again")
		require.LessOrEqual(t, cycles.Load(), int64(seconds/10+2*len(zones)))
		require.Positive(t, c.recorder.count("PodGroup g GangRolledBack", "none of the 6 domains"))
		require.Empty(t, c.boundAmong("g-0", "g-1"))
	})
}

// TestPackedGangComesToRest: all domains are refused by the filters only. While nothing changes, the gang has as few
// cycles as with one domain, and what changes then, or while it is tried, is not left out.
func TestPackedGangComesToRest(t *testing.T) {
	const quietFor, shortest, longest = 600, 5, 10 // seconds, those of a backoff at last
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		zones := []string{"a", "b", "c", "d", "e", "f"}
		for _, zone := range zones {
			c.addZonalNode(zone+"-0", zone, 1)
			c.addZonalNode(zone+"-1", zone, 1)
		}
		c.start(withArgs(`{"gangPreemption": false, "bindRehearsal": "Never", "initialBackoff": "10s", "maxBackoff": "10s"}`))
		for _, zone := range zones {
			c.bind(zone+"-0", guard(zone+"-0", v1.LabelTopologyZone))
		}
		c.quiet()
		var cycles atomic.Int64
		leaves := atomic.Bool{} // the guard of the first domain, when the next has been tried
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(pod string) *fwk.Status {
				if strings.HasPrefix(pod, "g-") {
					time.Sleep(20 * time.Millisecond)
					if cycles.Add(1); leaves.Load() && cycles.Load() == 5 {
						c.delete("guard-a-0")
					}
				}
				return nil
			}
		})
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.createMembers("g", 2, train)
		c.pass(quietFor * time.Second)
		require.Greater(t, cycles.Load(), int64(2*2*len(zones)), "all domains have had their turn, and again")
		require.LessOrEqual(t, cycles.Load(), int64(3*quietFor/shortest))

		leaves.Store(true)
		cycles.Store(0)
		c.bind("f-1", member("", "other", 0))
		c.delete("other")
		c.pass(3 * time.Second)
		require.GreaterOrEqual(t, cycles.Load(), int64(2*len(zones)), "all domains are tried at once when room has become free")
		require.Empty(t, c.boundAmong("g-0", "g-1"), "the first domain is, when it is free only after it was tried")
		c.pass(longest * time.Second)
		require.Equal(t, map[string]int{"a": 2}, c.zonesOf("g-0", "g-1"))
	})
}
