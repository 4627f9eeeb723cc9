package worlds

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/reservecache/ledger"
)

// checkSettled checks what is true at an instant at which the scheduler has done all that there is to do, before the kubelets and the controllers act.
func (p *player) checkSettled() {
	if p.server.EventDelay.Load() == 0 {
		p.checkLedger(p.scheduling)
	}
	p.checkSpread()
}

// checkLedger: the ledger has the pods, the sums and the nodes that the scheduler's cache has.
func (p *player) checkLedger(s *scheduling) {
	snapshot := ledger.NewSnapshot()
	s.pack.ReserveCache().Ledger().UpdateSnapshot(snapshot)
	nodes := s.scheduler.Cache.Dump().Nodes
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		theirs, ours := nodes[name], snapshot.Node(name)
		switch {
		case theirs.Node() == nil: // it is gone, and pods of it are there
			continue
		case ours == nil:
			p.fail(LedgerIsCluster, "the ledger lacks node %s", name)
			continue
		}
		pods := sets.New[types.UID]()
		for _, pod := range theirs.Pods {
			pods.Insert(pod.GetPod().UID)
		}
		own := sets.New[types.UID]()
		for _, pod := range ours.Pods {
			own.Insert(pod.UID)
		}
		if !own.Equal(pods) {
			p.fail(LedgerIsCluster, "node %s: the ledger alone has pods %v, the scheduler alone %v", name, sets.List(own.Difference(pods)), sets.List(pods.Difference(own)))
		}
		if ours.Requested.MilliCPU != theirs.Requested.MilliCPU || ours.Allocatable.MilliCPU != theirs.Allocatable.MilliCPU {
			p.fail(LedgerIsCluster, "node %s: the ledger has %dm of %dm CPUs requested, the scheduler %dm of %dm", name,
				ours.Requested.MilliCPU, ours.Allocatable.MilliCPU, theirs.Requested.MilliCPU, theirs.Allocatable.MilliCPU)
		}
	}
	for _, n := range snapshot.Nodes() {
		if info := nodes[n.Node.Name]; info == nil || info.Node() == nil {
			p.fail(LedgerIsCluster, "the ledger alone has node %s", n.Node.Name)
		}
	}
}

// checkSpread: where pods with a hard constraint over zones have been bound since the last look, and nothing has been taken away, their zone has at most
// one more than the emptiest. A pod that was bound at the same time in that one makes the skew smaller than what the scheduler saw, never larger.
func (p *player) checkSpread() {
	now := p.spreadBound()
	before := p.spread
	p.spread = now
	if before.at.IsZero() || !p.changedAt.Before(now.at) || p.changedAt.After(before.at) || p.server.EventDelay.Load() > 0 ||
		p.bindsAreSlow() || now.lacks(before) {
		return
	}
	for uid, pod := range now.pods {
		if _, known := before.pods[uid]; known {
			continue
		}
		w := p.workloads[pod.Labels[workloadLabel]]
		if w == nil || w.Spread != OverZones || w.gang() || p.sharesApp(w) {
			continue
		}
		counts := map[string]int{}
		for _, n := range p.allNodes() {
			if w.Pool == "" || n.Pool == w.Pool {
				counts[n.Zone] += 0
			}
		}
		for _, other := range now.pods {
			if n := p.nodes[other.Spec.NodeName]; n != nil && other.Labels["app"] == w.app() && other.DeletionTimestamp == nil && (w.Pool == "" || n.Pool == w.Pool) {
				counts[n.Zone]++
			}
		}
		n := p.nodes[pod.Spec.NodeName]
		if n == nil || len(counts) == 0 {
			continue
		}
		least := slices.Min(slices.Collect(maps.Values(counts)))
		if counts[n.Zone]-least > 1 {
			p.fail(SpreadHolds, "pod %s was bound in zone %s, where its app has %d pods now, and %d in another", pod.Name, n.Zone, counts[n.Zone], least)
		}
	}
}

// spreadLook is which pods were bound at a time.
type spreadLook struct {
	at   time.Time
	pods map[types.UID]v1.Pod
}

func (p *player) spreadBound() spreadLook {
	look := spreadLook{time.Now(), map[types.UID]v1.Pod{}}
	for _, pod := range p.listPods() {
		if pod.Spec.NodeName != "" && !finished(&pod) {
			look.pods[pod.UID] = pod
		}
	}
	return look
}

// lacks reports whether a pod that was there before has gone or terminates now.
func (l spreadLook) lacks(before spreadLook) bool {
	for uid, pod := range before.pods {
		if now, there := l.pods[uid]; !there || now.DeletionTimestamp != nil && pod.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// bindsAreSlow reports whether pods may be assumed for long before they are bound.
func (p *player) bindsAreSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.breaks)+len(p.refusals)+len(p.bindsTake)+len(p.preBindsTake) > 0
}

// sharesApp reports whether a gang has pods of the workload's app.
func (p *player) sharesApp(w *workload) bool {
	for _, other := range p.workloads {
		if other != w && other.gang() && other.app() == w.app() {
			return true
		}
	}
	return false
}
