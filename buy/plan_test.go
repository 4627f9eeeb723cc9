package buy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func cpu(quantity string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}
}

// demand wants in zones, each "zone size pods".
func demand(most int32, wants ...Want) *Demand {
	return &Demand{
		Owner: metav1.OwnerReference{Name: "web", UID: "1"}, Buy: v1alpha1.Buy{Namespace: "buffers", Max: most},
		Wants: wants,
	}
}

func want(zone, size string, n int32) Want { return Want{Zone: zone, Requests: cpu(size), Pods: n} }

// asked is what is asked for by "zone size".
func asked(d *Demand, buffers []Buffer, zone, size string) int32 {
	for _, b := range buffers {
		if b.Name == d.name(zone, cpu(size), nil) {
			return b.Asked
		}
	}
	return 0
}

// run plans for one demand after the other, so far apart.
func run(t *testing.T, apart time.Duration, demands ...*Demand) []Buffer {
	t.Helper()
	var buffers []Buffer
	for i, d := range demands {
		buffers, _ = d.Plan(buffers, start.Add(time.Duration(i)*apart))
	}
	return buffers
}

// TestNeverMoreThanMax: under the bound the zones share what is newly asked for, what is asked for already stays, and a
// lower bound holds at once.
func TestNeverMoreThanMax(t *testing.T) {
	d := demand(6, want("a", "1", 5), want("b", "1", 2), want("c", "1", 9))
	buffers, atMax := d.Plan(nil, start)
	require.True(t, atMax)
	require.Equal(
		t, []int32{2, 2, 2},
		[]int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1"), asked(d, buffers, "c", "1")},
	)

	less := demand(6, want("a", "1", 5), want("c", "1", 2))
	buffers, atMax = less.Plan(buffers, start.Add(time.Minute))
	require.True(t, atMax, "zone b falls in a few minutes, and zone a gets its share then")
	require.Equal(t, int32(2), asked(d, buffers, "a", "1"))
	buffers, _ = less.Plan(buffers, start.Add(time.Minute+FallAfter))
	require.Equal(
		t, []int32{4, 0, 2},
		[]int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1"), asked(d, buffers, "c", "1")},
	)

	less.Buy.Max, less.Lost = 2, []string{"c"}
	buffers, _ = less.Plan(buffers, start.Add(2*time.Minute+FallAfter))
	require.Equal(
		t, []int32{1, 1}, []int32{asked(d, buffers, "a", "1"), asked(d, buffers, "c", "1")}, "also in a lost zone",
	)
}

// TestReplaces: another size takes the place of one that is wanted no more, at once and within the bound; room in a
// zone takes that of room in any.
func TestReplaces(t *testing.T) {
	d := demand(4, want("a", "2", 4))
	buffers := run(t, time.Second, demand(4, want("a", "1", 4)), d)
	require.Equal(t, []int32{0, 4}, []int32{asked(d, buffers, "a", "1"), asked(d, buffers, "a", "2")})

	d = demand(9, want("a", "1", 2), want("b", "1", 1))
	buffers = run(t, time.Second, demand(9, want("", "1", 3)), d)
	require.Equal(
		t, []int32{0, 2, 1},
		[]int32{asked(d, buffers, "", "1"), asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1")},
	)

	buffers = run(t, time.Second, demand(9, want("b", "1", 3)), demand(9, want("a", "1", 3)))
	require.Equal(
		t, []int32{3, 3}, []int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1")}, "another zone does not",
	)
}

// TestFrozen: a lost zone stays as it is in both directions, nothing more is asked for there, and when it is back its
// fall starts again.
func TestFrozen(t *testing.T) {
	d := demand(9, want("a", "1", 3), want("b", "1", 3))
	lost := demand(9, want("a", "1", 1), want("b", "1", 5), want("c", "1", 1))
	lost.Lost = []string{"a", "c"}
	buffers := run(t, FallAfter, d, lost, lost, lost)
	require.Equal(
		t, []int32{3, 5, 0},
		[]int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1"), asked(d, buffers, "c", "1")},
	)
	lost.Lost = nil
	buffers, _ = lost.Plan(buffers, start.Add(4*FallAfter))
	require.Equal(
		t, []int32{3, 5, 1},
		[]int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1"), asked(d, buffers, "c", "1")},
	)
	buffers, _ = lost.Plan(buffers, start.Add(5*FallAfter))
	require.Equal(t, int32(1), asked(d, buffers, "a", "1"))

	all := demand(9, want("a", "1", 9))
	all.Frozen = "it is not known"
	buffers, _ = all.Plan(buffers, start.Add(6*FallAfter))
	require.Equal(t, []int32{1, 5}, []int32{asked(d, buffers, "a", "1"), asked(d, buffers, "b", "1")})
}

// TestOwnersThatWaitAreNotBoughtFor: what is unused since owners have gone is not bought again while as many wait to be
// placed.
func TestOwnersThatWaitAreNotBoughtFor(t *testing.T) {
	d := demand(9, want("a", "1", 1))
	gone := demand(9, want("a", "1", 4))
	gone.Waiting = 3
	require.Equal(t, int32(1), asked(d, run(t, time.Second, d, gone), "a", "1"))
	gone.Waiting = 1
	require.Equal(t, int32(3), asked(d, run(t, time.Second, d, gone), "a", "1"), "two of them are placed")
}

// TestBoundHoldsWhateverOthersHaveWritten: what is asked for is read from objects that others may have edited.
func TestBoundHoldsWhateverOthersHaveWritten(t *testing.T) {
	d := demand(5, want("a", "1", 2), want("b", "1", 2))
	asked, _ := d.Plan(nil, start)
	for i := range asked {
		asked[i].Asked = 1 << 30
	}
	asked, _ = d.Plan(asked, start)
	var total int64
	for _, b := range asked {
		total += int64(b.Asked)
	}
	require.LessOrEqual(t, total, int64(5))
}

// TestAZoneFollowsFromTheName: the label that says in which zone a buffer asks is read from objects that others may
// have edited, too.
func TestAZoneFollowsFromTheName(t *testing.T) {
	d := demand(5, want("a", "1", 2))
	asked, _ := d.Plan(nil, start)
	for _, edited := range []string{"", "b"} {
		asked[0].Zone = edited
		asked, _ = d.Plan(asked, start)
		require.Len(t, asked, 1)
		require.Equal(t, "a", asked[0].Zone)
	}
}
