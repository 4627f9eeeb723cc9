package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heldCluster returns 5,000 nodes with ten pods each, and 5,000 slots of 100 claims.
func heldCluster(b *testing.B, claims int) *Ledger {
	l := New(DefaultOptions())
	for i := range 5000 {
		name := fmt.Sprintf("n%d", i)
		l.AddNode(makeNode(name, fmt.Sprintf("z%d", i%3)))
		for p := range 10 {
			if _, err := l.AddPod(makePod(fmt.Sprintf("%s-%d", name, p), name, "100m", "128Mi")); err != nil {
				b.Fatal(err)
			}
		}
	}
	placeSlots(b, l, claims)
	return l
}

func placeSlots(b *testing.B, l *Ledger, claims int) {
	for c := range claims {
		var slots []Slot
		for i := range 5000 / claims {
			slots = append(slots, cpus(fmt.Sprintf("n%d", i*claims+c), 2, 1))
		}
		if _, err := l.PlaceHolds(Claim{ID: ClaimID{Reservation, types.UID(fmt.Sprint(c))}, Name: "r", Wanted: len(slots)}, slots); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHoldsView is what a scheduling cycle pays to know what is held: with no claim at all, with 5,000
// slots when nothing changed, and after a pod came to a node with slots.
func BenchmarkHoldsView(b *testing.B) {
	for _, claims := range []int{0, 100} {
		l := heldCluster(b, claims)
		var v HoldsView
		l.UpdateHoldsView(&v)
		b.Run(fmt.Sprintf("idle/claims=%d", claims), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.UpdateHoldsView(&v)
			}
		})
		b.Run(fmt.Sprintf("afterOneAssume/claims=%d", claims), func(b *testing.B) {
			pod := makePod("extra", "", "100m", "128Mi")
			var elapsed time.Duration
			updates := 0
			for b.Loop() {
				if l.ForgetPod(pod.UID, "n7"); l.AssumePod(pod, "n7", t0) != nil {
					b.Fatal("not assumed")
				}
				start := time.Now()
				l.UpdateHoldsView(&v)
				elapsed += time.Since(start)
				updates++
			}
			b.ReportMetric(float64(elapsed)/float64(updates), "ns/op")
		})
	}
}

// BenchmarkFits is what Filter pays for a node: one with three holds, one with one and one with none.
func BenchmarkFits(b *testing.B) {
	holds, request, allocatable, requested, who := fitsCase()
	present := func(types.UID) bool { return false }
	one := &NodeHolds{Holds: holds.Holds[1:2]}
	for name, h := range map[string]*NodeHolds{"holds=3": holds, "holds=1": one, "holds=0": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Fits(&request, &allocatable, &requested, h, &who, present)
			}
		})
	}
}

// BenchmarkAssumeOnHold is Reserve and Unreserve: of a pod that no hold touches, as AssumePod does it and with
// the check, and of one that takes a slot.
func BenchmarkAssumeOnHold(b *testing.B) {
	l := heldCluster(b, 100)
	l.ReleaseNode(ClaimID{Reservation, "8"}, "n8")
	pod := makePod("extra", "", "100m", "128Mi")
	adm := Admission{
		Allocatable: Resources{MilliCPU: 32000, Memory: 64 << 30, Pods: 110},
		Requested:   Resources{MilliCPU: 1000, Pods: 10},
		Present:     func(types.UID) bool { return false },
	}
	owner := adm
	owner.Claims, owner.Use = []ClaimID{{Reservation, "7"}}, UseFirst
	b.Run("AssumePod", func(b *testing.B) {
		for b.Loop() {
			if l.AssumePod(pod, "n8", t0) != nil || !l.ForgetPod(pod.UID, "n8") {
				b.Fatal("not assumed")
			}
		}
	})
	for _, c := range []struct {
		name, node string
		adm        *Admission
	}{{"noHolds", "n8", &adm}, {"besideHolds", "n7", &adm}, {"ownSlot", "n7", &owner}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := l.AssumePodOnHold(pod, c.node, c.adm, t0); err != nil || !l.ForgetPod(pod.UID, c.node) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHoldMemory reports what the ledger keeps for a hold of one slot, what readers see included.
func BenchmarkHoldMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	var perHold float64
	for b.Loop() {
		l := New(DefaultOptions())
		nodes := make([]*v1.Node, 5000)
		for i := range nodes {
			nodes[i] = makeNode(fmt.Sprintf("n%d", i), "a")
			l.AddNode(nodes[i])
		}
		before := heap()
		placeSlots(b, l, 100)
		perHold = float64(heap()-before) / 5000
		runtime.KeepAlive(l)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perHold, "B/hold")
}
