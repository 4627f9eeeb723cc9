package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

func failover(down, full, window time.Duration) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.UnavailableZones = v1alpha1.UnavailableZones{
			DownAfter: &metav1.Duration{Duration: down},
			FullAfter: &metav1.Duration{Duration: full},
		}
		if window > 0 {
			s.UnavailableZones.RecoveryWindow = &metav1.Duration{Duration: window}
		} else {
			s.UnavailableZones.Recovery = v1alpha1.RecoveryImmediate
		}
	}
}

// Two workloads of one policy.
const web, api = types.UID("web"), types.UID("api")

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

	cCloses, cOut, cBack = policy.ZoneAvailability{"c": policy.Closing}, policy.ZoneAvailability{"c": policy.Closed}, policy.ZoneAvailability{"c": policy.Recovering}
	cFull                = policy.ZoneAvailability{"c": policy.Full}
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
	require.Nil(t, zs.For(at(time.Minute), web))
	_, ok := zs.NextDeadline(at(time.Minute))
	require.False(t, ok)

	lost := at(2 * time.Minute)
	require.True(t, news(zs, lost, zonesWith(cClosed)))
	require.False(t, news(zs, lost.Add(time.Second), zonesWith(cClosed)))
	require.Equal(t, cCloses, zs.For(lost.Add(time.Minute), web), "the grace period runs")
	require.Equal(t, v1alpha1.ZoneAvailable, state(t, zs, "c", lost.Add(time.Minute)))
	next, ok := zs.NextDeadline(lost)
	require.True(t, ok)
	require.True(t, next.Wakes)
	require.Equal(t, lost.Truncate(time.Second).Add(time.Second+2*time.Minute), next.At.UTC(),
		"never early: seconds are rounded up")
	require.Equal(t, cCloses, zs.For(next.At.Add(-time.Nanosecond), web))
	require.Equal(t, cOut, zs.For(next.At, web))
	require.Equal(t, v1alpha1.ZoneClosed, state(t, zs, "c", next.At))
	_, ok = zs.NextDeadline(next.At)
	require.False(t, ok)

	back := at(time.Hour)
	require.True(t, news(zs, back, zonesWith(cOne)))
	require.Equal(t, cBack, zs.For(back, web))
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", back))
	next, ok = zs.NextDeadline(back)
	require.True(t, ok)
	require.False(t, next.Wakes, "the end of a recovery helps no pod")
	require.False(t, zs.CaughtUp(back, map[string]int64{"a": 4, "b": 5, "c": 3}))
	require.Nil(t, zs.For(next.At, web), "the window is over")

	require.True(t, zs.CaughtUp(back.Add(time.Minute), map[string]int64{"a": 4, "b": 5, "c": 4}), "caught up")
	require.Nil(t, zs.For(back.Add(time.Minute), web))
	require.False(t, zs.Recovering())
}

func TestShortClosureIsNone(t *testing.T) {
	zs := watched(t)
	zs.ObserveNodes(at(time.Minute), zonesWith(cClosed))
	require.True(t, news(zs, at(2*time.Minute), zonesWith(cOpen)))
	require.Nil(t, zs.For(at(2*time.Minute), web))
	zs.ObserveNodes(at(3*time.Minute), zonesWith(cClosed))
	require.Equal(t, cCloses, zs.For(at(3*time.Minute+90*time.Second), web), "the grace period starts over")
}

func TestImmediateRecovery(t *testing.T) {
	zs := watched(t, failover(time.Minute, time.Minute, 0))
	zs.ObserveNodes(at(0), zonesWith(cClosed))
	require.Equal(t, cOut, zs.For(at(2*time.Minute), web))
	zs.ObserveNodes(at(2*time.Minute), zonesWith(cOpen))
	require.Nil(t, zs.For(at(2*time.Minute), web))
	zs.RecordRefusal(at(3*time.Minute), "c", web)
	zs.RecordRefusal(at(5*time.Minute), "c", web)
	require.Equal(t, cFull, zs.For(at(5*time.Minute), web))
	zs.RecordFit(at(5*time.Minute), "c", web)
	require.Nil(t, zs.For(at(5*time.Minute), web))
}

// TestSinceWhenAZoneIsClosed: nodes tell since when, as far as they know, and what is remembered comes first.
func TestSinceWhenAZoneIsClosed(t *testing.T) {
	dead := cClosed
	dead.ClosedSince = at(-time.Hour)
	zs := watched(t)
	zs.ObserveNodes(at(0), zonesWith(dead))
	require.Equal(t, cOut, zs.For(at(0), web), "a scheduler that starts in an outage begins no new grace period")

	future := cClosed
	future.ClosedSince = at(time.Hour)
	zs = watched(t)
	zs.ObserveNodes(at(0), zonesWith(future))
	require.Equal(t, cCloses, zs.For(at(time.Minute), web))
	require.Equal(t, cOut, zs.For(at(3*time.Minute), web), "a clock that is ahead does not stretch the grace period")

	// From NotReady to Unknown the nodes' condition changes its time.
	zs = watched(t)
	zs.ObserveNodes(at(time.Minute), zonesWith(cClosed))
	later := cClosed
	later.ClosedSince = at(2 * time.Minute)
	zs.ObserveNodes(at(2*time.Minute), zonesWith(later))
	require.Equal(t, cOut, zs.For(at(3*time.Minute+time.Second), web))

	// One node has been NotReady for an hour, and the other, which was open, is deleted.
	zs = policy.NewZones(compile(t), nil)
	zs.ObserveNodes(at(0), zonesWith(cOne))
	rest := policy.ZoneNodes{Nodes: 1, ClosedSince: at(-time.Hour)}
	zs.ObserveNodes(at(time.Minute), zonesWith(rest))
	require.Equal(t, cCloses, zs.For(at(2*time.Minute), web))
}

// TestZoneThatNeverWasOpen: a zone that nobody has seen open cannot close. It holds others back only if it is declared.
func TestZoneThatNeverWasOpen(t *testing.T) {
	for name, test := range map[string]struct {
		changes []change
		want    policy.ZoneAvailability
		listed  int
	}{
		"declared":     {[]change{withZones(weighted("c", 1))}, cCloses, 3},
		"not declared": {nil, cOut, 2},
	} {
		t.Run(name, func(t *testing.T) {
			zs := policy.NewZones(compile(t, test.changes...), nil)
			zs.ObserveNodes(at(0), zonesWith(cClosed))
			require.Equal(t, test.want, zs.For(at(time.Hour), web))
			require.Len(t, zs.Export(at(time.Hour)), test.listed)
			_, deadline := zs.NextDeadline(at(0))
			require.False(t, deadline)
			zs.ObserveNodes(at(time.Hour), zonesWith(cOpen))
			require.Nil(t, zs.For(at(time.Hour), web), "it has nothing to recover from")
		})
	}
}

func TestZoneLosesItsLastNode(t *testing.T) {
	declared := withZones(weighted("c", 1), weighted("never", 1))
	lost := watched(t, declared)
	require.True(t, news(lost, at(time.Minute), readyZones("a", "b")))
	require.Equal(t, cCloses, lost.For(at(2*time.Minute), web))
	require.Equal(t, cOut, lost.For(at(4*time.Minute), web))
	lost.ObserveNodes(at(5*time.Minute), zonesWith(cClosed))
	require.Equal(t, cOut, lost.For(at(5*time.Minute), web), "a node that is not ready yet brings nothing back")
	lost.ObserveNodes(at(6*time.Minute), zonesWith(cOpen))
	require.Equal(t, cBack, lost.For(at(6*time.Minute), web))

	gone := watched(t)
	require.True(t, news(gone, at(time.Minute), readyZones("a", "b")))
	require.Nil(t, gone.For(at(time.Minute), web))
	require.Len(t, gone.Export(at(time.Minute)), 2,
		"a zone that is scaled to zero does not exist, unless it is declared")

	zs := policy.NewZones(compile(t, declared), nil)
	zs.ObserveNodes(at(0), readyZones("a", "b"))
	require.Nil(t, zs.For(at(time.Hour), web), "zones that never had a node are not closed")
	require.Equal(t, v1alpha1.ZoneEmpty, state(t, zs, "never", at(time.Hour)))

	// After a restart the nodes of a zone that has been cordoned for days are not known at first.
	cordoned := watched(t)
	cordoned.ObserveNodes(at(0), zonesWith(cClosed))
	restarted := policy.NewZones(compile(t), throughTheAPI(t, cordoned.Export(at(time.Hour))))
	restarted.ObserveNodes(at(50*time.Hour), zonesWith(cClosed))
	require.Equal(t, cOut, restarted.For(at(50*time.Hour), web))
}

func TestZoneIsFull(t *testing.T) {
	zs := watched(t)
	changed, _ := zs.RecordRefusal(at(0), "c", web)
	require.True(t, changed)
	changed, _ = zs.RecordRefusal(at(10*time.Second), "c", web)
	require.False(t, changed, "nothing is written for every attempt")
	next, ok := zs.NextDeadline(at(time.Minute))
	require.True(t, ok)
	require.True(t, next.Wakes)
	require.Nil(t, zs.For(next.At, web), "one more refusal is to show it")
	_, full := zs.RecordRefusal(next.At, "c", web)
	require.True(t, full)
	require.Equal(t, cFull, zs.For(next.At, web))
	require.Nil(t, zs.For(next.At, api), "what is refused to one workload says nothing about another")
	require.Equal(t, v1alpha1.ZoneFull, state(t, zs, "c", next.At))

	require.False(t, zs.RecordFit(next.At, "c", api), "that a pod of another workload fits says nothing")
	require.Equal(t, cFull, zs.For(next.At, web))
	require.True(t, zs.RecordFit(next.At, "c", web))
	require.Equal(t, cBack, zs.For(next.At, web))
	require.Nil(t, zs.For(next.At, api), "it never was full for the other workload")
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", next.At))
	require.False(t, zs.HasRun(web))
	require.True(t, zs.CaughtUp(next.At, map[string]int64{"a": 1, "b": 1, "c": 1}))
	require.Nil(t, zs.For(next.At, web))
}

// TestOneRefusalProvesLittle: a refusal of a moment makes no zone full later, and none that recovers.
func TestOneRefusalProvesLittle(t *testing.T) {
	zs := watched(t)
	zs.RecordRefusal(at(0), "c", web)
	require.Nil(t, zs.For(at(10*time.Minute), web))
	zs.RecordFit(at(10*time.Minute), "c", web)
	require.Nil(t, zs.For(at(10*time.Minute), web))
	zs.RecordRefusal(at(11*time.Minute), "c", web)
	require.Nil(t, zs.For(at(20*time.Minute), web))
	require.True(t, zs.Expire(at(27*time.Minute)), "and is forgotten")
	require.False(t, zs.HasRun(web))
	require.Nil(t, zs.For(at(27*time.Minute), web))

	// What was full and is not asked for any more comes back like any other zone.
	zs.RecordRefusal(at(30*time.Minute), "c", web)
	zs.RecordRefusal(at(36*time.Minute), "c", web)
	require.Equal(t, cFull, zs.For(at(50*time.Minute), web))
	require.Equal(t, cBack, zs.For(at(52*time.Minute), web), "also before that is cleaned up")
	require.True(t, zs.Expire(at(52*time.Minute)))
	require.Equal(t, cBack, zs.For(at(52*time.Minute), web))
	require.Nil(t, zs.For(at(62*time.Minute), web))
}

func TestRefusalsThatDoNotAddUp(t *testing.T) {
	zs := watched(t)
	zs.RecordRefusal(at(0), "c", web)
	require.True(t, zs.RecordFit(at(4*time.Minute), "c", web))
	zs.RecordRefusal(at(4*time.Minute), "c", web)
	require.Nil(t, zs.For(at(8*time.Minute), web), "a pod fitted in between")

	slow := watched(t, failover(time.Minute, time.Hour, time.Hour))
	slow.RecordRefusal(at(0), "c", web)
	slow.RecordRefusal(at(30*time.Minute), "c", web)
	require.Nil(t, slow.For(at(61*time.Minute), web), "half an hour without a refusal: it starts over")
	for d := 30 * time.Minute; d <= 91*time.Minute; d += 5 * time.Minute {
		slow.RecordRefusal(at(d), "c", web)
	}
	require.Equal(t, cFull, slow.For(at(91*time.Minute), web))

	// What the nodes before an outage refused says nothing about those that came after it.
	outage := watched(t, withZones(weighted("c", 1)))
	outage.RecordRefusal(at(0), "c", web)
	outage.RecordRefusal(at(6*time.Minute), "c", web)
	outage.ObserveNodes(at(6*time.Minute), readyZones("a", "b"))
	outage.ObserveNodes(at(9*time.Minute), zonesWith(cOpen))
	require.Equal(t, cBack, outage.For(at(9*time.Minute), web))
	require.False(t, outage.HasRun(web))
}

// TestWorkloadsKeepEachOther: that pods of one workload come and go in a zone neither ends nor begins another's run.
func TestWorkloadsKeepEachOther(t *testing.T) {
	zs := watched(t)
	for d := time.Duration(0); d < 6*time.Minute; d += 20 * time.Second {
		zs.RecordRefusal(at(d), "c", api)
		zs.RecordFit(at(d+10*time.Second), "c", web)
	}
	require.Equal(t, cFull, zs.For(at(6*time.Minute), api))
	require.Nil(t, zs.For(at(6*time.Minute), web))
}

// TestManyRuns: the status has the oldest runs, as many as the CustomResourceDefinition admits.
func TestManyRuns(t *testing.T) {
	zs := watched(t)
	for i := range 100 {
		zs.RecordRefusal(at(time.Duration(i)*time.Second), []string{"a", "b", "c"}[i%3], types.UID(fmt.Sprint(i)))
	}
	last := map[string]bool{}
	n := 0
	for _, z := range zs.Export(at(2 * time.Minute)) {
		for _, r := range z.Full {
			last[string(r.Workload)] = true
			n++
		}
	}
	require.Equal(t, 64, n)
	require.True(t, last["63"])
	require.False(t, last["64"])
}

func TestRespec(t *testing.T) {
	zs := watched(t, withZones(weighted("a", 1), weighted("never", 1)))
	zs.ObserveNodes(at(0), zonesWith(cClosed))
	require.Equal(t, cCloses, zs.For(at(time.Minute), web))
	zs.Respec(compile(t, withZones(weighted("new", 1)), failover(30*time.Second, time.Minute, time.Minute)))
	require.Equal(t, cOut, zs.For(at(time.Minute), web), "a shorter grace period holds at once")
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

// TestRestartChangesNothing: a scheduler that restarts at any moment, from the status that the API server holds and the
// nodes as they are, decides as one that never stopped: views, deadlines, states, and what it writes next.
func TestRestartChangesNothing(t *testing.T) {
	workloads := []types.UID{web, api}
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
			name, r := rapid.SampledFrom(names).Draw(t, "zone"), rapid.SampledFrom(workloads).Draw(t, "workload")
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				clear(nodes)
				for _, name := range names {
					n := rapid.IntRange(0, 2).Draw(t, "nodes "+name)
					nodes[name] = policy.ZoneNodes{Nodes: n, Open: rapid.IntRange(0, n).Draw(t, "open "+name)}
				}
				see(func(zs *policy.Zones) bool { return news(zs, now, nodes) })
			case 2, 3:
				see(func(zs *policy.Zones) bool {
					changed, full := zs.RecordRefusal(now, name, r)
					return changed || full
				})
			case 4:
				see(func(zs *policy.Zones) bool { return zs.RecordFit(now, name, r) })
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
				for _, r := range workloads {
					require.Equal(t, lasting.For(then, r), restarted.For(then, r))
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

func unavailable(a policy.Availability) bool { return a == policy.Closed || a == policy.Full }

// TestDeadlinesAreComplete: between two observations answers change at the announced deadlines and at no other time, so
// that a timer on NextDeadline misses nothing.
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
				zs.RecordRefusal(now, "b", web)
			case 3:
				zs.RecordFit(now, "b", web)
			}
		}
		for then := now; then.Before(now.Add(40 * time.Minute)); {
			next, ok := zs.NextDeadline(then)
			if !ok {
				next.At = now.Add(40 * time.Minute)
			}
			require.True(t, next.At.After(then))
			before := zs.For(then, web)
			require.Equal(t, before, zs.For(next.At.Add(-time.Nanosecond), web))
			if ok {
				for zone, availability := range zs.For(next.At, web) {
					if unavailable(availability) && !unavailable(before[zone]) {
						require.True(t, next.Wakes, "zone %s became unavailable", zone)
					}
				}
			}
			then = next.At
		}
	})
}
