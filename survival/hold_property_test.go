package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// TestHeldRoomIsEnough: whatever is held for random clusters, other pods of the same priority then take all other room,
// a zone is lost, and every displaced pod runs again for which no room is said to be missing. Asked again, the amounts
// stay. In some clusters a policy spreads the pods of api, so that these come last when the nodes of a failed zone
// stay.
func TestHeldRoomIsEnough(t *testing.T) {
	whole, short, held, bound := 0, 0, 0.0, 0.0
	for i := range (*clusters + 3) / 4 { // each costs as much as several certificates
		seed := *first + uint64(i) //nolint:gosec // not negative
		t.Run(fmt.Sprintf("cluster %d", seed), func(t *testing.T) {
			c := random(rand.New(rand.NewPCG(seed, 7)))
			if seed%2 == 0 {
				c.Policy("api", func(p *v1alpha1.ZoneSpreadPolicySpec) {
					p.UnavailableZones.DownAfter, p.UnavailableZones.FullAfter = &metav1.Duration{Duration: time.Minute}, &metav1.Duration{Duration: time.Hour}
				})
			}
			asked := holding("web", "api")
			room, is := hold(t, c, asked)
			missing := int64(0)
			for _, m := range is.Missing {
				missing += m.Pods
			}
			if room.Wanted != nil {
				adopt(c, room.Wanted)
				again, status := hold(t, c, asked)
				require.True(t, again.Same(), "%v, then %v", room.Wanted.Spec.Nodes, again.Wanted)
				require.Equal(t, is.Missing, status.Missing)
			}
			if missing == 0 {
				whole++
				held += total(room.Wanted)
				bound += room.Bound.Cpu().AsApproximateFloat64()
			} else {
				short++
			}
			for _, zone := range []string{"a", "b", "c"} {
				for other := range int64(2) {
					waiting := loseFilled(t, c, inZone(zone), 100+other, other == 1)
					require.LessOrEqual(t, len(waiting), int(missing), "after the loss of zone %s with seed %d: %v of %v", zone, 100+other, waiting, room.Wanted)
				}
			}
		})
	}
	t.Logf("%d clusters have room for all losses, %d lack some; held are %.0f CPUs, at least needed %.0f", whole, short, held, bound)
	require.Positive(t, whole)
}

// TestHeldWhereAPolicyWantsIt: room is held in the zone where a policy wants a pod, and not in one that the policy
// allows only when it takes the first one for full, after minutes. In these clusters both zones have room.
func TestHeldWhereAPolicyWantsIt(t *testing.T) {
	seeds := []uint64{8, 19}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		c := random(rand.New(rand.NewPCG(seed, 7)))
		c.Policy("api", func(p *v1alpha1.ZoneSpreadPolicySpec) {
			p.UnavailableZones.DownAfter, p.UnavailableZones.FullAfter = &metav1.Duration{Duration: time.Minute}, &metav1.Duration{Duration: 5 * time.Minute}
		})
		room, is := hold(t, c, holding("web", "api"))
		require.Empty(t, is.Missing)
		adopt(c, room.Wanted)
		for _, zone := range []string{"a", "b", "c"} {
			s, err := full(t, c, 101).Fork(t.Context(), func(o *sim.Options) { o.Patience = 4 * time.Minute })
			require.NoError(t, err)
			defer s.Close()
			s.Lose(inZone(zone))
			require.NoError(t, s.Run(t.Context()))
			require.Empty(t, waiting(s), "cluster %d without zone %s: %v", seed, zone, room.Wanted.Spec.Nodes)
		}
	}
}

// holding asks for the room of the pods with these labels app.
func holding(apps ...string) *v1alpha1.ZoneSurvival {
	s := protecting(apps...)
	s.UID, s.Spec.Hold = "services", true
	low := int32(10)
	s.Spec.Priority = &low
	return s
}

func hold(t *testing.T, c *clitest.Cluster, asked *v1alpha1.ZoneSurvival) (survival.Room, v1alpha1.ZoneSurvivalStatus) {
	t.Helper()
	var status v1alpha1.ZoneSurvivalStatus
	room, err := survival.Hold(t.Context(), c.Objects(), asked, survival.Options{Sim: sim.Options{Now: clitest.Now}}, &status)
	require.NoError(t, err)
	return room, status
}

// adopt adds a reservation, as the API server would.
func adopt(c *clitest.Cluster, r *v1alpha1.ZoneReservation) {
	r = r.DeepCopy()
	r.UID, r.Generation, r.CreationTimestamp.Time = types.UID(r.Name), 1, clitest.Now
	c.Add(r)
}

// total is how many CPUs a reservation asks for.
func total(r *v1alpha1.ZoneReservation) (cpus float64) {
	if r != nil {
		for _, n := range r.Spec.Nodes {
			cpus += n.Amount.Cpu().AsApproximateFloat64()
		}
	}
	return cpus
}

// full is the cluster after other pods have taken all room that they may have.
func full(t *testing.T, c *clitest.Cluster, seed int64) *sim.Sim {
	t.Helper()
	filled := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	filled.Add(c.Objects()...)
	free := int64(3) // more than there is room for
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		free += node.Status.Allocatable.Cpu().Value()
	}
	for _, pod := range c.Pods() {
		free -= pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
		free -= int64(total(r))
	}
	add := filled.Deployment("filler", int32(free), "1", "1Gi", priority(10)) //nolint:gosec // a few
	for i := range free {
		add("").UID = types.UID(fmt.Sprintf("filler-%d", i))
	}
	s, err := sim.New(t.Context(), filled.Objects(), sim.Options{Now: clitest.Now, Seed: seed})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Run(t.Context()))
	return s
}

// loseFilled replays a loss after other pods have taken all room that they may have, and returns the protected pods
// that wait. late: the pods of api come last.
func loseFilled(t *testing.T, c *clitest.Cluster, taken func(*v1.Node) bool, seed int64, late bool) []string {
	t.Helper()
	s, err := full(t, c, seed).Fork(t.Context(), func(o *sim.Options) {
		if late {
			o.Rank = func(pod *v1.Pod) []int64 {
				if pod.Labels["app"] == "api" {
					return []int64{1}
				}
				return []int64{0}
			}
		}
	})
	require.NoError(t, err)
	defer s.Close()
	s.Lose(taken)
	require.NoError(t, s.Run(t.Context()))
	return waiting(s)
}
