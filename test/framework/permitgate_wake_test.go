package framework

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestNativeGangStartsWhenRoomAppears: guarded, a gang of 100 is bound at once. GangScheduling alone lets it wait for
// the end of its backoff, which no event ends.
func TestNativeGangStartsWhenRoomAppears(t *testing.T) {
	// wait has a gang fail until it backs off for more than a minute, and then makes room.
	wait := func(t *testing.T, args string) (c *cluster, names []string) {
		t.Helper()
		c = newGangCluster(t, 100)
		c.maxBackoff = 10
		c.countCycles()
		c.start(withArgs(args))
		c.create(member("", "blocker"))
		c.requireBound("blocker")
		names = c.createNativeGang("n", 100)
		c.eventually("seven cycles", func() bool { return c.mishap.tried("n-0") == 7 })
		require.Empty(t, c.boundAmong(names...))
		c.delete("blocker")
		return c, names
	}
	nativeBubble(t, "Guard", func(t *testing.T) {
		c, names := wait(t, guarded)
		require.Less(t, c.requireBound(names...), time.Second)
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c, names := wait(t, alone)
		c.pass(30 * time.Second)
		require.Empty(t, c.boundAmong(names...))
		c.eventually("the backoff is over", func() bool { return len(c.boundAmong(names...)) == len(names) })
	})
}

// TestRoomThatComesDuringACycleWakesANativeGang: the cycle may have looked too early, and the room is no event for a
// group that is not in the queue.
func TestRoomThatComesDuringACycleWakesANativeGang(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 3)
		c.maxBackoff = 1000
		failed, handled := c.holdFailure("n-0")
		c.start(withArgs(guarded))
		c.create(member("", "blocker"))
		c.requireBound("blocker")
		names := c.createNativeGang("n", 3)
		<-failed
		c.delete("blocker")
		c.quiet()
		close(handled)
		require.Less(t, c.requireBound(names...), time.Second, "the backoff")
	})
}

// TestNativeGangPreempts: the same victims with a guard and without.
func TestNativeGangPreempts(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			c := startGangCluster(t, args, 4)
			for i := range 4 {
				c.create(member("", fmt.Sprint("low-", i)).Priority(int32(i)))
				c.requireBound(fmt.Sprint("low-", i))
			}
			c.createPriorityGang("n", 3, 10)
			c.requireBound("n-0", "n-1", "n-2", "low-3")
			require.False(t, c.exists("low-0") || c.exists("low-1") || c.exists("low-2"))
			require.Equal(t, metav1.ConditionTrue, c.groupCondition("n", schedulingv1beta1.PodGroupInitiallyScheduled).Status)
		})
	}
}

// TestNativeGangPreemptsWhenItsBackoffEnds: no event tells that a pod may be preempted from now on, here because its
// priority has changed, which no API server allows. A guarded gang is tried at the end of its backoff all the same.
func TestNativeGangPreemptsWhenItsBackoffEnds(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		c.create(member("", "low-0", 3).Priority(20))
		c.requireBound("low-0")
		c.createPriorityGang("n", 3, 10)
		c.requireUnbound("n-0", "n-1", "n-2")
		c.editPod("low-0", func(pod *v1.Pod) { pod.Spec.Priority, pod.Generation = ptr.To[int32](0), pod.Generation+1 })
		c.requireBound("n-0", "n-1", "n-2")
	})
}

// TestNativeGangsCompete: of two gangs with room for one, one is whole and the other holds nothing, until the first is
// gone; with a guard and without.
func TestNativeGangsCompete(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			c := startGangCluster(t, args, 4)
			for _, name := range []string{"a", "b"} {
				c.createPodGroup(name, 3)
			}
			for i := range 3 {
				c.create(nativeMember("a", fmt.Sprint("a-", i)), nativeMember("b", fmt.Sprint("b-", i)))
			}
			c.soon(func() bool { return len(c.bound("")) == 3 })
			c.quiet()
			first, second := c.bound("a-"), c.bound("b-")
			if len(first) == 0 {
				first, second = second, first
			}
			require.Len(t, first, 3)
			require.Empty(t, second)
			c.requireRoomFor(1)
			c.pass(10 * time.Minute)
			require.Len(t, c.bound(""), 3)
			c.delete(slices.Collect(maps.Keys(first))...)
			c.soon(func() bool { return len(c.bound("")) == 3 })
		})
	}
}

// createPriorityGang creates a PodGroup of a priority and its members, and returns their names.
func (c *cluster) createPriorityGang(name string, size int, priority int32) []string {
	c.t.Helper()
	c.createPodGroup(name, int32(size), func(spec *schedulingv1beta1.PodGroupSpec) { spec.Priority = &priority })
	return c.createNativeMembers(name, size, ranked(priority))
}

// TestVainWakesOfNativeGangsArePaced: room that does not suffice, again and again, costs a gang five cycles a second.
func TestVainWakesOfNativeGangsArePaced(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 2)
		c.maxBackoff = 1000
		c.countCycles()
		c.start(withArgs(guarded))
		names := c.createNativeGang("n", 3)
		c.requireUnbound(names...)
		c.pass(20 * time.Second) // far into a backoff of 16s
		before := c.gangCycles(names)
		c.comeAndGo(t, 1000, time.Millisecond)
		require.InDelta(t, 5, c.gangCycles(names)-before, 1, "in a second")
	})
}

// gangCycles is how many cycles a native gang has had. Each ends with the first member that does not fit.
func (c *cluster) gangCycles(names []string) (most int) {
	for _, name := range names {
		most = max(most, c.mishap.tried(name))
	}
	return most
}

// TestCycleThatMayHaveMissedRoomIsRepeatedOnce, when kube-scheduler has seen what this plugin had: not at once, again
// and again.
func TestCycleThatMayHaveMissedRoomIsRepeatedOnce(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 2)
		c.maxBackoff = 1000
		c.countCycles()
		c.start(withArgs(guarded))
		c.comeAndGo(t, 1, time.Millisecond)
		names := c.createNativeGang("n", 3)
		c.soon(func() bool { return c.gangCycles(names) > 0 })
		c.pass(150 * time.Millisecond)
		require.Equal(t, 1, c.gangCycles(names))
		c.pass(500 * time.Millisecond)
		require.Equal(t, 2, c.gangCycles(names))
	})
}

// TestNativeGangsAreVictimsAsAWhole, or as far as they do without members: of a guarded gang minCount stay, of a group
// with the disruption mode All all do.
func TestNativeGangsAreVictimsAsAWhole(t *testing.T) {
	all := func(group *schedulingv1beta1.PodGroup) {
		group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	unguarded := func(group *schedulingv1beta1.PodGroup) {
		group.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	}
	for name, tt := range map[string]struct {
		minCount int32
		edits    []func(group *schedulingv1beta1.PodGroup)
		left     []string
		gone     []string
	}{
		"all members are needed":            {3, nil, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"one is not":                        {2, nil, []string{"single"}, nil},
		"it is to be disrupted all at once": {2, []func(*schedulingv1beta1.PodGroup){all}, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"a basic group, all at once":        {1, []func(*schedulingv1beta1.PodGroup){unguarded, all}, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"a basic group":                     {1, []func(*schedulingv1beta1.PodGroup){unguarded}, []string{"single"}, nil},
	} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newGangCluster(t, 1, 1, 1, 1, 1)
			c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`))
			c.createPodGroup("n", tt.minCount)
			for _, edit := range tt.edits {
				c.editNativeGroup("n", edit)
			}
			for i := range 3 {
				c.bind(fmt.Sprint("node-", i), nativeMember("n", fmt.Sprint("n-", i)).Priority(1))
			}
			single := low("single")
			if len(tt.gone) == 0 {
				single.Priority(2) // the members come first
			}
			c.bind("node-3", single)
			c.quiet()
			c.requireBound(c.createUrgent(2)...) // node-4 is free
			c.requireLeft(tt.left, tt.gone)
		})
	}
	nativeBubble(t, "there is nobody else", func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1)
		c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`))
		c.createPodGroup("n", 2)
		c.bind("node-0", nativeMember("n", "n-0").Priority(1))
		c.bind("node-1", nativeMember("n", "n-1").Priority(1))
		c.quiet()
		c.requireBound(c.createUrgent(2)...)
		c.soon(func() bool { return !c.exists("n-0") && !c.exists("n-1") })
	})
}

// TestTerminatingMembersAreNoQuorum: kube-scheduler counts members that terminate, and evicted pods for the others, which
// were refused then. They are tried as soon as there are enough.
func TestTerminatingMembersAreNoQuorum(t *testing.T) {
	nativeBubble(t, "", func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1, 1)
		c.start(withArgs(`{"nativeGroups": "Guard", "bindRehearsal": "Never"}`))
		c.createPodGroup("n", 3)
		now := metav1.Time{Time: c.clock.Now()}
		stuck := nativeMember("n", "n-0")
		stuck.DeletionTimestamp, stuck.Finalizers = &now, []string{"example.com/never"}
		c.bind("node-0", stuck)
		c.bind("node-1", nativeMember("n", "n-1"))
		c.bind("node-2", low("low-2").Priority(-1))
		c.bind("node-3", low("low-3").Priority(-1))
		c.quiet()
		c.create(nativeMember("n", "n-2"))
		c.pass(3 * time.Minute)
		c.requireLeft([]string{"low-2", "low-3"}, nil)
		require.Contains(t, c.condition("n-2"), "needs 3 members, 2 exist")
		c.create(nativeMember("n", "n-3"))
		c.pass(5 * time.Second)
		c.requireBound("n-2", "n-3")
	})
}
