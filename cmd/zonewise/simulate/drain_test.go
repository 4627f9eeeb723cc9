package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
)

// TestDrains: pods go one by one as their budgets allow, those of DaemonSets stay, and what cannot go fails the drain.
func TestDrains(t *testing.T) {
	for name, tc := range map[string]struct {
		minAvailable int32
		room         string // of each node
		displaced    int
		promise      Promise
		failed       []string
	}{
		"a budget that is met by one after the other": {
			minAvailable: 5, room: "8", displaced: 3, promise: Promise{Before: 3, Words: "3 pods evicted"}, failed: []string{},
		},
		"a budget that allows none": {
			minAvailable: 6, room: "8", displaced: 0,
			promise: Promise{Before: 3, After: 3, Broken: true, Words: "3 of 3 pods stay: shop/web-1-1: The disruption budget web needs 6 healthy pods and has 6 currently"},
			failed:  []string{FailDrain},
		},
		"a budget that is spent when there is no more room": {
			minAvailable: 5, room: "4", displaced: 2,
			promise: Promise{Before: 3, After: 1, Broken: true, Words: "1 of 3 pods stay: shop/web-1-3: The disruption budget web needs 5 healthy pods and has 5 currently"},
			failed:  []string{FailPending, FailDrain},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clitest.New()
			for _, zone := range []string{"a", "b"} {
				c.Node("node-"+zone, zone, tc.room, "64Gi")
			}
			c.Running("web", "1", nil, "node-a", "node-a", "node-a", "node-b", "node-b", "node-b")
			c.Budget("web", tc.minAvailable)
			clitest.Owned(c.Pod("agent", "node-a", clitest.Plain("100m", "1Gi"), nil), "apps/v1", "DaemonSet", "agent")
			r := run(t, c, &Scenario{Drained: []string{"node-a"}})
			tc.promise.Kind, tc.promise.Name = FailDrain, "node-a"
			require.Contains(t, r.Promises, tc.promise)
			require.Equal(t, []int{1, tc.displaced, 0}, []int{r.DrainedNodes, r.Displaced, r.Evicted})
			require.Equal(t, tc.failed, r.Failed(DefaultFailures))
		})
	}
	t.Run("a pod without a controller", func(t *testing.T) {
		c := zones("8")
		c.Pod("bare", "node-a", clitest.Plain("1", "1Gi"), nil)
		r := run(t, c, &Scenario{Drained: []string{"node-a"}})
		require.Equal(t, []Lost{{Pods: 1, Why: "no controller replaces it"}}, r.NotReplaced)
		require.Equal(t, []string{FailPending}, r.Failed(DefaultFailures))
	})
	t.Run("slots that find no other place", func(t *testing.T) {
		c := clitest.New()
		c.Node("node-a", "a", "8", "8Gi")
		c.Reservation("failover", "web", "6", 0, map[string]int64{"node-a": 1})
		r := run(t, c, &Scenario{Drained: []string{"node-a"}})
		require.Equal(t, []string{FailReservation}, r.Failed([]string{FailReservation}), "%+v", r.Promises)
	})
	t.Run("then a zone is lost", func(t *testing.T) {
		c := zones("8")
		c.Running("web", "1", nil, "node-a", "node-b")
		r := run(t, c, &Scenario{Drained: []string{"node-a"}, Zones: []string{"b"}})
		require.Equal(t, "drain node node-a, then lose zone b", r.Scenario)
		require.Zero(t, r.Pending)
		require.False(t, snapshot.List[*corev1.Node](c.Snapshot)[0].Spec.Unschedulable, "the census is as it was")
	})
}
