package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestAnExtendedReservationContinues: pods that used slots of it when it expired still do, and are not held room for
// twice.
func TestAnExtendedReservationContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasting := func(d time.Duration) *v1alpha1.ZoneReservation {
			r := reservation("r", 2, guarantee)
			r.Spec.TTL = &metav1.Duration{Duration: d}
			return r
		}
		f := newFixture(t, 1, lasting(time.Hour))
		f.Ledger.AddNode(makeNode("n1", "8"))
		f.start(t)
		f.add(t, replica("one", "1", t0), replica("two", "1", t0))
		f.RequestPass()
		f.requireSlots(t, "r", 2, 2)
		f.clock.Step(time.Hour)
		f.requireCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionTrue, v1alpha1.ReasonExpired)
		require.Zero(t, f.heldOn("n1"))
		f.end(t, "two")
		longer := lasting(1000 * time.Hour)
		longer.Status = f.status("r")
		f.api.Put(longer)
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
		f.requireSlots(t, "r", 2, 1)
	})
}

// TestAReservationThatIsNoMore holds nothing, whatever ended it.
func TestAReservationThatIsNoMore(t *testing.T) {
	for name, end := range map[string]func(f *fixture, r *v1alpha1.ZoneReservation){
		"deleted": func(f *fixture, r *v1alpha1.ZoneReservation) { f.api.Delete(r) },
		"being deleted": func(f *fixture, r *v1alpha1.ZoneReservation) {
			r.DeletionTimestamp = &metav1.Time{Time: t0}
			f.api.Put(r)
		},
		"over": func(f *fixture, r *v1alpha1.ZoneReservation) {
			r.Spec.TTL = &metav1.Duration{Duration: time.Hour}
			f.api.Put(r)
			f.clock.Step(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := reservation("r", 1, nil)
				f := newFixture(t, 1, r)
				f.Ledger.AddNode(makeNode("n1", "4"))
				f.start(t)
				f.handle.waits = true
				f.requireSlots(t, "r", 1, 0)
				require.NotNil(t, f.Claims().OwnerOf(replica("p", "1", t0)))
				require.NotZero(t, f.heldOn("n1"))
				r.Status = f.status("r")
				end(f, r)
				require.Eventually(t, func() bool { f.clock.Step(time.Second); synctest.Wait(); return f.heldOn("n1") == 0 }, time.Minute, time.Millisecond)
				require.Nil(t, f.Claims().OwnerOf(replica("p", "1", t0)))
				require.Empty(t, f.Claims().List)
				f.handle.mu.Lock()
				defer f.handle.mu.Unlock()
				require.Contains(t, f.handle.changed, "n1", "pods may find room there")
			})
		})
	}
}

// TestAnAnswerOfNotFoundDropsNothing: an API server that loses a CustomResourceDefinition deletes its objects first,
// and says so by events.
func TestAnAnswerOfNotFoundDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 1, nil)
		f := newFixture(t, 1, r)
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 1, 0)
		f.api.Serve(r, false)
		for range 60 {
			f.clock.Step(time.Second)
			synctest.Wait()
		}
		require.Len(t, f.Claims().List, 1, "what is held stays held")
	})
}

// TestAnEditSurvivesARestart: what an edit has left behind is in the status, with its size, and a new leader holds it.
func TestAnEditSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 2, nil)
		f := newFixture(t, 1, r)
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.add(t, makePod("batch", "n1", "2", nil))
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
		larger := reservation("r", 2, func(r *v1alpha1.ZoneReservation) {
			r.Generation = 2
			r.Spec.Slot.Requests[v1.ResourceCPU] = resource.MustParse("1100m")
		})
		larger.Status = f.status("r")
		f.api.Put(larger)
		f.eventually(t, "r", func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
			require.EqualValues(t, 2, s.ObservedGeneration)
			require.Len(t, s.Former, 1)
			former := s.Former[0]
			require.Equal(t, []any{"n1", int64(2), "1"}, []any{former.Node, former.Slots, former.Requests.Cpu().String()})
		})
		require.EqualValues(t, 2000, f.heldOn("n1"), "no slot of the new size fits beside one of the old, so both stay")

		after := newFixtureOn(t, 1, f.api, "")
		after.Ledger.AddNode(makeNode("n1", "4"))
		after.add(t, makePod("batch", "n1", "2", nil))
		after.start(t)
		require.Eventually(t, func() bool { after.clock.Step(time.Second); synctest.Wait(); return after.heldOn("n1") == 2000 }, time.Minute, time.Millisecond)
	})
}
