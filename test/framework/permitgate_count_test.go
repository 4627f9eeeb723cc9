package framework

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
)

// TestEventsBesideRefusedGangs: each pod that leaves may help each gang that was refused. The gangs are looked at as
// often as a tenth of the time allows, with the least that a look costs, and not once for each pod.
func TestEventsBesideRefusedGangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const gangs, events, interval, look, share = 20, 500, 10 * time.Millisecond, time.Millisecond, 10
		c := newGangCluster(t, 4)
		var l looks // at the only node
		perLook := int64(0)
		c.start(withArgs(`{"gangPreemption": false, "initialBackoff": "30s", "maxBackoff": "30s"}`), withHolds(&l))
		c.bind("node-0", member("", "stays"))
		c.pass(time.Second) // nothing is looked at again for it
		for g := range gangs {
			name := fmt.Sprint("g-", g)
			c.groups.set(name, 2)
			c.create(member(name, name+"-0", 2), member(name, name+"-1", 2))
			c.quiet()
			if g == 0 {
				perLook = l.Load()
			}
		}
		before := l.Load()
		for i := range events {
			name := fmt.Sprint("other-", i)
			c.bind("node-0", member("", name))
			c.pass(interval)
			c.delete(name)
		}
		require.Positive(t, perLook)
		seen := (l.Load() - before) / perLook
		t.Logf("%d looks", seen)
		require.Greater(t, seen, int64(2*gangs), "each is looked at again, and more than once")
		require.LessOrEqual(t, time.Duration(seen)*look, events*interval/share+gangs*look)
	})
}

// TestWaitingMembersAreSentBackSeldom: each is dear in the scheduling queue, which keeps all events since the oldest of
// them began to wait, and has them all looked at again when it is sent back. One member does not come, so the others
// wait for a tenth of the time.
func TestWaitingMembersAreSentBackSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, seconds, stall, share = 20, 300, 2, 10
		c := newGangCluster(t, members)
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "5s", "bindRehearsal": "Never"}`))
		var sentBack atomic.Int64
		c.mishap.set(func(m *mishap) {
			m.preEnqueue = func(pod string) *fwk.Status {
				if pod == fmt.Sprint("g-", members-1) {
					return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not yet")
				}
				return nil
			}
			m.unreserve = func(string) { sentBack.Add(1) }
		})
		c.createGang("g", members)
		waiting := 0
		for range seconds {
			c.pass(time.Second)
			waiting += len(c.mishap.waiting())
		}
		const rounds = seconds/(stall*share) + 2
		t.Logf("%d members sent back, %d seconds of waiting", sentBack.Load(), waiting)
		require.Positive(t, waiting)
		require.LessOrEqual(t, waiting, rounds*stall*members)
		require.LessOrEqual(t, sentBack.Load(), int64(rounds*members))
	})
}
