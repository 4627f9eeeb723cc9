package zonespread

import (
	"context"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
)

// sharedIndex is the index of one scheduler, which all of its profiles use: they see one snapshot.
type sharedIndex struct {
	mu          sync.Mutex // guards the fields below, and what is reached from index except the tables that it returned
	index       *counts.Index
	reported    counts.Stats // what the metrics say
	generations []int64      // of the snapshot's nodes; only used while the index learns them
}

func newSharedIndex() *sharedIndex {
	return &sharedIndex{index: counts.NewIndex(counts.DefaultLimits())}
}

const updatedStateKey fwk.StateKey = "Updated" + Name

// updatedState marks a cycle whose snapshot the index has learned.
type updatedState struct{ update uint64 }

// Clone returns the state itself: nothing changes it.
func (s updatedState) Clone() fwk.StateData { return s }

// learnLocked lets the index learn a snapshot.
func (s *sharedIndex) learnLocked(nodes []fwk.NodeInfo) {
	generations := slices.Grow(s.generations[:0], len(nodes))[:len(nodes)]
	for i, n := range nodes {
		// Nothing else is in this loop, so that the processor fetches many nodes from memory at a time.
		generations[i] = n.GetGeneration()
	}
	s.generations = generations
	counts.Update(s.index, nodes, s.generations)
}

// count answers queries about the snapshot of a scheduling cycle, whose nodes are given.
func (pl *ZoneSpread) count(ctx context.Context, cycleState fwk.CycleState, nodes []fwk.NodeInfo, queries []counts.Query) []*counts.Table {
	if len(queries) == 0 {
		return nil
	}
	if cycleState.IsPodGroupSchedulingCycle() {
		// The snapshot of a pod group's cycle holds pods that are only tried out, under the generations
		// that the nodes had without them: the index must not see it.
		directCounts.Inc()
		return counts.Direct(nodes, queries, func(n int, do func(int)) {
			pl.parallelize.Until(ctx, n, do, Name)
		})
	}

	pl.shared.index.mu.Lock()
	defer pl.shared.index.mu.Unlock()
	ix := pl.shared.index.index
	// A cycle has one snapshot from PreFilter to PreScore, so that the second need not look at it again,
	// unless another cycle came in between.
	known, _ := cycleState.Read(updatedStateKey) // an error says that there is none
	if known != (updatedState{ix.Updates()}) {
		pl.shared.index.learnLocked(nodes)
		cycleState.Write(updatedStateKey, updatedState{ix.Updates()})
	}
	tables := ix.Count(queries)
	stats := ix.Stats()
	reportStats(pl.shared.index.reported, stats)
	pl.shared.index.reported = stats
	return tables
}
