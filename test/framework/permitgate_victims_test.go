package framework

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// low returns a pod that any gang may evict.
func low(name string, cpu ...int) *st.PodWrapper { return member("", name, cpu...).Priority(1) }

const port = 8080

// away keeps a pod away from what the gang is labelled with, over hosts.
func away(p *st.PodWrapper) *st.PodWrapper {
	return p.PodAntiAffinity(v1.LabelHostname, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, st.PodAntiAffinityWithRequiredReq)
}

func train(p *st.PodWrapper) *st.PodWrapper { return p.Label("job", "train") }

// four asks for four CPUs.
func four(p *st.PodWrapper) *st.PodWrapper {
	p.Spec.Containers = nil
	return p.Req(map[v1.ResourceName]string{"cpu": "4"})
}

func ported(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) }

// victimsCase is who goes for a gang: left stay, gone do not.
type victimsCase struct {
	cpus       []int                     // of the nodes, if they are in no zone
	bound      func(c *cluster)          // puts pods onto them, or makes zonal ones
	gang       func(c *cluster) []string // two members of a CPU each without
	left, gone []string
}

// urgentGang makes a gang of a high priority.
func urgentGang(size int, changes ...change) func(c *cluster) []string {
	return func(c *cluster) []string { return c.createUrgent(size, changes...) }
}

// zonalNodes makes nodes of one CPU each, whose names begin with the zone's.
func (c *cluster) zonalNodes(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.addZonalNode(name, name[:1], 1)
	}
}

// TestGangPreempts: whichever pods of a lower priority are in the way go, the fewest and lowest, and no others. No
// other plugin is needed for it.
func TestGangPreempts(t *testing.T) {
	inBubbles(t, map[string]victimsCase{
		"the lowest": {
			cpus: []int{2, 2}, left: []string{"low-0", "low-1"}, gone: []string{"lowest-0", "lowest-1"},
			bound: func(c *cluster) {
				c.bind("node-0", low("low-0"), member("", "lowest-0").Priority(-5))
				c.bind("node-1", low("low-1"), member("", "lowest-1").Priority(-5))
			},
		},
		"the fewest": {
			cpus: []int{4, 4}, gang: urgentGang(4), left: []string{"small-0", "small-1", "small-2", "small-3"}, gone: []string{"large"},
			bound: func(c *cluster) {
				c.bind("node-0", low("small-0"), low("small-1"), low("small-2"), low("small-3"))
				c.bind("node-1", low("large", 4))
			},
		},
		"none of the same priority": {
			cpus: []int{2, 2}, gang: urgentGang(3), left: []string{"same"}, gone: []string{"low-0", "low-1"},
			bound: func(c *cluster) {
				c.bind("node-0", member("", "same", 1).Priority(100), low("low-0"))
				c.bind("node-1", low("low-1"))
			},
		},
		"beside what is free": {
			cpus: []int{4, 2}, gang: urgentGang(4), left: []string{"low-1"}, gone: []string{"low-0"},
			bound: func(c *cluster) {
				c.bind("node-0", low("low-0"))
				c.bind("node-1", low("low-1", 2))
			},
		},
		"what violates no budget": {
			cpus: []int{1, 1, 1}, gang: urgentGang(2, train), left: []string{"guarded"}, gone: []string{"free"},
			bound: func(c *cluster) {
				c.budget("guarded", 0)
				c.bind("node-0", low("guarded").Label("app", "guarded"))
				c.bind("node-1", low("free"))
			},
		},
		"what violates no budget that others have used up": {
			cpus: []int{2, 2}, gang: urgentGang(2, ported), left: []string{"a-2", "filler"}, gone: []string{"a-1", "b"},
			bound: func(c *cluster) {
				c.budget("a", 1)
				c.bind("node-0", low("a-1").Label("app", "a"), member("", "filler").Priority(1000))
				c.bind("node-1", low("a-2").Label("app", "a"), member("", "b").Priority(10))
			},
		},
		"a spare member of another gang": {
			cpus: []int{4, 1}, // and as few as one
			bound: func(c *cluster) {
				c.groups.set("other", 3)
				for i := range 4 {
					c.bind("node-0", member("other", fmt.Sprintf("other-%d", i)).Priority(1))
				}
			},
		},
		"a gang as a whole": {
			cpus: []int{2, 2}, gang: urgentGang(4), gone: []string{"other-0", "other-1", "low-0", "low-1"}, bound: gangBesideOthers,
		},
		"rather single pods than a gang": {
			cpus: []int{2, 2}, left: []string{"other-0", "other-1"}, gone: []string{"low-0", "low-1"}, bound: gangBesideOthers,
		},
		"the rest of a quorum as a whole": { // members that have succeeded are of it, and those that are left need each other
			cpus: []int{3}, gone: []string{"g-1", "g-2"},
			bound: func(c *cluster) {
				c.groups.set("g", 3)
				// The fake API server goes on showing finished pods to the scheduler: the one that has succeeded takes
				// nothing.
				for name, cpu := range map[string]int{"g-0": 0, "g-1": 1, "g-2": 1} {
					pod := member("g", name, cpu).Priority(1)
					pod.OwnerReferences = []metav1.OwnerReference{job}
					c.bind("node-0", pod)
				}
				c.setPhase(v1.PodSucceeded, "g-0")
				c.requireStatus("g", v1alpha1.PodGroupScheduling, 0, 1, 0)
			},
		},
		"who closes nodes by host ports": {
			cpus: []int{4, 4}, gang: urgentGang(2, ported), left: []string{"beside-0", "beside-1"}, gone: []string{"blocker-0", "blocker-1"},
			bound: func(c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind("node-"+i, ported(low("blocker-"+i)), low("beside-"+i))
				}
			},
		},
		"who closes nodes by anti-affinity": {
			cpus: []int{4, 4}, gang: urgentGang(4, train), left: []string{"beside-0", "beside-1"}, gone: []string{"blocker-0", "blocker-1"},
			bound: func(c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind("node-"+i, away(low("blocker-"+i)), member("", "beside-"+i, 2).Priority(2))
				}
			},
		},
		"whom its own anti-affinity refuses": {
			cpus: []int{4, 4}, gang: urgentGang(2, func(p *st.PodWrapper) *st.PodWrapper { return away(train(p)) }),
			left: []string{"beside-0", "beside-1"}, gone: []string{"blocker-0", "blocker-1"},
			bound: func(c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind("node-"+i, train(low("blocker-"+i)), low("beside-"+i))
				}
			},
		},
		"who keeps members off other nodes": { // alone: the others that were taken off its node for a look come back
			left: []string{"beside", "guarded"}, gone: []string{"holds-the-port", "noisy"},
			bound: func(c *cluster) {
				c.addZonalNode("large", "a", 16)
				c.addZonalNode("small", "a", 1)
				c.budget("guarded", 0)
				c.bind("large", ported(low("holds-the-port")), low("noisy").Label("app", "noisy"), low("beside"), low("guarded").Label("app", "guarded"))
			},
			gang: func(c *cluster) []string {
				c.groups.set("urgent", 2)
				c.create(
					ported(member("urgent", "urgent-0", 4)).Priority(100),
					member("urgent", "urgent-1").Priority(100).NodeSelector(map[string]string{v1.LabelHostname: "small"}).
						PodAntiAffinity(v1.LabelTopologyZone, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}}, st.PodAntiAffinityWithRequiredReq),
				)
				return []string{"urgent-0", "urgent-1"}
			},
		},
		"no pods of DaemonSets, which would come back": { // what only claims to be one goes
			cpus: []int{2, 2}, gang: urgentGang(3), left: []string{"agent-0"}, gone: []string{"claims", "low-0", "low-1"},
			bound: func(c *cluster) {
				agent := func(name, node, apiVersion string) *st.PodWrapper {
					p := member("", name).Priority(-9).NodeAffinityIn(metav1.ObjectNameField, []string{node}, st.NodeSelectorTypeMatchFields)
					p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: ptr.To(true)}}
					return p
				}
				c.bind("node-0", agent("agent-0", "node-0", "apps/v1"), low("low-0"))
				c.bind("node-1", agent("claims", "node-1", "example.com/v1"), low("low-1"))
			},
		},
		"no static pods": { // the API server would delete the mirror, but the kubelet makes it again
			cpus: []int{2, 2}, left: []string{"static"}, gone: []string{"low"},
			bound: func(c *cluster) {
				c.bind("node-0", member("", "static", 2).Annotation(v1.MirrorPodAnnotationKey, "hash").Priority(0))
				c.bind("node-1", low("low", 2))
			},
		},
		"none whose budget forbids it, for a preferred zone": {
			left: []string{"low-a-0", "low-a-1"}, gone: []string{"low-b-0", "low-c-0"},
			bound: func(c *cluster) {
				c.zonalNodes("a-0", "a-1", "b-0", "c-0")
				c.budget("guarded", 0)
				c.bind("a-0", low("low-a-0").Label("app", "guarded"))
				c.bind("a-1", low("low-a-1").Label("app", "guarded"))
				c.bind("b-0", low("low-b-0"))
				c.bind("c-0", low("low-c-0"))
			},
			gang: func(c *cluster) []string { return c.createPackedUrgent(2, podgroup.PreferredTopologyAnnotation) },
		},
		"of a zone without a budget": {
			left: []string{"low-a-0"},
			bound: func(c *cluster) {
				c.zonalNodes("a-0", "a-1", "b-0", "b-1", "b-2")
				c.budget("guarded", 0)
				c.bind("a-0", low("low-a-0").Label("app", "guarded"))
				for _, node := range []string{"b-0", "b-1", "b-2"} {
					c.bind(node, low("low-"+node))
				}
			},
			gang: func(c *cluster) []string { return c.createPackedUrgent(2, podgroup.RequiredTopologyAnnotation) },
		},
		"of a zone that the filters accept": {
			left: []string{"low-a-0", "low-a-1"},
			bound: func(c *cluster) {
				c.zonalNodes("b-0", "b-1", "b-2")
				c.addZonalNode("a-0", "a", 2)
				c.addZonalNode("a-1", "a", 1)
				c.bind("a-0", low("low-a-0"), guard("a-0", v1.LabelTopologyZone).Priority(1000))
				for _, node := range []string{"a-1", "b-0", "b-1", "b-2"} {
					c.bind(node, low("low-"+node))
				}
			},
			gang: func(c *cluster) []string { return c.createPackedUrgent(2, podgroup.RequiredTopologyAnnotation) },
		},
		"of all zones, for a gang that is spread": { // which is not to be filled one after the other
			bound: func(c *cluster) { c.fillZones(1, 3) }, gang: urgentGang(6, spreadOverZones),
		},
		"of all zones and nodes, for a gang that is spread": {
			bound: func(c *cluster) { c.fillZones(3, 1) }, gang: urgentGang(6, spreadOverZones),
		},
		"of zones that take members of one template each": { // and a member of one comes between two of the other
			bound: func(c *cluster) {
				c.addZonalNode("a", "a", 4)
				c.zonalNodes("b-0", "b-1")
				for i := range 2 {
					c.bind("a", low(fmt.Sprint("low-a-", i), 2))
					c.bind(fmt.Sprint("b-", i), low(fmt.Sprint("low-b-", i)))
				}
			},
			gang: func(c *cluster) []string {
				c.groups.set("urgent", 4)
				names := []string{"large-0", "large-1", "small-0", "small-1"}
				for i, name := range names {
					c.create(spreadOverZones(member("urgent", name, 2-i/2)).Priority(100))
				}
				return names
			},
		},
	}, func(t *testing.T, tt victimsCase) {
		c := startGangCluster(t, preempting, tt.cpus...)
		tt.bound(c)
		c.quiet()
		if tt.gang == nil {
			tt.gang = urgentGang(2)
		}
		c.requireBound(tt.gang(c)...)
		c.requireLeft(tt.left, tt.gone)
	})
}

// gangBesideOthers puts a gang of two onto two nodes, beside two pods.
func gangBesideOthers(c *cluster) {
	c.groups.set("other", 2)
	c.bind("node-0", member("other", "other-0").Priority(1), low("low-0"))
	c.bind("node-1", member("other", "other-1").Priority(1), low("low-1"))
}

// fillZones makes two zones of so many nodes, which are full of pods that may go.
func (c *cluster) fillZones(nodes, pods int) {
	for _, zone := range []string{"a", "b"} {
		for i := range nodes {
			node := fmt.Sprintf("%s-%d", zone, i)
			c.addZonalNode(node, zone, pods)
			for k := range pods {
				c.bind(node, low(fmt.Sprintf("low-%s-%d", node, k)))
			}
		}
	}
}

// spreadOverZones has members of a gang spread over zones by a hard constraint.
func spreadOverZones(p *st.PodWrapper) *st.PodWrapper {
	return train(p).SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, nil, nil, nil, nil)
}

// TestGangPreemptsNone: none goes when the gang would not be whole for it, or must not preempt.
func TestGangPreemptsNone(t *testing.T) {
	type test struct {
		low, high func(p *st.PodWrapper) *st.PodWrapper
		member    func(p *st.PodWrapper) *st.PodWrapper
		opens     bool // for the gang when the high one has gone
	}
	inBubbles(t, map[string]test{
		"room":          {func(p *st.PodWrapper) *st.PodWrapper { return p }, plain, four, true},
		"host ports":    {ported, ported, ported, true},
		"anti-affinity": {away, away, func(p *st.PodWrapper) *st.PodWrapper { return train(ported(p)) }, true},
		"preemptionPolicy Never": {plain, plain, func(p *st.PodWrapper) *st.PodWrapper {
			return four(p).PreemptionPolicy(v1.PreemptNever)
		}, false},
	}, func(t *testing.T, tt test) {
		c := startGangCluster(t, preempting, 4, 4)
		c.bind("node-0", tt.low(low("low")))
		c.bind("node-1", tt.high(member("", "high").Priority(100)))
		c.quiet()
		gang := c.createUrgent(2, tt.member)
		c.requireUnbound(gang...)
		c.requireLeft([]string{"low", "high"}, nil)
		c.delete("high")
		if !tt.opens {
			c.requireUnbound(gang...)
			c.requireLeft([]string{"low"}, nil)
			return
		}
		c.requireBound(gang...)
		c.requireLeft(nil, []string{"low"})
	})
}

// createPackedUrgent creates a gang of a high priority that is to be in one zone.
func (c *cluster) createPackedUrgent(size int, annotation string) []string {
	c.t.Helper()
	c.packed("urgent", int32(size), annotation)
	return c.createMembers("urgent", size, train, ranked(100))
}

// TestGangThatIsGoneIsCheap: when a gang goes for one member, the rest of its room costs nothing more, and no other
// gang goes.
func TestGangThatIsGoneIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, preempting, 1, 1, 1, 1, 1, 1)
		for i, gang := range []string{"x", "y"} {
			c.groups.set(gang, 3)
			for k := range 3 { // their members lie on every other node
				c.bind(fmt.Sprintf("node-%d", 2*k+i), member(gang, fmt.Sprintf("%s-%d", gang, k)).Priority(1))
			}
		}
		c.quiet()
		c.requireBound(c.createUrgent(3)...)
		left := 0
		for _, gang := range []string{"x", "y"} {
			for k := range 3 {
				if c.exists(fmt.Sprintf("%s-%d", gang, k)) {
					left++
				}
			}
		}
		require.Equal(t, 3, left, "one of the two gangs")
	})
}

// TestNoEvictionForWhatOnlyOneMemberGets: all members find a device, or a volume, but the same one. Without room for
// both elsewhere the gang evicts nobody.
func TestNoEvictionForWhatOnlyOneMemberGets(t *testing.T) {
	type test struct {
		before func(c *cluster)
		with   func(c *cluster) change
	}
	inBubbles(t, map[string]test{
		"ResourceClaims": {
			func(c *cluster) { c.addDevices(1, "", "node-0") },
			func(c *cluster) change { return c.claiming },
		},
		"a resource that devices serve": {
			func(c *cluster) { c.addDevices(1, gpu, "node-0") },
			func(*cluster) change { return asking(gpu) },
		},
		"PersistentVolumeClaims": {
			func(c *cluster) { c.addLocalVolume("disk", "node-0") },
			func(c *cluster) change { return c.claimingLocalVolume },
		},
	}, func(t *testing.T, tt test) {
		c := newGangCluster(t, 4)
		tt.before(c)
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "1s", "bindRehearsal": "Never"}`))
		victims := []string{"low-0", "low-1", "low-2", "low-3"}
		for _, name := range victims {
			c.bind("node-0", low(name))
		}
		c.quiet()
		gang := c.createUrgent(2, tt.with(c))
		c.pass(15 * time.Minute)
		c.requireLeft(victims, nil)
		require.Empty(t, c.boundAmong(gang...))
		c.groups.set("urgent", 1)
		c.soon(func() bool { return slices.ContainsFunc(victims, func(name string) bool { return !c.exists(name) }) }) // for one member
	})
}

// TestDevicesOfSeveralNodes: one node has room for the gang without others' pods, but too few devices.
func TestDevicesOfSeveralNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 4, 4, 4)
		c.addDevices(2, "", "node-0", "node-1")
		c.start(withArgs(`{"bindRehearsal": "Never"}`))
		for i := range 3 {
			for k := range 4 {
				c.bind(fmt.Sprintf("node-%d", i), low(fmt.Sprintf("low-%d-%d", i, k)))
			}
		}
		c.quiet()
		c.requireBound(c.createUrgent(4, c.claiming)...)
		left := 0
		for i := range 3 {
			for k := range 4 {
				if c.exists(fmt.Sprintf("low-%d-%d", i, k)) {
					left++
				}
			}
		}
		require.Equal(t, 8, left, "each member takes the room of one")
	})
}
