package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUsesSinceTheReportAreAdopted: a status is written later than its report was made, and does not name who came between.
func TestUsesSinceTheReportAreAdopted(t *testing.T) {
	f := newFixture(t, 1)
	f.opened.Store(true)
	f.Ledger.AddNode(makeNode("n1", "4"))
	f.seen(reservation("r", 2, guarantee))
	f.clock.Step(700 * time.Millisecond)
	f.pass(t.Context())
	f.clock.Step(250 * time.Millisecond)
	between := replica("between", "1", t0) // the API server says so in whole seconds
	require.NoError(t, f.Holds.Take("between", "n1", "uid-r", oneCPU(1), nil))
	f.add(t, between)
	f.clock.Step(100 * time.Millisecond)
	_, is, ok := f.wantedStatus("uid-r")
	require.True(t, ok)
	require.EqualValues(t, 2, is.Status.Slots.Held)
	require.Empty(t, consumers(&is.Status))

	next := newFixture(t, 1, is)
	next.Ledger.AddNode(makeNode("n1", "4"))
	next.add(t, between)
	next.start(t)
	next.requireSlots(t, "r", 2, 1)
}
