package framework

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
)

// createSlowGangs creates gangs of two that want a port each, whose members' cycles last so long behind all PreFilters.
// It returns how many of these each gang has had.
func (c *cluster) createSlowGangs(gangs int, took time.Duration) []atomic.Int64 {
	c.t.Helper()
	cycles := make([]atomic.Int64, gangs)
	c.mishap.set(func(m *mishap) {
		m.preFilter = func(pod string) *fwk.Status {
			var g, i int
			if n, _ := fmt.Sscanf(pod, "gang-%d-%d", &g, &i); n == 2 {
				cycles[g].Add(1)
				time.Sleep(took)
			}
			return nil
		}
	})
	for g := range gangs {
		c.createGang(fmt.Sprint("gang-", g), 2, ported, ranked(100))
	}
	return cycles
}

// TestSearchesForVictimsAreFew: gangs that no eviction helps look for victims again as pods come and go, all of them
// together for a tenth of the time, and each in its turn.
func TestSearchesForVictimsAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const gangs, took, share = 8, 50 * time.Millisecond, 10
		c := newGangCluster(t, 4, 4)
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "1s"}`))
		// The nodes are full of pods that may go, beside one each that keeps its port.
		for _, i := range []string{"0", "1"} {
			c.bind("node-"+i, ported(member("", "high-"+i).Priority(1000)))
			for k := range 3 {
				c.bind("node-"+i, member("", fmt.Sprintf("low-%s-%d", i, k)).Priority(1))
			}
		}
		c.quiet()
		began := c.clock.Now()
		searches := c.createSlowGangs(gangs, took) // only a search runs the filters for a member whose gang is refused
		again := func() (all int64, each bool) {
			each = true
			for g := range searches {
				n := searches[g].Load() - 1
				all, each = all+max(0, n), each && n > 0
			}
			return all, each
		}
		for i := 0; ; i++ { // pods come and go
			if _, each := again(); each {
				break
			}
			require.Less(t, i, 300, "each gang has its turn again")
			c.delete(fmt.Sprintf("low-%d-0", i%2))
			c.create(member("", fmt.Sprintf("low-%d-0", i%2)).Priority(1).Node(fmt.Sprintf("node-%d", i%2)))
			c.pass(time.Second)
			c.quiet()
		}
		all, _ := again()
		elapsed := c.clock.Since(began)
		t.Logf("after the first of each gang %d searches of %s in %s", all, took, elapsed)
		require.LessOrEqual(t, time.Duration(all)*took, elapsed*3/2/share)
		c.mishap.set(func(m *mishap) { m.preFilter = nil })
		c.quiet() // a search that sleeps would outlive the test
	})
}

// TestGathersInVainAreFew: pods that come and go wake gangs whose members fit by all requests, but are refused by a
// filter, for which those pods matter. All together try that again for a tenth of the time.
func TestGathersInVainAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const gangs, took, share, events, interval = 8, 50 * time.Millisecond, 10, 600, 250 * time.Millisecond
		c := newGangCluster(t, 4, 4)
		c.start(withArgs(`{"gangPreemption": false, "initialBackoff": "30s", "maxBackoff": "30s"}`))
		for _, i := range []string{"0", "1"} {
			c.bind("node-"+i, ported(member("", "high-"+i).Priority(1000)))
		}
		c.quiet()
		cycles := c.createSlowGangs(gangs, took)
		c.pass(time.Second)
		first := [gangs]int64{}
		for g := range gangs {
			first[g] = cycles[g].Load()
		}
		for i := range events {
			name := fmt.Sprint("other-", i)
			c.bind("node-0", ported(member("", name)))
			c.pass(interval)
			c.delete(name)
		}
		again := int64(0)
		for g := range gangs {
			require.Greater(t, cycles[g].Load(), first[g], "gang %d has its turn again", g)
			again += cycles[g].Load() - first[g]
		}
		t.Logf("%d cycles again", again)
		require.LessOrEqual(t, time.Duration(again)*took, events*interval*3/2/share)
		c.mishap.set(func(m *mishap) { m.preFilter = nil })
		c.quiet() // a cycle that sleeps would outlive the test
	})
}

// TestFreedRoomIsTheHighestGangs: beside many gangs that were refused, and pods that come and go, room that becomes
// free is that of the gang of the highest priority. (kube-scheduler tries native gangs by its own backoffs, too.)
func TestFreedRoomIsTheHighestGangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const trials, lows = 8, 60
		c := newGangCluster(t, 2, 1)
		c.start(withArgs(`{"bindRehearsal": "Never", "gangPreemption": false, "starvationAfter": "24h"}`))
		c.bind("node-0", member("", "full", 2).Priority(100))
		c.bind("node-1", member("", "other").Priority(100))
		for i := range lows {
			c.createGang(fmt.Sprint("low-", i), 2)
		}
		for trial := range trials {
			names := c.createGang(fmt.Sprint("high-", trial), 2, ranked(10))
			for range 20 + trial {
				c.delete("other")
				c.pass(20 * time.Millisecond)
				c.bind("node-1", member("", "other").Priority(100))
				c.pass(480 * time.Millisecond)
			}
			c.delete("other") // the gang is looked at for it, and pauses
			c.pass(10 * time.Millisecond * time.Duration(trial))
			c.bind("node-1", member("", "other").Priority(100))
			c.delete("full")
			c.pass(time.Second)
			c.requireBound(names...)
			// It makes room for a pod of a higher priority, and not for the others.
			c.create(member("", "full", 2).Priority(100).Node("node-0"))
			c.delete(names...)
			c.pass(time.Second)
		}
	})
}

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
