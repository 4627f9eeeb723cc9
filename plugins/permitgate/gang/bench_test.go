package gang_test

import (
	"fmt"
	"testing"

	"zonewise.dev/plugins/permitgate/gang"
)

// BenchmarkMembers is what the state machine costs a member from its arrival to its bind, in gangs of several sizes:
// ns/member does not grow with the gang.
func BenchmarkMembers(b *testing.B) {
	for _, size := range []int{50, 500, 5000} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			for b.Loop() {
				g, ids := newGang(size, size)
				g.Admit(start)
				g.Act(start)
				g.Enter(ids[0], start)
				if !g.Gather(gang.Round{Members: ids, First: ids[:1]}, start) {
					b.Fatal("no round")
				}
				for _, id := range ids {
					g.Enter(id, start)
					g.Permit(id, "node", start)
					g.Act(start)
				}
				released := g.Release(ids, start)
				if len(released) != size {
					b.Fatal("not let go")
				}
				for _, id := range released {
					if members := g.Arrive(id, start); len(members) > 0 {
						g.Commit(members, nil, start)
					}
				}
				for _, id := range ids {
					g.Bound(id, start)
				}
				if g.Act(start); g.Phase() != gang.Whole {
					b.Fatal(g.Phase())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/member")
			b.ReportMetric(0, "ns/op")
		})
	}
}
