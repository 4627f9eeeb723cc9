package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// throughTheAPI is what a status looks like after it was written and read.
func throughTheAPI(t require.TestingT, zones []v1alpha1.ZoneStatus) []v1alpha1.ZoneStatus {
	data, err := json.Marshal(zones)
	require.NoError(t, err)
	var read []v1alpha1.ZoneStatus
	require.NoError(t, json.Unmarshal(data, &read))
	return read
}

func drawFailoverPolicy(t *rapid.T) *policy.Policy {
	var zones []v1alpha1.ZoneSpreadZone
	for _, name := range []string{"a", "c", "never"} {
		if rapid.Bool().Draw(t, "declared "+name) {
			zones = append(zones, weighted(name, rapid.Int32Range(0, 3).Draw(t, "weight "+name)))
		}
	}
	minutes := rapid.IntRange(1, 120)
	grace := func(name string) time.Duration { return time.Duration(minutes.Draw(t, name)) * 7 * time.Second }
	window := time.Duration(0)
	if rapid.Bool().Draw(t, "gradual") {
		window = grace("recoveryWindow")
	}
	return compile(t, withZones(zones...), failover(grace("downAfter"), grace("fullAfter"), window))
}

// A scheduler that restarts at any moment, from the status that the API server holds, decides as one that never
// stopped: views, deadlines, states, and what it writes next.
func TestRestartChangesNothing(t *testing.T) {
	shapes := []string{"big", "small", "other"}
	zones := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		p := drawFailoverPolicy(t)
		lasting := policy.NewMachine(p, nil)
		restarted := policy.NewMachine(p, nil)
		now := noon
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(8*time.Minute)).Draw(t, "passes")))
			// Both sides see the same, and must agree on whether it is news.
			see := func(f func(*policy.Machine) bool) {
				require.Equal(t, f(lasting), f(restarted))
			}
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				var nodes []policy.ZoneNodes
				for _, name := range zones {
					n := rapid.IntRange(0, 2).Draw(t, "nodes "+name)
					nodes = append(nodes, policy.ZoneNodes{Name: name, Nodes: n, Ready: rapid.IntRange(0, n).Draw(t, "ready "+name)})
				}
				see(func(m *policy.Machine) bool { return m.ObserveNodes(now, nodes) })
			case 2, 3:
				evidence := map[string]policy.Evidence{}
				for _, name := range zones {
					evidence[name] = policy.Evidence(rapid.IntRange(0, 2).Draw(t, "evidence "+name))
				}
				shape := rapid.SampledFrom(shapes).Draw(t, "shape")
				see(func(m *policy.Machine) bool { return m.ObserveAttempt(now, shape, evidence) })
			case 4:
				counts := map[string]int64{}
				for _, name := range zones {
					counts[name] = rapid.Int64Range(0, 3).Draw(t, "pods "+name)
				}
				see(func(m *policy.Machine) bool { return m.ObserveCounts(now, counts) })
			}
			if rapid.Bool().Draw(t, "restart") {
				restarted = policy.NewMachine(p, throughTheAPI(t, restarted.Export(now)))
			}
			for _, later := range []time.Duration{0, time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour} {
				then := now.Add(later)
				for _, shape := range shapes {
					require.Equal(t, lasting.View(shape, then), restarted.View(shape, then))
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

// Between two observations answers change at the announced deadlines and at no other time, so that a timer on
// NextDeadline misses nothing. Forgetting a full zone that nobody asks for is the exception: nothing waits for it.
func TestDeadlinesAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawFailoverPolicy(t)
		m := policy.NewMachine(p, nil)
		now := noon
		m.ObserveNodes(now, readyZones("a", "b", "c"))
		for range rapid.IntRange(1, 6).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				m.ObserveNodes(now, zonesWith(cDead))
			case 1:
				m.ObserveNodes(now, zonesWith(cReady))
			case 2:
				m.ObserveAttempt(now, "s", refused("b"))
			case 3:
				m.ObserveAttempt(now, "s", map[string]policy.Evidence{"b": policy.TookPod})
			}
		}
		for then := now; then.Before(now.Add(30 * time.Minute)); {
			next, ok := m.NextDeadline(then)
			if !ok {
				next.At = now.Add(30 * time.Minute)
			}
			require.True(t, next.At.After(then))
			before := m.View("s", then)
			require.Equal(t, before, m.View("s", next.At.Add(-time.Nanosecond)))
			if ok {
				after := m.View("s", next.At)
				for zone, part := range after {
					if part == policy.Unavailable && before[zone] != policy.Unavailable {
						require.True(t, next.Wakes, "zone %s became unavailable", zone)
					}
				}
			}
			then = next.At
		}
	})
}
