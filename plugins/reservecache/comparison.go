package reservecache

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// comparison compares the ledger with the snapshot of a scheduling cycle, outside of which a snapshot must not be read:
// with that of the next cycle after a signal, and in tests with that of each.
type comparison struct {
	ledger *ledger.Ledger
	// mine reports whether the pods of a scheduler name are assumed through the plugin. Others are in the scheduler's
	// snapshot before the ledger hears of them.
	mine   func(schedulerName string) bool
	always bool

	mu        sync.Mutex // guards all fields below
	requested bool
	last      Comparison
}

// Comparison is what a comparison of the ledger with the scheduler's snapshot found.
type Comparison struct {
	// Count is how many comparisons there have been.
	Count int
	// Differences are for people to read, sorted. An event that one side is about to hear of shows as one, too.
	Differences []string
}

// request has the next cycle compare, and log what it finds, be it nothing.
func (c *comparison) request() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested = true
}

// compare compares the ledger with the nodes of a cycle, if that is wanted.
func (c *comparison) compare(logger klog.Logger, nodes []fwk.NodeInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.always && !c.requested {
		return
	}
	snapshot := ledger.NewSnapshot()
	c.ledger.UpdateSnapshot(snapshot)
	differences, seen := []string{}, map[string]bool{}
	later := func(pod *v1.Pod) bool { return !c.mine(pod.Spec.SchedulerName) }
	one := func(name string, ours, theirs contents) {
		compareContents(&ours, &theirs, "the scheduler's snapshot", later, func(d difference) {
			differences = append(differences, "node "+name+": "+d.String())
		})
	}
	for _, info := range nodes {
		name := info.Node().Name
		seen[name] = true
		one(name, contentsOf(snapshot.Node(name)), contentsOfInfo(info))
	}
	for _, n := range snapshot.Nodes() {
		if !seen[n.Node.Name] {
			one(n.Node.Name, contentsOf(n), contents{})
		}
	}
	slices.Sort(differences)
	c.last = Comparison{Count: c.last.Count + 1, Differences: differences}
	if c.requested {
		c.requested = false
		logger.Info("Compared the ledger with the scheduler's snapshot", "nodes", len(nodes), "differences", differences)
	}
}

func (c *comparison) report() Comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// contentsOf returns what the ledger has of a node, which may be nil.
func contentsOf(state *ledger.NodeState) contents {
	if state == nil {
		return contents{}
	}
	return contents{exists: true, pods: state.Pods, requested: &state.Requested, allocatable: state.Allocatable}
}

// contentsOfInfo returns what the scheduler's snapshot has of a node.
func contentsOfInfo(info fwk.NodeInfo) contents {
	requested := requestedOf(info)
	return contents{exists: true, pods: podsOf(info), requested: &requested, allocatable: resourcesOf(info.GetAllocatable())}
}
