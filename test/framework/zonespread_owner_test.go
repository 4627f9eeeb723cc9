package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
)

// TestPodsComeBeforeTheirReplicaSet: caps hold for pods whose ReplicaSet arrives later, which go on when it comes; one
// that never comes keeps them for half a minute.
func TestPodsComeBeforeTheirReplicaSet(t *testing.T) {
	for name, arrives := range map[string]bool{"it arrives": true, "it does not arrive": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// Given: a cap of a third, and room in zone a alone.
				c := newSpreadCluster(t)
				c.addNodes("100", "a1")
				c.addNodes("100m", "b1", "c1")
				c.policies.Put(newPolicy(maxPerZone("34%", 100), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PercentRounding = v1alpha1.RoundDown }))
				c.start()
				web := deployment("web", 6)
				set := revision(web, "1", 6)
				// When: the pods come, and their ReplicaSet does not, or 20 seconds later.
				start := c.clock.Now()
				c.createPods(newPods(6, "web", "100m", ofSet(set))...)
				c.pass(20 * time.Second)
				// Then: none is placed without a cap.
				require.Empty(t, c.bound("web"))
				if arrives {
					c.add(set)
					c.eventuallyWithin(12*time.Second, "they go on", func() bool { return len(c.bound("web")) == 4 })
					c.pass(time.Minute)
					require.Equal(t, map[string]int{"a": 2, "b": 1, "c": 1}, c.byZone("web"))
					return
				}
				c.waitBound("web", 6)
				require.InDelta(t, 35*time.Second, c.clock.Since(start), float64(6*time.Second))
			})
		})
	}
}
