package framework

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

const preempting = `{"initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`

// bind creates pods that have a node already.
func (c *cluster) bind(node string, pods ...*st.PodWrapper) {
	c.t.Helper()
	for _, p := range pods {
		c.create(p.Node(node))
	}
}

// createUrgent creates a gang of a high priority, and returns its members.
func (c *cluster) createUrgent(size int, changes ...change) []string {
	c.t.Helper()
	return c.createGang("urgent", size, append(changes, ranked(100))...)
}

// requireLeft makes sure that of some pods those are left when the gang is bound.
func (c *cluster) requireLeft(left, gone []string) {
	c.t.Helper()
	for _, name := range left {
		require.True(c.t, c.exists(name), name)
	}
	for _, name := range gone {
		require.False(c.t, c.exists(name), name)
	}
}

// preemptSlowly starts a scheduler with nodes of two CPUs each, on each of which is a pod low-N that takes its time to
// leave, and has a gang of a high priority preempt as many as it needs.
func preemptSlowly(t *testing.T, nodes, gang int) (c *cluster, names []string) {
	t.Helper()
	c = startGangCluster(t, preempting, slices.Repeat([]int{2}, nodes)...)
	c.server.Graceful.Store(true)
	victims := make([]string, nodes)
	for i := range nodes {
		victims[i] = fmt.Sprint("low-", i)
		c.bind(fmt.Sprint("node-", i), member("", victims[i], 2).Priority(1).TerminationGracePeriodSeconds(30))
	}
	c.quiet()
	names = c.createUrgent(gang)
	c.soon(func() bool { return len(c.leaving(victims...)) == (gang+1)/2 })
	return c, names
}

// TestVictimThatMayNotBeDeleted: the API server is asked for all victims before any of them goes, and the gang looks
// for others.
func TestVictimThatMayNotBeDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, preempting, 1, 1, 1)
		c.stage.onDelete = func(name string) error {
			if name == "protected" {
				return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("a webhook says no"))
			}
			return nil
		}
		c.bind("node-0", member("", "protected").Priority(-9))
		c.bind("node-1", member("", "low-1").Priority(1))
		c.bind("node-2", member("", "low-2").Priority(1))
		c.quiet()
		gang := c.createUrgent(2)
		c.requireBound(gang...)
		c.requireLeft([]string{"protected"}, []string{"low-1", "low-2"})
		c.requireEvent("PodGroup urgent GangPreemptionFailed", "pod default/protected could not be evicted")
	})
}

// TestPodsThatLeaveAnyway are waited for, and no others are evicted. Meanwhile nothing takes their room.
func TestPodsThatLeaveAnyway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, preempting, 2, 2)
		now := metav1.Time{Time: c.clock.Now()}
		leaving := func(name string) *st.PodWrapper {
			p := member("", name, 2).Priority(500)
			p.DeletionTimestamp, p.Finalizers = &now, []string{"example.com/slow"}
			return p
		}
		c.bind("node-0", leaving("leaving"))
		c.bind("node-1", member("", "low", 2).Priority(1))
		c.quiet()
		gang := c.createUrgent(2)
		c.requireUnbound(gang...)
		c.requireLeft([]string{"low", "leaving"}, nil)
		c.requireKept("node-0", 2)
		c.create(member("", "late", 2))
		c.finish("leaving")
		c.requireBound(gang...)
		c.requireLeft([]string{"low"}, nil)
		c.requireUnbound("late")
	})
}

// preemptTwo has a gang of two preempt node-0, of four CPUs: it waits for its victims, small and large.
func (c *cluster) preemptTwo() {
	c.t.Helper()
	c.server.Graceful.Store(true)
	for name, cpu := range map[string]int{"small": 1, "large": 3} {
		c.bind("node-0", member("", name, cpu).Priority(1).TerminationGracePeriodSeconds(3600))
	}
	c.quiet()
	c.groups.set("urgent", 2)
	c.create(member("urgent", "urgent-0", 3).Priority(100), member("urgent", "urgent-1", 1).Priority(100))
	c.soon(func() bool { return len(c.leaving("small", "large")) == 2 })
	c.quiet()
	c.requireKept("node-0", 2)
}

// requireKeptForTwo ends the victims of preemptTwo one after the other. Another pod does not get the room of the first.
func (c *cluster) requireKeptForTwo() {
	c.t.Helper()
	c.finish("large")
	c.create(member("", "late", 2))
	c.requireUnbound("late", "urgent-0", "urgent-1")
	c.finish("small")
	c.requireBound("urgent-0", "urgent-1")
	c.requireUnbound("late")
}

// TestPreemptedRoomIsKeptFromCycleToCycle: a member that is looked at again while victims end loses its nomination, as
// any pod that is refused, but not its room.
func TestPreemptedRoomIsKeptFromCycleToCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 4)
		var refused atomic.Int64 // members
		c.onFailure = func(pod string) {
			if strings.HasPrefix(pod, "urgent-") {
				refused.Add(1)
			}
		}
		c.start(withArgs(`{"initialBackoff": "10s", "maxBackoff": "10s", "bindRehearsal": "Never"}`))
		c.preemptTwo()
		before := refused.Load()
		c.pass(10 * time.Second)
		c.soon(func() bool { return refused.Load() > before })
		c.quiet()
		c.requireKeptForTwo()
	})
}

// TestPreemptedRoomIsKeptWhenANominationEnds: kube-scheduler drops what is kept for a pod when the API no longer has a
// nomination of it.
func TestPreemptedRoomIsKeptWhenANominationEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := preemptSlowly(t, 1, 2)
		c.pass(10 * time.Second)
		c.requireKept("node-0", 2)
		for _, node := range []string{"node-0", ""} {
			c.editPod("urgent-1", func(pod *v1.Pod) { pod.Status.NominatedNodeName = node })
			c.quiet()
		}
		c.requireKept("node-0", 2)
	})
}

// TestVictimThatStaysIsNotCountedOn: while it is there no other pod is evicted for a room that would be complete
// without it.
func TestVictimThatStaysIsNotCountedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1m", "maxBackoff": "1m", "bindRehearsal": "Never"}`, 2)
		c.server.Graceful.Store(true)
		c.bind("node-0", member("", "stays", 1).Priority(1).TerminationGracePeriodSeconds(30), member("", "goes", 1).Priority(1).TerminationGracePeriodSeconds(30))
		c.quiet()
		gang := c.createUrgent(2)
		c.requireUnbound(gang...)
		c.quiet()
		c.finish("goes")
		c.quiet()
		c.pass(80 * time.Second)
		c.quiet()
		require.Zero(t, c.recorder.count("PodGroup urgent GangPreemptionFailed", ""))
		c.pass(20 * time.Second)
		c.requireEvent("PodGroup urgent GangPreemptionFailed", "1 victims had not left their nodes in time")
		c.create(member("", "other").Priority(1))
		c.requireBound("other")
		c.pass(30 * time.Minute) // however long it stays
		c.quiet()
		require.Empty(t, c.leaving("other"))

		c.finish("stays")
		c.pass(2 * time.Minute)
		c.soon(func() bool { return len(c.leaving("other")) == 1 })
		c.finish("other")
		c.requireBound(gang...)
	})
}

// TestMemberThatIsBeingDeletedKeepsNoRoom, whether or not its nomination is in the API by then: a finalizer may keep it
// for long.
func TestMemberThatIsBeingDeletedKeepsNoRoom(t *testing.T) {
	type test struct {
		written time.Duration // how long the nomination may take to be written
		restart bool
	}
	inBubbles(t, map[string]test{
		"before its nomination is written": {},
		"after":                            {written: 5 * time.Second},
		"while no scheduler runs":          {written: 5 * time.Second, restart: true},
	}, func(t *testing.T, test test) {
		c, _ := preemptSlowly(t, 1, 2)
		c.requireKept("node-0", 2)
		c.pass(test.written)
		if test.restart {
			c.stop()
		}
		c.delete("urgent-1")
		c.finish("low-0")
		if test.restart {
			c.start(withArgs(preempting))
		}
		c.create(member("", "other", 2).Priority(1))
		c.requireBound("other")
	})
}

// TestPodsThatWaitBesideNominations are tried again when a gang gives up what was kept for it, which is no event for
// them.
func TestPodsThatWaitBesideNominations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := preemptSlowly(t, 2, 4)
		c.finish("low-0")
		c.create(member("", "late", 2))
		c.requireUnbound("late")
		c.delete("urgent-1")
		c.finish("urgent-1")
		c.requireBound("late")
		c.requireUnbound("urgent-0", "urgent-2", "urgent-3")
	})
}

// budget creates a PodDisruptionBudget for the pods of an app that allows so many disruptions.
func (c *cluster) budget(app string, allowed int32) {
	c.t.Helper()
	c.createBudget(app, allowed)
	c.quiet()
}

func (c *cluster) createBudget(app string, allowed int32) {
	c.t.Helper()
	c.add(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
}

// nominatedNode returns the node that a pod is nominated to in the API.
func (c *cluster) nominatedNode(name string) string { return c.getPod(name).Status.NominatedNodeName }

// TestNoAutoscalerBuysForAPreemptingGang: kube-scheduler says of a pod that failed that it is unschedulable, also if
// its gang preempts. Autoscalers buy for such a pod unless it is nominated, so it is nominated by the same write.
func TestNoAutoscalerBuysForAPreemptingGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 1, 1)
		c.server.Graceful.Store(true)
		var unschedulable atomic.Int32
		c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch := action.(clienttesting.PatchAction)
			var pod v1.Pod
			if err := json.Unmarshal(patch.GetPatch(), &pod); err != nil {
				t.Error(err)
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == v1.PodScheduled && condition.Reason == v1.PodReasonUnschedulable && strings.HasPrefix(patch.GetName(), "urgent") {
					unschedulable.Add(1)
					if pod.Status.NominatedNodeName == "" {
						t.Errorf("%s is unschedulable and not nominated: %s", patch.GetName(), patch.GetPatch())
					}
				}
			}
			return false, nil, nil
		})
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim-0").Priority(1))
		c.bind("node-1", member("", "victim-1").Priority(1))
		c.quiet()
		members := c.createUrgent(2)
		c.soon(func() bool { return c.nominatedNode(members[0]) != "" && c.nominatedNode(members[1]) != "" })
		c.pass(time.Minute)
		c.quiet()
		require.Positive(t, unschedulable.Load(), "of the scout")
		c.finish("victim-0")
		c.finish("victim-1")
		c.requireBound(members...)
	})
}

// TestNominationsEndWithThePreemption: a gang that is gone keeps no room in the API.
func TestNominationsEndWithThePreemption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, members := preemptSlowly(t, 1, 2)
		c.soon(func() bool { return c.nominatedNode(members[0]) != "" })
		c.groups.delete("urgent")
		c.soonEqual("", func() any { return c.nominatedNode(members[0]) + c.nominatedNode(members[1]) })
	})
}

// TestVictimWhoseStatusConflicts: the condition could not be written among other writes. The pod is there, and goes.
func TestVictimWhoseStatusConflicts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 2)
		c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if name := action.(clienttesting.PatchAction).GetName(); name == "victim" {
				return true, nil, apierrors.NewConflict(v1.Resource("pods"), name, errors.New("the object has been modified"))
			}
			return false, nil, nil
		})
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim", 2).Priority(1))
		c.quiet()
		c.requireBound(c.createUrgent(2)...)
		c.requireLeft(nil, []string{"victim"})
	})
}

// TestPreemptionDelay: a gang gives an autoscaler its time before it preempts.
func TestPreemptionDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "2s", "bindRehearsal": "Never", "preemptionDelay": "10m"}`, 2)
		c.bind("node-0", member("", "victim", 2).Priority(1))
		c.quiet()
		c.groups.set("urgent", 2)
		members := c.createUrgent(2)
		c.requireEvent("PodGroup urgent GangRolledBack", "needs 2")
		c.pass(5 * time.Minute)
		c.quiet()
		c.requireLeft([]string{"victim"}, nil)
		c.pass(5 * time.Minute)
		c.requireBound(members...)
	})
}
