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
	require.Zero(t, zs.NextWake(at(time.Minute), web))

	lost := at(2 * time.Minute)
	require.True(t, news(zs, lost, zonesWith(cClosed)))
	require.False(t, news(zs, lost.Add(time.Second), zonesWith(cClosed)))
	require.Equal(t, cCloses, zs.For(lost.Add(time.Minute), web), "the grace period runs")
	require.Equal(t, v1alpha1.ZoneAvailable, state(t, zs, "c", lost.Add(time.Minute)))
	next := zs.NextWake(lost, web)
	require.Equal(t, lost.Truncate(time.Second).Add(time.Second+2*time.Minute), next.UTC(),
		"never early: seconds are rounded up")
	require.Equal(t, cCloses, zs.For(next.Add(-time.Nanosecond), web))
	require.Equal(t, cOut, zs.For(next, web))
	require.Equal(t, v1alpha1.ZoneClosed, state(t, zs, "c", next))
	require.Zero(t, zs.NextWake(next, web))

	back := at(time.Hour)
	require.True(t, news(zs, back, zonesWith(cOne)))
	require.Equal(t, cBack, zs.For(back, web))
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", back))
	require.Zero(t, zs.NextWake(back, web), "the end of a recovery helps no pod")
	require.Equal(t, cBack, zs.For(back.Add(10*time.Minute), web))
	require.Nil(t, zs.For(back.Add(10*time.Minute+time.Second), web), "the window is over")
	require.True(t, zs.Changing())
	require.True(t, zs.Expire(back.Add(11*time.Minute)))
	require.False(t, zs.Changing())
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
	zs.RecordBind(at(5*time.Minute), "c", web)
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
		opened  policy.ZoneAvailability
	}{
		"declared: it has held the others back, and goes on to": {[]change{withZones(weighted("c", 1))}, cCloses, 3, nil},
		"not declared: it is new to the others":                 {nil, policy.ZoneAvailability{"c": policy.Absent}, 2, cBack},
	} {
		t.Run(name, func(t *testing.T) {
			zs := policy.NewZones(compile(t, test.changes...), nil)
			zs.ObserveNodes(at(0), zonesWith(cClosed))
			require.Equal(t, test.want, zs.For(at(time.Hour), web))
			require.Len(t, zs.Export(at(time.Hour)), test.listed)
			require.Zero(t, zs.NextWake(at(0), web))
			zs.ObserveNodes(at(time.Hour), zonesWith(cOpen))
			require.Equal(t, test.opened, zs.For(at(time.Hour), web))
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
	gone.ObserveNodes(at(2*time.Minute), zonesWith(cOpen))
	require.Equal(t, cBack, gone.For(at(2*time.Minute), web), "it is back, as if the Node objects had stayed")

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
	next := zs.NextWake(at(time.Minute), web)
	require.Zero(t, zs.NextWake(at(time.Minute), api), "the run of one workload wakes no other")
	require.Nil(t, zs.For(next, web), "one more refusal is to show it")
	_, full := zs.RecordRefusal(next, "c", web)
	require.True(t, full)
	require.Equal(t, cFull, zs.For(next, web))
	require.Nil(t, zs.For(next, api), "what is refused to one workload says nothing about another")
	require.Equal(t, v1alpha1.ZoneFull, state(t, zs, "c", next))
	require.False(t, zs.Expire(next.Add(time.Hour)))
	require.Equal(t, cFull, zs.For(next.Add(time.Hour), web), "a full zone has no room because no pod asks for it")

	require.False(t, zs.RecordBind(next, "c", api), "that a pod of another workload is bound says nothing")
	require.Equal(t, cFull, zs.For(next, web))
	require.True(t, zs.RecordBind(next, "c", web))
	require.Equal(t, cBack, zs.For(next, web))
	require.Nil(t, zs.For(next, api), "it never was full for the other workload")
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, zs, "c", next))
	changed, _ = zs.RecordRefusal(next, "c", web)
	require.False(t, changed, "a zone that recovers holds no pod back, and begins no run")
	require.Nil(t, zs.For(next.Add(10*time.Minute+time.Second), web))
	changed, _ = zs.RecordRefusal(next.Add(11*time.Minute), "c", web)
	require.True(t, changed)
}

// TestRunsEndWithTheirWorkload: what is kept of a workload goes with its pods, but not what came after they were
// counted.
func TestRunsEndWithTheirWorkload(t *testing.T) {
	zs := watched(t)
	zs.RecordRefusal(at(0), "c", web)
	zs.RecordRefusal(at(6*time.Minute), "c", web)
	zs.RecordRefusal(at(7*time.Minute), "c", api)
	none := func(types.UID) bool { return false }
	require.False(t, zs.ForgetRuns(at(8*time.Minute), func(types.UID) bool { return true }))
	require.True(t, zs.ForgetRuns(at(7*time.Minute), none))
	require.Nil(t, zs.For(at(8*time.Minute), web))
	require.NotZero(t, zs.NextWake(at(8*time.Minute), api))
	require.True(t, zs.ForgetRuns(at(8*time.Minute), none))
	require.False(t, zs.Changing())
}

// TestOneRefusalProvesLittle: a refusal of a moment makes no zone full later, and none that recovers.
func TestOneRefusalProvesLittle(t *testing.T) {
	zs := watched(t)
	zs.RecordRefusal(at(0), "c", web)
	require.Nil(t, zs.For(at(10*time.Minute), web))
	zs.RecordBind(at(10*time.Minute), "c", web)
	require.Nil(t, zs.For(at(10*time.Minute), web))
	zs.RecordRefusal(at(11*time.Minute), "c", web)
	require.Nil(t, zs.For(at(20*time.Minute), web))
	require.True(t, zs.Expire(at(27*time.Minute)), "and is forgotten")
	require.Nil(t, zs.For(at(27*time.Minute), web))
}

func TestRefusalsThatDoNotAddUp(t *testing.T) {
	zs := watched(t)
	zs.RecordRefusal(at(0), "c", web)
	require.True(t, zs.RecordBind(at(4*time.Minute), "c", web))
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
}

// TestManyRuns: the status has as many runs as the CustomResourceDefinition admits, those first that have not ended,
// the oldest first.
func TestManyRuns(t *testing.T) {
	zs := watched(t)
	for i := range 100 {
		zs.RecordRefusal(at(time.Duration(i)*time.Second), []string{"a", "b", "c"}[i%3], types.UID(fmt.Sprint(i)))
	}
	for _, ended := range []int{0, 3} { // in zone a
		w := types.UID(fmt.Sprint(ended))
		zs.RecordRefusal(at(6*time.Minute), "a", w)
		require.True(t, zs.RecordBind(at(7*time.Minute), "a", w))
	}
	last := map[string]bool{}
	n := 0
	for _, z := range zs.Export(at(8 * time.Minute)) {
		for _, r := range z.Full {
			last[string(r.Workload)] = true
			n++
		}
	}
	require.Equal(t, 64, n)
	require.True(t, last["65"])
	require.False(t, last["66"])
	require.False(t, last["0"], "a run that has ended pushes no other out")
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
				see(func(zs *policy.Zones) bool { return zs.RecordBind(now, name, r) })
			case 5:
				has := rapid.Bool().Draw(t, "has pods")
				see(func(zs *policy.Zones) bool { return zs.ForgetRuns(now, func(types.UID) bool { return has }) })
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
				for _, r := range workloads {
					require.Equal(t, lasting.NextWake(then, r), restarted.NextWake(then, r))
				}
				require.Equal(t, lasting.Changing(), restarted.Changing())
				require.Empty(t, cmp.Diff(lasting.Export(then), restarted.Export(then)))
			}
		}
	})
}

func unavailable(a policy.Availability) bool { return a == policy.Closed || a == policy.Full }

// TestEveryWaiterIsWoken: between two observations a zone ceases to hold the pods of a workload back at the announced
// times and at no other, so that a pod that is woken then misses nothing.
func TestEveryWaiterIsWoken(t *testing.T) {
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
				zs.RecordBind(now, "b", web)
			}
		}
		end := now.Add(40 * time.Minute)
		for then := now; then.Before(end); {
			next := zs.NextWake(then, web)
			if next.IsZero() {
				next = end
			}
			require.True(t, next.After(then))
			before := zs.For(then, web)
			for zone, availability := range zs.For(next.Add(-time.Nanosecond), web) {
				require.True(t, !unavailable(availability) || unavailable(before[zone]), "zone %s became unavailable unannounced", zone)
			}
			then = next
		}
	})
}
