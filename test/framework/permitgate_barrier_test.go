package framework

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
)

// preparation keeps one pod in PreBind, ahead of PermitGate, until it is told to go on.
type preparation struct {
	pod     string
	started chan struct{} // gets one value for each attempt
	goOn    chan struct{}
}

// slowPreparation makes the preparation of a pod's volumes, so to say, last until the test ends it.
func (c *cluster) slowPreparation(pod string) *preparation {
	p := &preparation{pod: pod, started: make(chan struct{}, 100), goOn: make(chan struct{})}
	c.mishap.set(func(m *mishap) { m.preBind = p.preBind })
	return p
}

func (p *preparation) preBind(ctx context.Context, pod string) *fwk.Status {
	if pod != p.pod {
		return nil
	}
	p.started <- struct{}{}
	select {
	case <-p.goOn:
		return nil
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
}

// gangAtBarrier starts a gang of three whose member g-1 is being prepared while the others wait at the barrier.
func gangAtBarrier(t *testing.T, c *cluster) ([]string, *preparation) {
	t.Helper()
	p := c.slowPreparation("g-1")
	names := c.createGang("g", 3)
	<-p.started
	c.requireUnbound(names...)
	return names, p
}

// TestMemberIsDeletedAtTheBarrier: kube-scheduler itself does not stop a pod that is deleted there.
func TestMemberIsDeletedAtTheBarrier(t *testing.T) {
	for _, victim := range []string{"g-0", "g-1"} { // one that waits, and the one that is being prepared
		t.Run(victim, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, slowBackoff, 3)
				names, p := gangAtBarrier(t, c)
				c.delete(victim)
				c.requireRoomFor(3)
				require.Empty(t, c.boundAmong(names...))

				close(p.goOn)
				c.create(member("g", victim).UID("another"))
				c.requireBound(names...)
			})
		})
	}
}

// TestMemberIsPreemptedAtTheBarrier: a pod of higher priority takes the place of one member, and the others
// give theirs up with it.
func TestMemberIsPreemptedAtTheBarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		names, p := gangAtBarrier(t, c)
		c.create(member("", "urgent").Priority(100))
		c.requireBound("urgent")
		require.Empty(t, c.boundAmong(names...))
		c.requireEvent("PodGroup g GangRolledBack", "preempted")
		c.create(member("", "rest", 2))
		c.requireBound("rest") // nobody holds anything

		close(p.goOn)
		c.delete("urgent", "rest")
		for _, name := range names { // a victim that is on its way out when the preemptor looks again is deleted
			if !c.exists(name) {
				c.create(member("g", name).UID("another-" + name))
			}
		}
		c.eventually("the gang starts after ten times as long as it has held something", func() bool { return len(c.boundAmong(names...)) == len(names) })
	})
}

// TestMemberIsPreemptedOnItsWayToTheBarrier: what prepares it ends well all the same, so it comes to the barrier, as
// the last. It cannot be marked as prepared any more, and no member is bound.
func TestMemberIsPreemptedOnItsWayToTheBarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.mishap.set(func(m *mishap) {
			m.preBind = func(ctx context.Context, pod string) *fwk.Status {
				if pod == "g-1" {
					<-ctx.Done()
				}
				return nil
			}
		})
		c.groups.set("g", 3)
		c.create(member("g", "g-0").Priority(10), member("g", "g-1").Priority(1), member("g", "g-2").Priority(10))
		c.quiet()
		c.create(member("", "urgent").Priority(100)) // for which g-1 is the only victim
		c.requireBound("urgent")
		require.Empty(t, c.boundAmong("g-0", "g-1", "g-2"))
	})
}

// TestPreemptorLooksAgainTooEarly: kube-scheduler activates a preemptor when its victim is stopped, which may still
// have its room. It is preempted again then, leaves its node while the preemptor may not be retried, and is deleted
// when it has none.
func TestPreemptorLooksAgainTooEarly(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, c *cluster) []string{
		"a member at the barrier": func(t *testing.T, c *cluster) []string {
			t.Helper()
			names, _ := gangAtBarrier(t, c)
			return names
		},
		"a pod that is prepared": func(t *testing.T, c *cluster) []string {
			t.Helper()
			p := c.slowPreparation("low")
			c.create(member("", "low", 3))
			<-p.started
			return []string{"low"}
		},
	} {
		t.Run(name, func(t *testing.T) { testPreemptorLooksAgainTooEarly(t, prepare) })
	}
}

func testPreemptorLooksAgainTooEarly(t *testing.T, prepare func(t *testing.T, c *cluster) []string) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 3)
		deleting, deleted, leaves := make(chan struct{}), make(chan struct{}), make(chan struct{})
		c.stage.onDelete = func(string) error {
			close(deleting)
			<-deleted
			return nil
		}
		c.start(withArgs(slowBackoff))
		names := prepare(t, c)
		c.mishap.set(func(m *mishap) { m.unreserve = func(string) { <-leaves } })
		c.create(member("", "urgent").Priority(100))
		<-deleting
		close(leaves)
		c.quiet()
		require.Empty(t, c.boundAmong(append(names, "urgent")...))
		close(deleted)
		c.requireBound("urgent")
	})
}

func TestPreparationFails(t *testing.T) {
	for name, code := range map[string]fwk.Code{"error": fwk.Error, "unschedulable": fwk.Unschedulable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
				var failures atomic.Int32
				c.mishap.set(func(m *mishap) {
					m.preBind = func(_ context.Context, pod string) *fwk.Status {
						if pod == "g-1" && failures.Add(1) <= 2 {
							return fwk.NewStatus(code, "a mishap")
						}
						return nil
					}
				})
				c.refuseBinds(func(pod string) error {
					if n := failures.Load(); n <= 2 {
						t.Errorf("%s is bound after %d attempts to prepare g-1", pod, n)
					}
					return nil
				})
				c.requireBound(c.createGang("g", 3)...)
			})
		})
	}
}

// TestPreparationTakesTooLong: those that are ready do not wait for ever, and whoever is not is stopped.
func TestPreparationTakesTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"prepareTimeout": "1s", "initialBackoff": "300ms"}`, 3)
		names, p := gangAtBarrier(t, c)
		c.requireEvent("PodGroup g GangRolledBack", "2 of 3 members were ready to be bound 1s after the gang was released")
		require.Empty(t, c.boundAmong(names...))
		close(p.goOn)
		c.requireBound(names...)
	})
}

// TestLateMemberDoesNotHoldUpTheQuorum: of an elastic gang those are bound that are ready and enough.
func TestLateMemberDoesNotHoldUpTheQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 4)
		p := c.slowPreparation("g-3")
		c.groups.set("g", 3)
		for i := range 4 {
			c.create(member("g", fmt.Sprintf("g-%d", i)))
		}
		c.requireBound("g-0", "g-1", "g-2")
		<-p.started
		c.requireUnbound("g-3")
		close(p.goOn)
		c.requireBound("g-3")
	})
}
