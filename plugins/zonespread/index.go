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
	reported    counts.Stats // the values of the metrics
	generations []int64      // of the snapshot's nodes; only used while the index learns them

	differ func(difference string) // set by CompareCounts, and never changes later; nil otherwise
}

func newSharedIndex() *sharedIndex {
	return &sharedIndex{index: counts.NewIndex(counts.DefaultLimits())}
}

const updatedStateKey fwk.StateKey = "Updated" + Name

// updatedState marks a cycle whose snapshot the index has learned.
type updatedState struct{ update uint64 }

// Clone returns the state itself: nothing changes it.
func (s updatedState) Clone() fwk.StateData { return s }

// updateLocked updates the index with a snapshot.
func (s *sharedIndex) updateLocked(nodes []fwk.NodeInfo) {
	generations := slices.Grow(s.generations[:0], len(nodes))[:len(nodes)]
	for i, n := range nodes {
		// This loop does nothing else, so that the processor fetches many nodes from memory at a time.
		generations[i] = n.GetGeneration()
	}
	s.generations = generations
	counts.Update(s.index, nodes, s.generations)
}

// queries are what a cycle wants to have counted, each with the place for its answer.
type queries struct {
	queries []counts.Query
	answers []**counts.Table
}

func (q *queries) add(query counts.Query, answer **counts.Table) {
	q.queries, q.answers = append(q.queries, query), append(q.answers, answer)
}

// answer counts what the queries ask for, and puts the answers into their places.
func (pl *ZoneSpread) answer(ctx context.Context, cycleState fwk.CycleState, nodes []fwk.NodeInfo, q *queries) {
	for i, table := range pl.count(ctx, cycleState, nodes, q.queries) {
		*q.answers[i] = table
	}
}

// count answers queries about the snapshot of a scheduling cycle, whose nodes are given.
func (pl *ZoneSpread) count(
	ctx context.Context, cycleState fwk.CycleState, nodes []fwk.NodeInfo, queries []counts.Query,
) []*counts.Table {
	if len(queries) == 0 {
		return nil
	}
	if cycleState.IsPodGroupSchedulingCycle() {
		// The snapshot of a pod group's cycle has pods that are only tried, while the nodes keep their
		// generations: the index must not see it.
		directCounts.Inc()
		return counts.Direct(nodes, queries, func(n int, do func(int)) {
			pl.parallelize.Until(ctx, n, do, Name)
		})
	}

	pl.shared.index.mu.Lock()
	defer pl.shared.index.mu.Unlock()
	ix := pl.shared.index.index
	// A cycle has one snapshot from PreFilter to PreScore, so PreScore need not look at it again unless
	// another cycle came in between.
	known, _ := cycleState.Read(updatedStateKey) // not found is the only error
	if known != (updatedState{ix.Updates()}) {
		pl.shared.index.updateLocked(nodes)
		cycleState.Write(updatedStateKey, updatedState{ix.Updates()})
	}
	// What is kept is complete, even if the cycle is given up: hence without its context.
	tables := ix.Count(queries, func(n int, do func(int)) {
		pl.parallelize.Until(context.WithoutCancel(ctx), n, do, Name)
	})
	pl.shared.index.compareLocked(nodes, queries, tables)
	stats := ix.Stats()
	reportStats(pl.shared.index.reported, stats)
	pl.shared.index.reported = stats
	return tables
}
