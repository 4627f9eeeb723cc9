package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

func failover(down, full, window time.Duration) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.UnavailableZones = v1alpha1.UnavailableZones{DownAfter: &metav1.Duration{Duration: down}, FullAfter: &metav1.Duration{Duration: full}}
		if window > 0 {
			s.UnavailableZones.RecoveryWindow = &metav1.Duration{Duration: window}
		} else {
			s.UnavailableZones.Recovery = v1alpha1.RecoveryImmediate
		}
	}
}

func asks(cpu, memory int64) policy.Requests {
	return policy.Requests{v1.ResourceCPU: cpu, v1.ResourceMemory: memory}
}

var small, big = asks(100, 1<<20), asks(4000, 1<<30)

// state reads a zone's state off an export.
func state(t require.TestingT, zs *policy.Zones, zone string, now time.Time) v1alpha1.ZoneState {
	for _, z := range zs.Export(now) {
		if z.Name == zone {
			return z.State
		}
	}
	require.Fail(t, "no zone "+zone)
	return ""
}

// zonesWith are the open zones a and b, and zone c.
func zonesWith(c policy.ZoneNodes) map[string]policy.ZoneNodes {
	zones := readyZones("a", "b")
	zones["c"] = c
	return zones
}

var (
	cOpen   = policy.ZoneNodes{Nodes: 2, Open: 2}
	cOne    = policy.ZoneNodes{Nodes: 2, Open: 1}
	cClosed = policy.ZoneNodes{Nodes: 2}

	cCloses, cOut, cBack = policy.View{"c": policy.Closing}, policy.View{"c": policy.Unavailable}, policy.View{"c": policy.Recovering}
)

// watched are the zones of a policy that were shown zones a, b and c, all open.
func watched(t require.TestingT, changes ...change) *policy.Zones {
	zs := policy.NewZones(compile(t, changes...), nil)
	changed, urgent := zs.ObserveNodes(at(0), zonesWith(cOpen))
	require.True(t, changed)
	require.False(t, urgent, "the next look shows the nodes, too")
	return zs
}

// news reports whether the nodes tell something that is urgent to remember.
func news(zs *policy.Zones, now time.Time, nodes map[string]policy.ZoneNodes) bool {
	_, urgent := zs.ObserveNodes(now, nodes)
	return urgent
}

func TestZoneClosesAndComesBack(t *testing.T) {
	zs := watched(t, failover(2*time.Minute, 5*time.Minute, 10*time.Minute))
	require.False(t, news(zs, at(time.Minute), zonesWith(cOne)), "one open node is enough")
	require.Nil(t, zs.View(at(time.Minute), small))
	_, ok := zs.NextDeadline(at(time.Minute))
	require.False(t, ok)

	lost := at(2 * time.Minute)
	require.True(t, news(zs, lost, zonesWith(cClosed)))
	require.False(t, news(zs, lost.Add(time.Second), zonesWith(cClosed)))
	require.Equal(t, cCloses, zs.View(lost.Add(time.Minute), small), "the grace period runs")
	require.Equal(t, v1alpha1.ZoneAvailable, state(t, zs, "c", lost.Add(time.Minute)))
	next, ok := zs.NextDeadline(lost)
	require.True(t, ok)
	require.True(t, next.Wakes)
	require.Equal(t, lost.Truncate(time.Second).Add(time.Second+2*time.Minute), next.At.UTC(), "never early: seconds are rounded up")
	require.Equal(t, cCloses, zs.View(next.At.Add(-time.Nanosecond), small))
	require.Equal(t, cOut, zs.View(next.At, small))
	require.Equal(t, v1alpha1.ZoneClosed, state(t, zs, "c", next.At))
	_, ok = zs.NextDeadline(next.At)
	require.False(t, ok)

	back := at(time.Hour)
	require.True(t, news(zs, back, zonesWith(cOne)))
	require.Equal(t, cBack, zs.View(back, small))
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", back))
	next, ok = zs.NextDeadline(back)
	require.True(t, ok)
	require.False(t, next.Wakes, "the end of a recovery helps no pod")
	require.False(t, zs.CaughtUp(back, map[string]int64{"a": 4, "b": 5, "c": 3}))
	require.Nil(t, zs.View(next.At, small), "the window is over")

	require.True(t, zs.CaughtUp(back.Add(time.Minute), map[string]int64{"a": 4, "b": 5, "c": 4}), "caught up")
	require.Nil(t, zs.View(back.Add(time.Minute), small))
	require.False(t, zs.Recovering())
}

func TestShortClosureIsNone(t *testing.T) {
	zs := watched(t)
	zs.ObserveNodes(at(time.Minute), zonesWith(cClosed))
	require.True(t, news(zs, at(2*time.Minute), zonesWith(cOpen)))
	require.Nil(t, zs.View(at(2*time.Minute), small))
	zs.ObserveNodes(at(3*time.Minute), zonesWith(cClosed))
	require.Equal(t, cCloses, zs.View(at(3*time.Minute+90*time.Second), small), "the grace period starts over")
}

func TestImmediateRecovery(t *testing.T) {
	zs := watched(t, failover(time.Minute, time.Minute, 0))
	zs.ObserveNodes(at(0), zonesWith(cClosed))
	require.Equal(t, cOut, zs.View(at(2*time.Minute), small))
	zs.ObserveNodes(at(2*time.Minute), zonesWith(cOpen))
	require.Nil(t, zs.View(at(2*time.Minute), small))
	zs.Refused(at(3*time.Minute), "c", small, true)
	zs.Refused(at(5*time.Minute), "c", small, true)
	require.Equal(t, cOut, zs.View(at(5*time.Minute), small))
	zs.Took(at(5*time.Minute), "c", small)
	require.Nil(t, zs.View(at(5*time.Minute), small))
}

// TestSinceWhenAZoneIsClosed: nodes tell since when, as far as they know, and what is remembered comes first.
func TestSinceWhenAZoneIsClosed(t *testing.T) {
	dead := cClosed
	dead.ClosedSince = at(-time.Hour)
	zs := policy.NewZones(compile(t), nil)
	zs.ObserveNodes(at(0), zonesWith(dead))
	require.Equal(t, cOut, zs.View(at(0), small), "a scheduler that starts in an outage begins no new grace period")

	future := cClosed
	future.ClosedSince = at(time.Hour)
	zs = policy.NewZones(compile(t), nil)
	zs.ObserveNodes(at(0), zonesWith(future))
	require.Equal(t, cCloses, zs.View(at(time.Minute), small))
	require.Equal(t, cOut, zs.View(at(3*time.Minute), small), "a clock that is ahead does not stretch the grace period")

	// From NotReady to Unknown the nodes' condition changes its time.
	zs = watched(t)
	zs.ObserveNodes(at(time.Minute), zonesWith(cClosed))
	later := cClosed
	later.ClosedSince = at(2 * time.Minute)
	zs.ObserveNodes(at(2*time.Minute), zonesWith(later))
	require.Equal(t, cOut, zs.View(at(3*time.Minute+time.Second), small))

	// One node has been NotReady for an hour, and the other, which was open, is deleted.
	zs = policy.NewZones(compile(t), nil)
	zs.ObserveNodes(at(0), zonesWith(cOne))
	rest := policy.ZoneNodes{Nodes: 1, ClosedSince: at(-time.Hour)}
	zs.ObserveNodes(at(time.Minute), zonesWith(rest))
	require.Equal(t, cCloses, zs.View(at(2*time.Minute), small))
}

func TestZoneLosesItsLastNode(t *testing.T) {
	declared := withZones(weighted("c", 1), weighted("never", 1))
	for name, changes := range map[string][]change{"declared": {declared}, "not declared": nil} {
		t.Run(name, func(t *testing.T) {
			zs := watched(t, changes...)
			require.True(t, news(zs, at(time.Minute), readyZones("a", "b")))
			require.Equal(t, cCloses, zs.View(at(2*time.Minute), small))
			require.Equal(t, cOut, zs.View(at(4*time.Minute), small))
			zs.ObserveNodes(at(5*time.Minute), zonesWith(cClosed))
			require.Equal(t, cOut, zs.View(at(5*time.Minute), small), "a node that is not ready yet brings nothing back")
			zs.ObserveNodes(at(6*time.Minute), zonesWith(cOpen))
			require.Equal(t, cBack, zs.View(at(6*time.Minute), small))
		})
	}
	zs := policy.NewZones(compile(t, declared), nil)
	zs.ObserveNodes(at(0), readyZones("a", "b"))
	require.Nil(t, zs.View(at(time.Hour), small), "zones that never had a node are not closed")
	require.Equal(t, v1alpha1.ZoneEmpty, state(t, zs, "never", at(time.Hour)))

	gone := watched(t)
	gone.ObserveNodes(at(time.Minute), readyZones("a", "b"))
	require.Len(t, gone.Export(at(time.Hour)), 3)
	require.True(t, gone.Expire(at(26*time.Hour)))
	require.Len(t, gone.Export(at(26*time.Hour)), 2, "a zone that left the cluster is forgotten in the end")

	// After a restart the nodes of a zone that has been cordoned for days are not known at first.
	cordoned := watched(t)
	cordoned.ObserveNodes(at(0), zonesWith(cClosed))
	restarted := policy.NewZones(compile(t), throughTheAPI(t, cordoned.Export(at(time.Hour))))
	restarted.ObserveNodes(at(50*time.Hour), zonesWith(cClosed))
	require.Equal(t, cOut, restarted.View(at(50*time.Hour), small))
}

func TestZoneIsFull(t *testing.T) {
	for name, resources := range map[string]bool{"for want of resources": true, "for other reasons": false} {
		t.Run(name, func(t *testing.T) {
			zs := watched(t)
			refuse := func(d time.Duration, r policy.Requests) (changed, full bool) {
				return zs.Refused(at(d), "c", r, resources)
			}
			changed, _ := refuse(0, big)
			require.True(t, changed)
			changed, _ = refuse(10*time.Second, big)
			require.False(t, changed, "nothing is written for every attempt")
			next, ok := zs.NextDeadline(at(time.Minute))
			require.True(t, ok)
			require.True(t, next.Wakes)
			require.Nil(t, zs.View(next.At.Add(-time.Second), big))

			require.Nil(t, zs.View(next.At, big), "one more refusal is to show it")
			require.Equal(t, resources, len(zs.Lacking(next.At, big)) == 1)
			require.Empty(t, zs.Lacking(next.At, small))
			_, full := zs.Refused(next.At, "c", big, resources)
			require.True(t, full)
			require.Equal(t, cOut, zs.View(next.At, big))
			require.Equal(t, cOut, zs.View(next.At, asks(5000, 2<<30)), "larger pods find no room either")
			require.Nil(t, zs.View(next.At, small), "smaller ones may")
			require.Nil(t, zs.View(next.At, asks(8000, 1<<20)), "who asks for less of anything may")
			require.Equal(t, v1alpha1.ZoneFull, state(t, zs, "c", next.At))

			require.False(t, zs.Took(next.At, "c", small), "that a smaller one fits proves nothing")
			require.Equal(t, cOut, zs.View(next.At, big))
			require.True(t, zs.Took(next.At, "c", big))
			require.Equal(t, cBack, zs.View(next.At, big))
			require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", next.At))
			require.False(t, zs.Refusing())
		})
	}
}

// TestOneRefusalProvesLittle: a refusal of a moment makes no zone full later, and none that recovers.
func TestOneRefusalProvesLittle(t *testing.T) {
	zs := watched(t)
	zs.Refused(at(0), "c", small, true)
	require.Nil(t, zs.View(at(10*time.Minute), small))
	zs.Took(at(10*time.Minute), "c", small)
	require.Nil(t, zs.View(at(10*time.Minute), small))
	zs.Refused(at(11*time.Minute), "c", small, false)
	require.Nil(t, zs.View(at(20*time.Minute), small))
	require.True(t, zs.Expire(at(27*time.Minute)), "and is forgotten")
	require.False(t, zs.Refusing())
	require.Nil(t, zs.View(at(27*time.Minute), small))

	// What was full and is not asked for any more comes back like any other zone.
	zs.Refused(at(30*time.Minute), "c", small, true)
	zs.Refused(at(36*time.Minute), "c", small, true)
	require.Equal(t, cOut, zs.View(at(50*time.Minute), small))
	require.Equal(t, cBack, zs.View(at(52*time.Minute), small), "also before that is cleaned up")
	require.True(t, zs.Expire(at(52*time.Minute)))
	require.Equal(t, cBack, zs.View(at(52*time.Minute), small))
	require.Nil(t, zs.View(at(62*time.Minute), small))
}

func TestRefusalsThatDoNotAddUp(t *testing.T) {
	zs := watched(t)
	zs.Refused(at(0), "c", small, true)
	require.True(t, zs.Took(at(4*time.Minute), "c", small))
	zs.Refused(at(4*time.Minute), "c", small, true)
	require.Nil(t, zs.View(at(8*time.Minute), small), "a pod fitted in between")

	slow := watched(t, failover(time.Minute, time.Hour, time.Hour))
	slow.Refused(at(0), "c", small, true)
	slow.Refused(at(30*time.Minute), "c", small, true)
	require.Nil(t, slow.View(at(61*time.Minute), small), "half an hour without a refusal: it starts over")
	for d := 30 * time.Minute; d <= 91*time.Minute; d += 5 * time.Minute {
		slow.Refused(at(d), "c", small, true)
	}
	require.Equal(t, cOut, slow.View(at(91*time.Minute), small))

	// What the nodes before an outage refused says nothing about those that came after it.
	outage := watched(t)
	outage.Refused(at(0), "c", small, true)
	outage.Refused(at(6*time.Minute), "c", small, true)
	outage.ObserveNodes(at(6*time.Minute), readyZones("a", "b"))
	outage.ObserveNodes(at(9*time.Minute), zonesWith(cOpen))
	require.Equal(t, cBack, outage.View(at(9*time.Minute), small))
	require.False(t, outage.Refusing())
}

// TestSizesKeepEachOther: that small pods come and go in a zone does not keep it from being full for large ones.
func TestSizesKeepEachOther(t *testing.T) {
	zs := watched(t)
	for d := time.Duration(0); d < 6*time.Minute; d += 20 * time.Second {
		zs.Refused(at(d), "c", big, true)
		zs.Refused(at(d), "c", small, true)
		zs.Took(at(d+10*time.Second), "c", small)
	}
	require.Equal(t, cOut, zs.View(at(6*time.Minute), big))
	require.Nil(t, zs.View(at(6*time.Minute), small))
}

// TestManySizes: however many sizes wait, and however slowly they take turns, each finds the zone full in the end.
func TestManySizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zs := watched(t)
		sizes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Requests {
			return asks(rapid.Int64Range(1, 40).Draw(t, "cpu")*100, rapid.Int64Range(1, 40).Draw(t, "memory")<<20)
		}), 24, 60).Draw(t, "sizes")
		resources := rapid.Bool().Draw(t, "resources")
		now := at(0)
		turn := func(pause time.Duration) {
			for _, r := range sizes {
				zs.Refused(now, "c", r, resources)
				now = now.Add(pause)
			}
		}
		// The framework tries each pod again within five minutes.
		pause := time.Duration(rapid.Int64Range(0, int64(5*time.Minute)/int64(len(sizes))).Draw(t, "pause"))
		turn(pause)
		for start := now; now.Before(start.Add(6 * time.Minute)); now = now.Add(time.Minute) {
			turn(pause)
		}
		for _, r := range sizes {
			require.Equal(t, cOut, zs.View(now, r))
		}
		require.LessOrEqual(t, len(zs.Export(now)[2].Full), 8, "as many as the CustomResourceDefinition admits")
	})
}

func TestRespec(t *testing.T) {
	zs := policy.NewZones(compile(t, withZones(weighted("a", 1), weighted("never", 1))), nil)
	zs.ObserveNodes(at(0), zonesWith(cClosed))
	require.Equal(t, cCloses, zs.View(at(time.Minute), small))
	zs.Respec(compile(t, withZones(weighted("new", 1)), failover(30*time.Second, time.Minute, time.Minute)))
	require.Equal(t, cOut, zs.View(at(time.Minute), small), "a shorter grace period holds at once")
	require.Equal(t, v1alpha1.ZoneEmpty, state(t, zs, "new", at(time.Minute)))
	require.Len(t, zs.Export(at(time.Minute)), 4, "a, b, c, new")
}

// throughTheAPI is what a status looks like after it was written and read.
func throughTheAPI(t require.TestingT, zones []v1alpha1.ZoneStatus) []v1alpha1.ZoneStatus {
	data, err := json.Marshal(zones)
	require.NoError(t, err)
	var read []v1alpha1.ZoneStatus
	require.NoError(t, json.Unmarshal(data, &read))
	return read
}

// TestRestartChangesNothing: a scheduler that restarts at any moment, from the status that the API server holds and the nodes as
// they are, decides as one that never stopped: views, deadlines, states, and what it writes next.
func TestRestartChangesNothing(t *testing.T) {
	sizes := []policy.Requests{small, big, asks(100, 1<<30), asks(4000, 1<<20), asks(200, 2<<20)}
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var declared []v1alpha1.ZoneSpreadZone
		for _, name := range []string{"a", "c", "never"} {
			if rapid.Bool().Draw(t, "declared "+name) {
				declared = append(declared, weighted(name, rapid.Int32Range(0, 3).Draw(t, "weight "+name)))
			}
		}
		grace := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(1, 120).Draw(t, name)) * 7 * time.Second
		}
		window := time.Duration(0)
		if rapid.Bool().Draw(t, "gradual") {
			window = grace("recoveryWindow")
		}
		p := compile(t, withZones(declared...), failover(grace("downAfter"), grace("fullAfter"), window))
		lasting, restarted := policy.NewZones(p, nil), policy.NewZones(p, nil)
		now := noon
		nodes := map[string]policy.ZoneNodes{}
		// Both sides see the same, and must agree on whether it is news.
		see := func(f func(*policy.Zones) bool) {
			require.Equal(t, f(lasting), f(restarted))
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(8*time.Minute)).Draw(t, "passes")))
			name, r := rapid.SampledFrom(names).Draw(t, "zone"), rapid.SampledFrom(sizes).Draw(t, "size")
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				clear(nodes)
				for _, name := range names {
					n := rapid.IntRange(0, 2).Draw(t, "nodes "+name)
					nodes[name] = policy.ZoneNodes{Nodes: n, Open: rapid.IntRange(0, n).Draw(t, "open "+name)}
				}
				see(func(zs *policy.Zones) bool { return news(zs, now, nodes) })
			case 2, 3:
				resources := rapid.Bool().Draw(t, "resources")
				see(func(zs *policy.Zones) bool {
					changed, full := zs.Refused(now, name, r, resources)
					return changed || full
				})
			case 4:
				see(func(zs *policy.Zones) bool { return zs.Took(now, name, r) })
			case 5:
				pods := map[string]int64{}
				for _, name := range names {
					pods[name] = rapid.Int64Range(0, 3).Draw(t, "pods "+name)
				}
				see(func(zs *policy.Zones) bool { return zs.CaughtUp(now, pods) })
			}
			if rapid.Bool().Draw(t, "restart") {
				restarted = policy.NewZones(p, throughTheAPI(t, lasting.Export(now)))
				see(func(zs *policy.Zones) bool { return news(zs, now, nodes) })
			}
			for _, later := range []time.Duration{0, time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour} {
				then := now.Add(later)
				for _, r := range sizes {
					require.Equal(t, lasting.View(then, r), restarted.View(then, r))
				}
				d1, ok1 := lasting.NextDeadline(then)
				d2, ok2 := restarted.NextDeadline(then)
				require.Equal(t, ok1, ok2)
				require.True(t, d1.At.Equal(d2.At) && d1.Wakes == d2.Wakes, "%v %v", d1, d2)
				require.Empty(t, cmp.Diff(lasting.Export(then), restarted.Export(then)))
			}
		}
	})
}

// TestDeadlinesAreComplete: between two observations answers change at the announced deadlines and at no other time, so that a
// timer on NextDeadline misses nothing.
func TestDeadlinesAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zs := watched(t)
		now := noon
		for range rapid.IntRange(1, 6).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				zs.ObserveNodes(now, zonesWith(cClosed))
			case 1:
				zs.ObserveNodes(now, zonesWith(cOpen))
			case 2:
				zs.Refused(now, "b", small, rapid.Bool().Draw(t, "resources"))
			case 3:
				zs.Took(now, "b", small)
			}
		}
		for then := now; then.Before(now.Add(40 * time.Minute)); {
			next, ok := zs.NextDeadline(then)
			if !ok {
				next.At = now.Add(40 * time.Minute)
			}
			require.True(t, next.At.After(then))
			before := zs.View(then, small)
			require.Equal(t, before, zs.View(next.At.Add(-time.Nanosecond), small))
			if ok {
				for zone, part := range zs.View(next.At, small) {
					if part == policy.Unavailable && before[zone] != policy.Unavailable {
						require.True(t, next.Wakes, "zone %s became unavailable", zone)
					}
				}
			}
			then = next.At
		}
	})
}
