package framework

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
)

// failing fails one pod with a code.
func failing(pod string, code fwk.Code) func(string) *fwk.Status {
	return func(name string) *fwk.Status {
		if name == pod {
			return fwk.NewStatus(code, "a mishap")
		}
		return nil
	}
}

// failFirst fails the first attempts of a pod with a code, and sees to it that no pod is bound before one succeeds.
func (c *cluster) failFirst(pod string, code fwk.Code, attempts int32) func(string) *fwk.Status {
	c.t.Helper()
	var had atomic.Int32
	c.refuseBinds(func(bound string) error {
		if n := had.Load(); n <= attempts {
			c.t.Errorf("%s is bound after %d attempts of %s", bound, n, pod)
		}
		return nil
	})
	return func(name string) *fwk.Status {
		if name == pod && had.Add(1) <= attempts {
			return fwk.NewStatus(code, "a mishap")
		}
		return nil
	}
}

// waitingGang starts a gang of three on a cluster with room for three, whose third member cannot get
// through its cycle, and returns when the other two wait in Permit.
func waitingGang(t *testing.T, c *cluster) []string {
	t.Helper()
	c.mishap.set(func(m *mishap) { m.preEnqueue = failing("g-2", fwk.Unschedulable) })
	names := c.createGang("g", 3)
	c.soon(func() bool { return len(c.mishap.waiting()) == 2 })
	return names
}

// requireRolledBack waits until nobody waits and everything is free.
func (c *cluster) requireRolledBack(cpu int) {
	c.t.Helper()
	c.soon(func() bool { return len(c.mishap.waiting()) == 0 })
	c.requireRoomFor(cpu)
}

func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.groups.set("g", 3, 1)
		c.mishap.set(func(m *mishap) { m.permit = failing("g-2", fwk.Wait) })
		c.create(member("g", "g-0"), member("g", "g-1"), member("g", "g-2"))
		c.soon(func() bool { return len(c.mishap.waiting()) == 3 })
		c.requireEvent("PodGroup g GangRolledBack", "3 of 3 members had a node after 1s")
		require.Empty(t, c.boundAmong("g-0", "g-1", "g-2"))
		c.soon(func() bool { return len(c.mishap.waiting()) == 0 })
		c.mishap.set(func(m *mishap) { m.preEnqueue, m.permit = nil, nil })
		c.requireRoomFor(3)      // and that it leaves makes room: the gang need not sit out its backoff
		c.pass(10 * time.Second) // but ten times what its last attempt took
		c.requireBound("g-0", "g-1", "g-2")
	})
}

func TestMemberMovesToAnotherGangWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		waitingGang(t, c)
		c.groups.set("h", 1)
		c.update(member("h", "g-0"))
		c.requireBound("g-0")
		c.soon(func() bool { return len(c.mishap.waiting()) == 0 })
		require.Empty(t, c.boundAmong("g-1", "g-2"))
	})
}

func TestReserveFails(t *testing.T) {
	inBubbles(t, map[string]fwk.Code{"error": fwk.Error, "unschedulable": fwk.Unschedulable}, func(t *testing.T, code fwk.Code) {
		c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
		c.mishap.set(func(m *mishap) { m.reserve = c.failFirst("g-1", code, 2) })
		names := c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack", "member g-1: a member was refused after it had been given a node")
		c.requireBound(names...)
	})
}

// TestAnotherPermitPluginRefuses: nobody is let go on the strength of a member that a later plugin refuses.
func TestAnotherPermitPluginRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
		c.mishap.set(func(m *mishap) { m.permit = c.failFirst("g-1", fwk.Unschedulable, 3) })
		c.requireBound(c.createGang("g", 3)...)
	})
}

// TestMembersDoNotPreemptForThemselves, also where gangs do not preempt at all; a gang of one is a pod like any other.
func TestMembersDoNotPreemptForThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "4m", "maxBackoff": "4m", "gangPreemption": false}`, 4)
		low := c.createPlain("low", 4, ranked(-1))
		c.requireBound(low...)
		c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack", "short of cpu")
		c.quiet()
		require.Len(t, c.boundAmong(low...), 4)

		c.groups.set("single", 1)
		c.create(member("single", "single")) // for which one victim is enough: kube-scheduler may lose a preemptor of several
		c.soon(func() bool { return len(c.boundAmong(low...)) < 4 })
		c.requireBound("single")
	})
}

// TestGangIsDeletedWhileItWaits: all members go at once, as with their Job. The framework rejects each of
// the waiting ones, and so must not the plugin at the same moment.
func TestGangIsDeletedWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		for range 5 {
			names := waitingGang(t, c)
			c.delete(names...)
			c.requireRolledBack(3)
		}
	})
}
