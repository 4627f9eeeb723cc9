package serve

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/test/crdtest"
)

// TestStandby: a process that does not lead knows the reservations and holds nothing.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 1, nil))
		f.Ledger.AddNode(makeNode("n1", "4"))
		require.NoError(t, f.Start(t.Context(), nil))
		f.RequestPass()
		_, _, ok := f.wantedStatus("uid-r")
		require.False(t, ok)
		require.Zero(t, f.api.Writes())
		f.AwaitStart(t.Context())
		require.Len(t, f.Claims().List, 1)
	})
}

// unsettled is a kind of which it is not known yet which objects there are.
type unsettled struct{ crd.Kind }

func (unsettled) Settled() bool { return false }

// TestStandbyWaitsForReservations: a process that has been there for hours waits for them when it begins to lead.
func TestStandbyWaitsForReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		require.NoError(t, f.Start(t.Context(), nil))
		f.reservations = unsettled{f.reservations}
		f.clock.Step(time.Hour)
		began := f.clock.Now()
		ended := make(chan time.Time, 1)
		go func() {
			f.AwaitStart(t.Context())
			ended <- f.clock.Now()
		}()
		require.Eventually(t, func() bool {
			select {
			case at := <-ended:
				require.GreaterOrEqual(t, at.Sub(began), startTimeout)
				return true
			default:
				f.clock.Step(startPollInterval)
				return false
			}
		}, time.Minute, time.Millisecond)
	})
}

// TestStandbyHasNothingToWrite: a replica that has placed no slots does not remember each reservation for a status that
// it will not write.
func TestStandbyHasNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.reservationSeen(reservation("r", 1, nil))
		f.clock.Step(2 * statusPause)
		require.True(t, f.writer.Idle())
	})
}

// TestStandbyGoesByTheLatestStatus: what a reservation held when a standby began is not what it holds when that begins
// to lead.
func TestStandbyGoesByTheLatestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, younger := reservation("older", 1, nil), reservation("younger", 1, nil)
		younger.CreationTimestamp.Time = t0.Add(time.Minute)
		slot := []v1alpha1.ReservationZoneStatus{{Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Slots: 1}}}}
		older.Status.Zones = slot
		api := crdtest.New(older, younger)
		f := newFixtureOn(t, 1, api, "")
		f.Ledger.AddNode(makeNode("n1", "1"))
		require.NoError(t, f.Start(t.Context(), nil))
		f.clock.Step(time.Second)
		synctest.Wait()
		require.Len(t, f.Claims().List, 2)

		// The leader has lost the slot to an owner, and the younger reservation got the room when that ended.
		older, younger = older.DeepCopy(), younger.DeepCopy()
		older.Status.Zones, younger.Status.Zones = nil, slot
		api.Put(older)
		api.Put(younger)
		synctest.Wait()
		f.Leader.Cycle()
		f.AwaitStart(t.Context())
		f.requireSlots(t, "younger", 1, 0)
		f.requireSlots(t, "older", 0, 0)
	})
}

// TestTwoSchedulers with leases of their own: one leaves a reservation to the other that its status names, says so, and
// writes nothing, as long as the lease of that one is renewed. Then it takes over.
func TestTwoSchedulers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := reservation("r", 2, nil)
		named.Status.Scheduler = "kube-system/other"
		api := crdtest.New(named)
		f := newFixtureOn(t, 1, api, "kube-system/mine")
		f.renewed = map[string]bool{"kube-system/other": true}
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		require.Eventually(t, func() bool { f.clock.Step(time.Second); synctest.Wait(); return len(f.Claims().List) == 0 }, time.Minute, time.Millisecond)
		require.Contains(t, strings.Join(eventsOf(f), "\n"), "the scheduler with the lease kube-system/other holds the reservation")
		writes := api.Writes()
		for range 60 {
			f.clock.Step(time.Second)
			synctest.Wait()
		}
		require.Equal(t, writes, api.Writes(), "it leaves the status alone")

		f.renewed = nil
		f.requireSlots(t, "r", 2, 0)
		require.Equal(t, "kube-system/mine", f.status("r").Scheduler)
	})
}

// eventsOf returns the Events that a server has sent.
func eventsOf(f *fixture) (events []string) {
	for {
		select {
		case event := <-f.handle.recorder.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}
