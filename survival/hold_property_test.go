package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// TestHeldRoomIsEnough: slots are held for random clusters, other pods of the same priority take all other room, and a
// zone is lost, with its nodes or while they stay. Where all slots have room and the certificate of the full cluster is
// True, every displaced pod runs again, in other orders than the certificate's.
func TestHeldRoomIsEnough(t *testing.T) {
	whole, survives := 0, 0
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
			c = placed(t, c, hold(c, asked).Changed)
			var status v1alpha1.ZoneSurvivalStatus
			requireUnchanged(t, survival.Hold(c.Objects(), asked, survival.HoldOptions{}, &status), "asked again, the slots are the same")
			if len(status.Missing) > 0 {
				return
			}
			whole++
			packed := full(t, c, 100)
			answer, err := survival.Certify(t.Context(), packed.Objects(), []*v1alpha1.ZoneSurvival{asked}, survival.Options{Sim: sim.Options{Now: clitest.Now}})
			require.NoError(t, err)
			if !meta.IsStatusConditionTrue(answer[0].Conditions, v1alpha1.ConditionSurvives) {
				return
			}
			survives++
			for _, zone := range []string{"a", "b", "c"} {
				for other := range int64(2) {
					for _, lost := range []func(*sim.Sim, func(*v1.Node) bool) *sim.Loss{(*sim.Sim).Lose, (*sim.Sim).Fail} {
						waiting := loseFilled(t, c, lost, inZone(zone), 100+other, other == 1)
						require.Empty(t, waiting, "after the loss of zone %s with seed %d", zone, 100+other)
					}
				}
			}
		})
	}
	t.Logf("%d clusters have room for all slots; %d of them survive every loss when they are full", whole, survives)
	require.Positive(t, survives)
}

// TestHeldWhereAPolicyWantsIt: room is held in the zone where a policy wants a pod, and not in one that the policy
// allows only when it takes the first one for full, after minutes. In these clusters
// both zones have room.
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
		asked := holding("web", "api")
		c = placed(t, c, hold(c, asked).Changed)
		var status v1alpha1.ZoneSurvivalStatus
		survival.Hold(c.Objects(), asked, survival.HoldOptions{}, &status)
		require.Empty(t, status.Missing)
		for _, zone := range []string{"a", "b", "c"} {
			s, err := full(t, c, 101).Fork(t.Context(), func(o *sim.Options) { o.Patience = 4 * time.Minute })
			require.NoError(t, err)
			defer s.Close()
			s.Lose(inZone(zone))
			require.NoError(t, s.Run(t.Context()))
			require.Empty(t, waiting(s), "cluster %d without zone %s", seed, zone)
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

func hold(c *clitest.Cluster, asked *v1alpha1.ZoneSurvival) survival.Room {
	var status v1alpha1.ZoneSurvivalStatus
	return survival.Hold(c.Objects(), asked, survival.HoldOptions{}, &status)
}

// requireUnchanged requires that no reservation is written or deleted.
func requireUnchanged(t require.TestingT, room survival.Room, why ...any) {
	require.Empty(t, room.Changed, why...)
	require.Empty(t, room.Unwanted, why...)
}

// adopt adds a reservation, as the API server would.
func adopt(c *clitest.Cluster, r *v1alpha1.ZoneReservation) {
	r = r.DeepCopy()
	r.UID, r.Generation, r.CreationTimestamp.Time = types.UID(r.Name), 1, clitest.Now
	c.Add(r)
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
		free -= (r.Status.Slots.Held - r.Status.Slots.Used) * r.Spec.Slot.Requests.Cpu().Value()
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
func loseFilled(t *testing.T, c *clitest.Cluster, lost func(*sim.Sim, func(*v1.Node) bool) *sim.Loss, taken func(*v1.Node) bool, seed int64, late bool) []string {
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
	lost(s, taken)
	require.NoError(t, s.Run(t.Context()))
	return waiting(s)
}
