package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestAnInvalidEditChangesNothing but what the status says, and its correction changes nothing either.
func TestAnInvalidEditChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 3, guarantee))
		f.Ledger.AddNode(makeNode("n1", "8"))
		f.start(t)
		f.add(t, replica("one", "1", t0))
		f.RequestPass()
		f.requireSlots(t, "r", 3, 1)
		typo := reservation("r", 3, guarantee)
		typo.Status = f.status("r")
		typo.Spec.Slot.Requests["gpu"] = resource.MustParse("1")
		f.api.Put(typo)
		require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid),
			"the spec before this one still applies: spec.slot.requests[gpu]")
		f.requireSlots(t, "r", 3, 1)
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
		require.NotNil(t, f.OwnerOf(replica("p", "1", t0)))
		corrected := reservation("r", 3, guarantee)
		corrected.Status = f.status("r")
		f.api.Put(corrected)
		f.requireCondition(t, "r", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		f.requireSlots(t, "r", 3, 1)
	})
}

// TestAnExtendedReservationContinues: pods that used slots of it when it expired still do, and are not held room for twice.
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
		require.Nil(t, f.Holds.Node("n1"))
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
		"not served": func(f *fixture, r *v1alpha1.ZoneReservation) { f.api.Serve(r, false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := reservation("r", 1, nil)
				f := newFixture(t, 1, r)
				f.Ledger.AddNode(makeNode("n1", "4"))
				f.start(t)
				require.NotNil(t, f.OwnerOf(replica("p", "1", t0)))
				require.NotNil(t, f.Holds.Node("n1"))
				r.Status = f.status("r")
				end(f, r)
				require.Eventually(t, func() bool { f.clock.Step(time.Second); return f.Holds.Node("n1") == nil }, time.Minute, time.Millisecond)
				require.Nil(t, f.OwnerOf(replica("p", "1", t0)))
				require.False(t, f.Any())
				f.handle.mu.Lock()
				defer f.handle.mu.Unlock()
				require.Contains(t, f.handle.freed, "n1", "pods may find room there")
			})
		})
	}
}
