package reservecache

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
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
	add := func(node string, found ...string) {
		for _, what := range found {
			differences = append(differences, "node "+node+": "+what)
		}
	}
	for _, info := range nodes {
		name := info.Node().Name
		seen[name] = true
		add(name, c.differencesOn(snapshot.Node(name), info)...)
	}
	for _, n := range snapshot.Nodes() {
		if !seen[n.Node.Name] {
			add(n.Node.Name, "the node is in the ledger only")
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

// differencesOn returns what the ledger has of a node otherwise than the scheduler's snapshot; ours may be nil.
func (c *comparison) differencesOn(ours *ledger.NodeState, theirs fwk.NodeInfo) (found []string) {
	if ours == nil {
		return []string{"the node is in the scheduler's snapshot only"}
	}
	here := map[types.UID]bool{}
	for _, pod := range ours.Pods {
		here[pod.UID] = true
	}
	same := true
	for _, pod := range podsOf(theirs) {
		if !here[pod.UID] {
			same = false
			if c.mine(pod.Spec.SchedulerName) { // of others the ledger hears later
				found = append(found, "a pod is in the scheduler's snapshot only: "+string(pod.UID))
			}
		}
		delete(here, pod.UID)
	}
	for uid := range here {
		same = false
		found = append(found, "a pod is in the ledger only: "+string(uid))
	}
	requested, allocatable := requestedOf(theirs), resourcesOf(theirs.GetAllocatable())
	// Where the pods differ, the sums do too, for that reason.
	if same && !ours.Requested.Equal(&requested) {
		found = append(found, "the sums of requests differ")
	}
	if !ours.Allocatable.Equal(&allocatable) {
		found = append(found, "the allocatable resources differ")
	}
	return found
}
