package placement

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// benchScene has 5,000 nodes of three zones with ten pods each.
func benchScene(b *testing.B) *scene {
	s := newScene(1)
	zones := []string{"a", "b", "c"}
	for i := range 5000 {
		name := fmt.Sprintf("n%d", i)
		n := makeNode(name, zones[i%3], "5")
		n.Labels["pool"] = fmt.Sprint(i % 100)
		s.ledger.AddNode(n)
		for p := range 10 {
			s.add(b, makePod(fmt.Sprintf("%s-%d", name, p), name, "200m"))
		}
	}
	return s
}

// cordon returns n7, cordoned or not in turn.
func cordon(i int) *v1.Node {
	n := makeNode("n7", "b", "5")
	n.Labels["pool"] = "7"
	n.Spec.Unschedulable = i%2 == 0
	return n
}

// benchTargets are 1,000 claims of ten slots, each with a selector of its own if selectors is set. Slots of size CPUs.
func benchTargets(size int64, selectors bool) []Target {
	var targets []Target
	for i := range 1000 {
		d := target(fmt.Sprintf("r%d", i), i, Zone{"a", 4}, Zone{"b", 3}, Zone{"c", 3})
		d.Claim.Slot.MilliCPU = 1000 * size
		if selectors {
			d.Requirements = floor.NewNodeRequirements(map[string]string{"pool": fmt.Sprint(i % 100)}, []v1.Toleration{{Key: fmt.Sprint(i), Operator: v1.TolerationOpExists}}, false)
		}
		targets = append(targets, d)
	}
	return targets
}

// BenchmarkStart places 10,000 slots on 5,000 nodes from nothing.
func BenchmarkStart(b *testing.B) {
	for _, selectors := range []bool{false, true} {
		b.Run(fmt.Sprintf("selectors=%t", selectors), func(b *testing.B) {
			s := benchScene(b)
			targets := benchTargets(1, selectors)
			for b.Loop() {
				b.StopTimer()
				for _, d := range targets {
					s.planner.Remove(d.Claim.UID)
				}
				s.planner.Reconcile(reads(s.view()), nil)
				b.StartTimer()
				s.reconcile(b, targets...)
				if n := len(s.planner.seekersLocked().claims); n > 0 {
					b.Fatal(n, " targets lack slots")
				}
			}
		})
	}
}

// BenchmarkCollect is what a scheduling cycle pays: while no claim lacks slots, and while 1,000 do for which there is no room, when
// nothing has changed, when a pod was bound to a node, when a pod left one, and when a node was cordoned and uncordoned.
func BenchmarkCollect(b *testing.B) {
	for _, size := range []int64{1, 4} {
		s := benchScene(b)
		s.reconcile(b, benchTargets(size, true)...)
		snapshot := ledger.NewSnapshot()
		collect := func() {
			s.ledger.UpdateSnapshot(snapshot)
			s.planner.Collect(snapshotView{snapshot})
		}
		collect()
		name := fmt.Sprintf("unfilled=%d/", len(s.planner.seekersLocked().claims))
		b.Run(name+"idle", func(b *testing.B) {
			for b.Loop() {
				collect()
			}
		})
		b.Run(name+"bound", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				pod := makePod("extra", "", "1m")
				s.ledger.ForgetPod(pod.UID, fmt.Sprintf("n%d", i%5000))
				collect()
				if err := s.ledger.AssumePod(pod, fmt.Sprintf("n%d", (i+1)%5000), t0); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				collect()
			}
		})
		b.Run(name+"left", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				pod := makePod("other", "", "1m")
				if err := s.ledger.AssumePod(pod, fmt.Sprintf("n%d", i%5000), t0); err != nil {
					b.Fatal(err)
				}
				collect()
				s.ledger.ForgetPod(pod.UID, fmt.Sprintf("n%d", i%5000))
				b.StartTimer()
				collect()
			}
		})
		b.Run(name+"cordoned", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				s.ledger.UpdateNode(cordon(i))
				b.StartTimer()
				collect()
			}
		})
	}
}

// BenchmarkReconcile is what the worker pays for a node that was cordoned or uncordoned beside 1,000 unfilled claims.
func BenchmarkReconcile(b *testing.B) {
	s := benchScene(b)
	s.reconcile(b, benchTargets(4, true)...)
	snapshot := ledger.NewSnapshot()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		s.ledger.UpdateNode(cordon(i))
		b.StartTimer()
		for more := true; more; {
			s.ledger.UpdateSnapshot(snapshot)
			more = s.planner.Reconcile(reads(snapshotView{snapshot}), nil).More
		}
	}
}

// BenchmarkAmounts is what one claim of amounts on 5,000 nodes costs, which all lack a part: to place it, a cycle and a pass after a pod has
// left a node, and a report.
func BenchmarkAmounts(b *testing.B) {
	s := benchScene(b)
	amounts := map[string]ledger.Resources{}
	for i := range 5000 {
		amounts[fmt.Sprintf("n%d", i)] = ledger.Resources{MilliCPU: 4000, Memory: 1 << 30, Pods: 4}
	}
	d := targetOn("d", 0, amounts)
	s.reconcile(b, d)
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s.planner.Remove(d.Claim.UID)
			s.planner.Reconcile(reads(s.view()), nil)
			b.StartTimer()
			s.reconcile(b, d)
		}
	})
	snapshot := ledger.NewSnapshot()
	for name, look := range map[string]func(){
		"cycle": func() { s.planner.Collect(snapshotView{snapshot}) },
		"pass":  func() { s.planner.Reconcile(reads(snapshotView{snapshot}), nil) },
	} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				node := fmt.Sprintf("n%d", i%5000)
				pod := makePod("other", "", "1m")
				if err := s.ledger.AssumePod(pod, node, t0); err != nil {
					b.Fatal(err)
				}
				s.ledger.UpdateSnapshot(snapshot)
				look()
				s.ledger.ForgetPod(pod.UID, node)
				s.ledger.UpdateSnapshot(snapshot)
				b.StartTimer()
				look()
			}
		})
	}
	b.Run("report", func(b *testing.B) {
		for b.Loop() {
			if _, ok := s.planner.Report(d.Claim.UID); !ok {
				b.Fatal("no report")
			}
		}
	})
}
