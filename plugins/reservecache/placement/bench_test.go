package placement

import (
	"fmt"
	"testing"

	"zonewise.dev/plugins/reservecache/ledger"
)

// benchCluster returns 5,000 nodes of three zones with ten pods each, and the demands of 100 reservations for
// 5,000 slots.
func benchCluster(b *testing.B) (*ledger.Ledger, []Demand) {
	l := ledger.New(ledger.DefaultOptions())
	zones := []string{"a", "b", "c"}
	for i := range 5000 {
		name := fmt.Sprintf("n%d", i)
		l.AddNode(makeNode(name, zones[i%3], "4"))
		for p := range 10 {
			add(b, l, makePod(fmt.Sprintf("%s-%d", name, p), name, "200m"))
		}
	}
	var demands []Demand
	for i := range 100 {
		demands = append(demands, demand(fmt.Sprintf("r%d", i), i, Zone{"a", 17}, Zone{"b", 17}, Zone{"c", 16}))
	}
	return l, demands
}

// BenchmarkReconcile places 5,000 slots on 5,000 nodes from nothing, looks at them when all are in their places,
// and repairs them after a node was cordoned.
func BenchmarkReconcile(b *testing.B) {
	l, demands := benchCluster(b)
	b.Run("fresh", func(b *testing.B) {
		for b.Loop() {
			k := NewKeeper(l)
			for _, d := range demands {
				k.Remove(d.Claim.ID)
				if err := k.Set(d); err != nil {
					b.Fatal(err)
				}
			}
			k.Reconcile(nil)
			if n := len(l.Queue()); n > 0 {
				b.Fatal(n, " reservations are unfilled")
			}
		}
	})
	k := NewKeeper(l)
	for _, d := range demands {
		if err := k.Set(d); err != nil {
			b.Fatal(err)
		}
	}
	k.Reconcile(nil)
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if len(k.Reconcile(nil).Changed) > 0 {
				b.Fatal("slots moved")
			}
		}
	})
	b.Run("afterCordon", func(b *testing.B) {
		status, _ := l.Claim(demands[0].Claim.ID)
		node := makeNode(status.Holds[0].Node, status.Holds[0].Zone, "4")
		for i := 0; b.Loop(); i++ {
			n := node.DeepCopy()
			n.Spec.Unschedulable = i%2 == 0
			l.UpdateNode(n)
			k.Reconcile(nil)
		}
	})
}

// BenchmarkRefill is what a scheduling cycle pays: while all reservations have what they want, and while one
// lacks slots and there is no room, when nothing changed and when one node did.
func BenchmarkRefill(b *testing.B) {
	l, demands := benchCluster(b)
	k := NewKeeper(l)
	for _, d := range demands {
		if err := k.Set(d); err != nil {
			b.Fatal(err)
		}
	}
	k.Reconcile(nil)
	s := ledger.NewSnapshot()
	l.UpdateSnapshot(s)
	view := snapshotView{s}
	b.Run("filled", func(b *testing.B) {
		for b.Loop() {
			k.Refill(view, nil)
		}
	})
	big := demand("big", 200, Zone{"a", 10})
	big.Slot.MilliCPU = 4000
	if err := k.Set(big); err != nil {
		b.Fatal(err)
	}
	k.Reconcile(nil)
	k.Refill(view, nil)
	b.Run("unfilled", func(b *testing.B) {
		for b.Loop() {
			k.Refill(view, nil)
		}
	})
	b.Run("unfilledAfterOneAssume", func(b *testing.B) {
		pod := makePod("extra", "", "100m")
		for b.Loop() {
			if l.ForgetPod(pod.UID, "n7"); l.AssumePod(pod, "n7", t0) != nil {
				b.Fatal("not assumed")
			}
			l.UpdateSnapshot(s)
			k.Refill(view, nil)
		}
	})
}
