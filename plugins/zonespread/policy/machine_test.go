package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// state reads a zone's state off an export.
func state(t *testing.T, m *policy.Machine, zone string, now time.Time) v1alpha1.ZoneState {
	t.Helper()
	for _, z := range m.Export(now) {
		if z.Name == zone {
			return z.State
		}
	}
	require.Fail(t, "no zone "+zone)
	return ""
}

func zonesWith(c policy.ZoneNodes) []policy.ZoneNodes { return append(readyZones("a", "b"), c) }

var (
	cReady = policy.ZoneNodes{Name: "c", Nodes: 2, Ready: 2}
	cOne   = policy.ZoneNodes{Name: "c", Nodes: 2, Ready: 1}
	cDead  = policy.ZoneNodes{Name: "c", Nodes: 2}
)

func TestZoneGoesDownAndComesBack(t *testing.T) {
	m := policy.NewMachine(compile(t, failover(2*time.Minute, 5*time.Minute, 10*time.Minute)), nil)
	require.True(t, m.ObserveNodes(at(0), zonesWith(cReady)))
	require.False(t, m.ObserveNodes(at(time.Minute), zonesWith(cOne)), "one ready node is enough")
	require.Nil(t, m.View("s", at(time.Minute)))
	_, ok := m.NextDeadline(at(time.Minute))
	require.False(t, ok)

	lost := at(2 * time.Minute)
	require.True(t, m.ObserveNodes(lost, zonesWith(cDead)))
	require.False(t, m.ObserveNodes(lost.Add(time.Second), zonesWith(cDead)))
	waiting := policy.View{"c": policy.Waiting}
	require.Equal(t, waiting, m.View("s", lost.Add(time.Minute)), "the grace period runs")
	require.Equal(t, v1alpha1.ZoneAvailable, state(t, m, "c", lost.Add(time.Minute)))
	next, ok := m.NextDeadline(lost)
	require.True(t, ok)
	require.True(t, next.Wakes)
	require.Equal(t, lost.Truncate(time.Second).Add(time.Second+2*time.Minute), next.At.UTC(), "never early: seconds are rounded up")
	require.Equal(t, waiting, m.View("s", next.At.Add(-time.Nanosecond)))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", next.At))
	require.Equal(t, v1alpha1.ZoneDown, state(t, m, "c", next.At))
	_, ok = m.NextDeadline(next.At)
	require.False(t, ok)

	back := at(time.Hour)
	require.True(t, m.ObserveNodes(back, zonesWith(cOne)))
	require.Equal(t, policy.View{"c": policy.Recovering}, m.View("s", back))
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, m, "c", back))
	next, ok = m.NextDeadline(back)
	require.True(t, ok)
	require.False(t, next.Wakes, "the end of a recovery frees nobody")
	require.False(t, m.ObserveCounts(back, map[string]int64{"a": 4, "b": 5, "c": 3}))
	require.Nil(t, m.View("s", next.At), "the window is over")

	require.True(t, m.ObserveCounts(back.Add(time.Minute), map[string]int64{"a": 4, "b": 5, "c": 4}), "caught up")
	require.Nil(t, m.View("s", back.Add(time.Minute)))
}

// What the nodes before an outage refused says nothing about those that came after it.
func TestFullnessDoesNotOutliveAnOutage(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	m.ObserveAttempt(at(0), "s", refused("c"))
	require.Equal(t, v1alpha1.ZoneFull, state(t, m, "c", at(6*time.Minute)))
	m.ObserveNodes(at(6*time.Minute), readyZones("a", "b"))
	m.ObserveNodes(at(7*time.Minute), zonesWith(cReady))
	require.Equal(t, policy.View{"c": policy.Recovering}, m.View("s", at(7*time.Minute)))
	require.False(t, m.KnowsShapes())
}

func TestShortOutageIsNoOutage(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	m.ObserveNodes(at(time.Minute), zonesWith(cDead))
	require.True(t, m.ObserveNodes(at(2*time.Minute), zonesWith(cReady)))
	require.Nil(t, m.View("s", at(2*time.Minute)))
	m.ObserveNodes(at(3*time.Minute), zonesWith(cDead))
	require.Equal(t, policy.View{"c": policy.Waiting}, m.View("s", at(3*time.Minute+90*time.Second)), "the grace period begins anew")
}

func TestImmediateRecovery(t *testing.T) {
	m := policy.NewMachine(compile(t, failover(time.Minute, time.Minute, 0)), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	m.ObserveNodes(at(0), zonesWith(cDead))
	require.NotNil(t, m.View("s", at(2*time.Minute)))
	m.ObserveNodes(at(2*time.Minute), zonesWith(cReady))
	require.Nil(t, m.View("s", at(2*time.Minute)))
	m.ObserveAttempt(at(3*time.Minute), "s", map[string]policy.Evidence{"c": policy.AllRefused})
	require.NotNil(t, m.View("s", at(5*time.Minute)))
	m.ObserveAttempt(at(5*time.Minute), "s", map[string]policy.Evidence{"c": policy.TookPod})
	require.Nil(t, m.View("s", at(5*time.Minute)))
}

// Nodes tell since when they have not been ready; a scheduler that starts in the middle of an outage does not begin
// a new grace period.
func TestOutageBeforeTheStart(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	dead := cDead
	dead.UnreadySince = at(-time.Hour)
	m.ObserveNodes(at(0), zonesWith(dead))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", at(0)))
	future := cDead
	future.UnreadySince = at(time.Hour)
	m = policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(future))
	require.Equal(t, policy.View{"c": policy.Waiting}, m.View("s", at(time.Minute)))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", at(3*time.Minute)), "a clock that is ahead does not stretch the grace period")
}

func TestLastNodeLost(t *testing.T) {
	declared := compile(t, withZones(weighted("c", 1), weighted("never", 1)))
	for name, p := range map[string]*policy.Policy{"declared": declared, "not declared": compile(t)} {
		t.Run(name, func(t *testing.T) {
			m := policy.NewMachine(p, nil)
			m.ObserveNodes(at(0), zonesWith(cReady))
			require.True(t, m.ObserveNodes(at(time.Minute), readyZones("a", "b")))
			require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", at(time.Minute)), "down at once")
			require.Equal(t, v1alpha1.ZoneDown, state(t, m, "c", at(time.Minute)))
			m.ObserveNodes(at(2*time.Minute), zonesWith(cDead))
			require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", at(2*time.Minute)), "a node that is not ready yet brings nothing back")
			m.ObserveNodes(at(3*time.Minute), zonesWith(cReady))
			require.Equal(t, policy.View{"c": policy.Recovering}, m.View("s", at(3*time.Minute)))
		})
	}
	m := policy.NewMachine(declared, nil)
	m.ObserveNodes(at(0), readyZones("a", "b"))
	require.Nil(t, m.View("s", at(time.Hour)), "zones that never had a node are not down")
	require.Equal(t, v1alpha1.ZoneEmpty, state(t, m, "never", at(time.Hour)))

	gone := policy.NewMachine(compile(t), nil)
	gone.ObserveNodes(at(0), zonesWith(cReady))
	gone.ObserveNodes(at(time.Minute), readyZones("a", "b"))
	require.Len(t, gone.Export(at(time.Hour)), 3)
	require.True(t, gone.ObserveNodes(at(26*time.Hour), readyZones("a", "b")))
	require.Len(t, gone.Export(at(26*time.Hour)), 2, "a zone that left the cluster is forgotten some day")
}

func refused(zones ...string) map[string]policy.Evidence {
	e := map[string]policy.Evidence{}
	for _, z := range zones {
		e[z] = policy.AllRefused
	}
	return e
}

func TestZoneIsFullForAShape(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	require.False(t, m.KnowsShapes())
	require.True(t, m.ObserveAttempt(at(0), "big", refused("c")))
	require.True(t, m.KnowsShapes())
	require.False(t, m.ObserveAttempt(at(10*time.Second), "big", refused("c")), "nothing is written for every attempt")
	require.True(t, m.ObserveAttempt(at(3*time.Minute), "big", refused("c")))
	require.False(t, m.ObserveAttempt(at(4*time.Minute), "big", map[string]policy.Evidence{"c": policy.ProvesNothing, "unheard-of": policy.AllRefused}))
	next, ok := m.NextDeadline(at(4 * time.Minute))
	require.True(t, ok)
	require.True(t, next.Wakes)
	require.Nil(t, m.View("big", next.At.Add(-time.Second)))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("big", next.At))
	require.Nil(t, m.View("small", next.At), "only pods of that shape")
	require.Equal(t, v1alpha1.ZoneFull, state(t, m, "c", next.At))

	took := map[string]policy.Evidence{"c": policy.TookPod}
	require.False(t, m.ObserveAttempt(next.At, "small", took))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("big", next.At))
	require.True(t, m.ObserveAttempt(next.At, "big", took))
	require.Equal(t, policy.View{"c": policy.Recovering}, m.View("big", next.At))
	require.Equal(t, v1alpha1.ZoneRecovering, state(t, m, "c", next.At))
	// It took one pod and is full again: it stays out of the minimum all the way.
	again := next.At.Add(time.Minute)
	require.True(t, m.ObserveAttempt(again, "big", refused("c")))
	require.Equal(t, policy.View{"c": policy.Recovering}, m.View("big", again.Add(4*time.Minute)))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("big", again.Add(5*time.Minute)))
}

func TestRefusalsThatDoNotAddUp(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	m.ObserveAttempt(at(0), "s", refused("c"))
	require.True(t, m.ObserveAttempt(at(4*time.Minute), "s", map[string]policy.Evidence{"c": policy.TookPod}))
	m.ObserveAttempt(at(4*time.Minute), "s", refused("c"))
	require.Nil(t, m.View("s", at(8*time.Minute)), "a pod fitted in between")

	slow := policy.NewMachine(compile(t, failover(time.Minute, time.Hour, time.Hour)), nil)
	slow.ObserveNodes(at(0), zonesWith(cReady))
	slow.ObserveAttempt(at(0), "s", refused("c"))
	slow.ObserveAttempt(at(30*time.Minute), "s", refused("c"))
	require.Nil(t, slow.View("s", at(61*time.Minute)), "nobody looked for half an hour: it begins anew")
	for d := 30 * time.Minute; d <= 91*time.Minute; d += 5 * time.Minute {
		slow.ObserveAttempt(at(d), "s", refused("c"))
	}
	require.NotNil(t, slow.View("s", at(91*time.Minute)))

	forgotten := policy.NewMachine(compile(t), nil)
	forgotten.ObserveNodes(at(0), zonesWith(cReady))
	forgotten.ObserveAttempt(at(0), "s", refused("c"))
	require.NotNil(t, forgotten.View("s", at(59*time.Minute)))
	require.Nil(t, forgotten.View("s", at(61*time.Minute)), "nobody has asked for an hour")
	require.True(t, forgotten.ObserveNodes(at(61*time.Minute), zonesWith(cReady)))
	require.False(t, forgotten.KnowsShapes())
}

func TestShapesAreBounded(t *testing.T) {
	m := policy.NewMachine(compile(t), nil)
	m.ObserveNodes(at(0), zonesWith(cReady))
	for i := range 40 {
		m.ObserveAttempt(at(time.Duration(i)*time.Second), string(rune('A'+i)), refused("c"))
	}
	var kept []string
	for _, s := range m.Export(at(time.Minute))[2].Failover.Shapes {
		kept = append(kept, s.Shape)
	}
	require.Len(t, kept, policy.MaxShapes)
	require.Contains(t, kept, string(rune('A'+39)))
	require.NotContains(t, kept, "A")
}

func TestRespec(t *testing.T) {
	m := policy.NewMachine(compile(t, withZones(weighted("a", 1), weighted("never", 1))), nil)
	m.ObserveNodes(at(0), zonesWith(cDead))
	require.Equal(t, policy.View{"c": policy.Waiting}, m.View("s", at(time.Minute)))
	m.Respec(compile(t, withZones(weighted("new", 1)), failover(30*time.Second, time.Minute, time.Minute)))
	require.Equal(t, policy.View{"c": policy.Unavailable}, m.View("s", at(time.Minute)), "a shorter grace period holds at once")
	require.Equal(t, v1alpha1.ZoneEmpty, state(t, m, "new", at(time.Minute)))
	require.Len(t, m.Export(at(time.Minute)), 4, "a, b, c, new")
}
