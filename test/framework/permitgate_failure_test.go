package framework

import (
	"fmt"
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

func TestWaitingMemberIsDeletedAndRecreated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		waitingGang(t, c)
		c.delete("g-0")
		c.requireRolledBack(3)
		require.Empty(t, c.boundAmong("g-1", "g-2"))

		c.mishap.set(func(m *mishap) { m.preEnqueue, m.permit = nil, nil })
		c.create(member("g", "g-0").UID("another"))
		c.requireBound("g-0", "g-1", "g-2")
	})
}

func TestPodGroupIsDeletedWhileMembersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		names := waitingGang(t, c)
		c.groups.delete("g")
		c.requireRolledBack(3)
		require.Empty(t, c.boundAmong(names...))

		c.mishap.set(func(m *mishap) { m.preEnqueue, m.permit = nil, nil })
		c.groups.set("g", 3)
		c.requireBound(names...)
	})
}

func TestQuorumIsLoweredWhileMembersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		waitingGang(t, c)
		c.groups.set("g", 2)
		c.requireBound("g-0", "g-1")
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
	for name, code := range map[string]fwk.Code{"error": fwk.Error, "unschedulable": fwk.Unschedulable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
				var failures atomic.Int32
				c.mishap.set(func(m *mishap) {
					m.reserve = func(pod string) *fwk.Status {
						if pod == "g-1" && failures.Add(1) <= 2 {
							return fwk.NewStatus(code, "a mishap")
						}
						return nil
					}
				})
				names := c.createGang("g", 3)
				c.requireEvent("PodGroup g GangRolledBack", "member g-1: a member was refused after it had been given a node")
				c.requireBound(names...)
			})
		})
	}
}

// TestAnotherPermitPluginRefuses: nobody is let go on the strength of a member that a later plugin refuses.
func TestAnotherPermitPluginRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
		var refusals atomic.Int32
		c.mishap.set(func(m *mishap) {
			m.permit = func(pod string) *fwk.Status {
				if pod == "g-1" && refusals.Add(1) <= 3 {
					return fwk.NewStatus(fwk.Unschedulable, "a mishap")
				}
				return nil
			}
		})
		c.refuseBinds(func(pod string) error {
			if n := refusals.Load(); n <= 3 {
				t.Errorf("%s is bound after %d refusals of g-1", pod, n)
			}
			return nil
		})
		c.requireBound(c.createGang("g", 3)...)
	})
}

// TestAnotherPermitPluginWaits: the quorum is in only when nothing else keeps any of its members.
func TestAnotherPermitPluginWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.mishap.set(func(m *mishap) { m.permit = failing("g-1", fwk.Wait) })
		names := c.createGang("g", 3)
		c.soon(func() bool { return len(c.mishap.waiting()) == 3 })
		c.requireUnbound(names...)
		c.mishap.handle.GetWaitingPod("g-1-uid").Allow(mishapName)
		c.requireBound(names...)
	})
}

// TestMembersDoNotPreemptForThemselves, also where gangs do not preempt at all; a gang of one is a pod like any other.
func TestMembersDoNotPreemptForThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "4m", "maxBackoff": "4m", "gangPreemption": false}`, 4)
		var low []string
		for i := range 4 {
			low = append(low, fmt.Sprintf("low-%d", i))
			c.create(member("", low[i]).Priority(-1))
		}
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
