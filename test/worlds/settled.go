package worlds

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/reservecache/ledger"
)

// checkSettled checks what is true at an instant at which the scheduler has done all that there is to do, before the
// kubelets and the controllers act.
func (p *player) checkSettled() {
	if p.server.EventDelay.Load() == 0 && !p.alone {
		p.checkLedger(p.scheduling)
	}
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
