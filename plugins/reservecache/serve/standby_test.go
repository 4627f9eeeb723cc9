package serve

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/crd/crdtest"
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
		require.Nil(t, f.Holds.Node("n1"))
		require.Zero(t, f.api.Writes())
		f.AwaitStart(t.Context())
		require.NotNil(t, f.Holds.Node("n1"))
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

// TestStandbyHasNothingToWrite: a replica that has placed no slots does not remember each reservation for a status that it will not write.
func TestStandbyHasNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.reservationSeen(reservation("r", 1, nil))
		f.clock.Step(2 * statusPause)
		require.True(t, f.writer.Idle())
	})
}

// TestTwoSchedulersDoNotHoldTwice: of two with leases of their own, the first by name holds. The other holds nothing, says so, and does not write
// the status again and again.
func TestTwoSchedulersDoNotHoldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := crdtest.New(reservation("r", 2, nil))
		var both []*fixture
		for _, lease := range []string{"kube-system/second", "kube-system/first"} {
			f := newFixtureOn(t, 1, api, lease)
			f.Ledger.AddNode(makeNode("n1", "4"))
			both = append(both, f.start(t))
		}
		atRest := func() bool {
			for _, f := range both {
				f.clock.Step(time.Second)
			}
			return both[0].Idle() && both[1].Idle()
		}
		require.Eventually(t, func() bool {
			return atRest() && both[0].status("r").Scheduler == "kube-system/first" && both[0].Holds.Node("n1") == nil
		}, time.Minute, 5*time.Millisecond)
		require.NotNil(t, both[1].Holds.Node("n1"))
		require.Nil(t, both[0].OwnerOf(replica("p", "1", t0)))
		require.Contains(t, strings.Join(eventsOf(both[0]), "\n"), "the scheduler with the lease kube-system/first holds the reservation")
		writes := api.Writes()
		for range 30 {
			require.Eventually(t, atRest, time.Minute, time.Millisecond)
		}
		require.Equal(t, writes, api.Writes())

		// What the status says of before a process began is no sign of life.
		late := newFixtureOn(t, 1, api, "kube-system/third")
		late.clock.SetTime(t0.Add(time.Hour))
		late.made = late.clock.Now()
		late.reservationSeen(func() *v1alpha1.ZoneReservation {
			r := reservation("r", 2, nil)
			r.Status = both[0].status("r")
			return r
		}())
		require.Empty(t, late.entries["uid-r"].heldBy)
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
