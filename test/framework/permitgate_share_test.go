package framework

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	fwk "k8s.io/kube-scheduler/framework"
)

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
		// Only a search runs the filters for a member whose gang is refused.
		var searches [gangs]atomic.Int64
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(pod string) *fwk.Status {
				var g, i int
				if n, _ := fmt.Sscanf(pod, "gang-%d-%d", &g, &i); n == 2 {
					searches[g].Add(1)
					time.Sleep(took)
				}
				return nil
			}
		})
		began := c.clock.Now()
		for g := range gangs {
			name := fmt.Sprintf("gang-%d", g)
			c.groups.set(name, 2)
			for i := range 2 {
				c.create(ported(member(name, fmt.Sprintf("%s-%d", name, i)).Priority(100)))
			}
		}
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
		var cycles [gangs]atomic.Int64
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
			name := fmt.Sprintf("gang-%d", g)
			c.groups.set(name, 2)
			for i := range 2 {
				c.create(ported(member(name, fmt.Sprintf("%s-%d", name, i)).Priority(100)))
			}
		}
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
			name := fmt.Sprint("high-", trial)
			names := []string{name + "-0", name + "-1"}
			c.groups.set(name, 2)
			for _, pod := range names {
				c.create(member(name, pod).Priority(10))
			}
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
			for _, pod := range names {
				c.delete(pod)
			}
			c.pass(time.Second)
		}
	})
}
