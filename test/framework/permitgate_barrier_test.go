package framework

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
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

// loseAtTheBarrier deletes a member while a preparation keeps others at the barrier. All give back their nodes, and are
// bound with another one in its place.
func (c *cluster) loseAtTheBarrier(p *preparation, names []string, lost *st.PodWrapper) {
	c.t.Helper()
	<-p.started
	c.requireUnbound(names...)
	c.delete(lost.Pod.Name)
	c.requireRoomFor(len(names))
	require.Empty(c.t, c.boundAmong(names...))

	close(p.goOn)
	c.create(lost.UID("another"))
	c.requireBound(names...)
}

// TestMemberIsDeletedAtTheBarrier: kube-scheduler itself does not stop a pod that is deleted there.
func TestMemberIsDeletedAtTheBarrier(t *testing.T) {
	inBubbles(t, map[string]string{"one that waits": "g-0", "the one that is being prepared": "g-1"}, func(t *testing.T, victim string) {
		c := startGangCluster(t, slowBackoff, 3)
		c.loseAtTheBarrier(c.slowPreparation("g-1"), c.createGang("g", 3), member("g", victim))
	})
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
	inBubbles(t, map[string]func(t *testing.T, c *cluster) []string{
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
	}, func(t *testing.T, prepare func(t *testing.T, c *cluster) []string) {
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
	inBubbles(t, map[string]fwk.Code{"error": fwk.Error, "unschedulable": fwk.Unschedulable}, func(t *testing.T, code fwk.Code) {
		c := startGangCluster(t, `{"initialBackoff": "300ms"}`, 3)
		fail := c.failFirst("g-1", code, 2)
		c.mishap.set(func(m *mishap) { m.preBind = func(_ context.Context, pod string) *fwk.Status { return fail(pod) } })
		c.requireBound(c.createGang("g", 3)...)
	})
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
		c.createMembers("g", 4)
		c.requireBound("g-0", "g-1", "g-2")
		<-p.started
		c.requireUnbound("g-3")
		close(p.goOn)
		c.requireBound("g-3")
	})
}
