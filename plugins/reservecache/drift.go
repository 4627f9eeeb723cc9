package reservecache

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// driftCheckInterval is the least time between two comparisons. One of 5,000 unchanged nodes takes a
// fraction of a millisecond.
const driftCheckInterval = time.Second

// Drift is what a comparison of the ledger with the scheduler's snapshot found.
type Drift struct {
	// Checks counts the comparisons since the start, and CheckedAt is when the last was made.
	Checks    uint64
	CheckedAt time.Time
	// Compared is how many nodes either side has.
	Compared int
	// Unsettled is how many nodes differed at the last comparison, but not for long enough to say that
	// it is more than an event that has reached one side only.
	Unsettled int
	// Nodes are those that differ for good, sorted by name.
	Nodes []NodeDrift
}

// NodeDrift says how the ledger and the scheduler's snapshot differ on one node.
type NodeDrift struct {
	Node string
	// Since is when the oldest of the differences was first seen.
	Since time.Time
	// Differences are for people to read.
	Differences []string
}

// driftDetector compares the ledger with the snapshots that the scheduling cycles see. It looks at the
// nodes that changed on either side and at those that differed before.
type driftDetector struct {
	ledger   *ledger.Ledger
	settle   time.Duration
	interval time.Duration
	// mine reports whether the pods of a scheduler name are assumed through the plugin. Others are in the scheduler's
	// snapshot before the ledger hears of them.
	mine func(schedulerName string) bool

	mu       sync.Mutex // guards all fields below
	snapshot *ledger.Snapshot
	nodes    map[string]*comparison
	last     Drift
	// logging makes the next check happen at once and log its result.
	logging bool
}

// comparison is the last one of a node.
type comparison struct {
	check               uint64
	ledgerGeneration    uint64
	schedulerGeneration int64
	// differences has the time since which each has been seen without a break; nil if there are none.
	differences map[difference]time.Time
	// reported is set once the node has been logged as drifting.
	reported bool
}

func newDriftDetector(l *ledger.Ledger, settle time.Duration, mine func(string) bool) *driftDetector {
	return &driftDetector{
		ledger:   l,
		mine:     mine,
		settle:   settle,
		interval: min(driftCheckInterval, settle),
		snapshot: ledger.NewSnapshot(),
		nodes:    map[string]*comparison{},
	}
}

// report returns the result of the last comparison.
func (d *driftDetector) report() Drift {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last
	last.Nodes = slices.Clone(last.Nodes)
	return last
}

// check compares the ledger with the nodes of a scheduling cycle, unless the last comparison was a moment
// ago. It must be called within the cycle.
func (d *driftDetector) check(logger klog.Logger, nodes []fwk.NodeInfo, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.Checks > 0 && now.Sub(d.last.CheckedAt) < d.interval && !d.logging {
		return
	}
	start := time.Now()
	d.ledger.UpdateSnapshot(d.snapshot)
	snapshotDuration.Observe(time.Since(start).Seconds())
	driftChecks.Inc()

	d.last.Checks++
	d.last.CheckedAt = now
	inOrder := d.snapshot.Nodes()
	matched := 0
	for i, info := range nodes {
		name := info.Node().Name
		// Both sides list nodes in the same order, save in moments of change.
		var state *ledger.NodeState
		if i < len(inOrder) && inOrder[i].Node.Name == name {
			state = inOrder[i]
		} else {
			state = d.snapshot.Node(name)
		}
		if state != nil {
			matched++
		}
		d.compareLocked(name, state, info, now)
	}
	if matched < len(inOrder) {
		for _, state := range inOrder {
			if c := d.nodes[state.Node.Name]; c == nil || c.check != d.last.Checks {
				d.compareLocked(state.Node.Name, state, nil, now)
			}
		}
	}
	d.summarizeLocked(logger, now)
	if d.logging {
		d.logging = false
		logger.Info("Compared the ledger with the scheduler's snapshot", "nodes", d.last.Compared, "unsettled", d.last.Unsettled, "drift", d.last.Nodes)
	}
}

// logNext has the next cycle compare at once and log what it finds, be it nothing.
func (d *driftDetector) logNext() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logging = true
}

// compareLocked compares one node; either side may be nil.
func (d *driftDetector) compareLocked(name string, state *ledger.NodeState, info fwk.NodeInfo, now time.Time) {
	var ledgerGeneration uint64
	var schedulerGeneration int64
	if state != nil {
		ledgerGeneration = state.Generation
	}
	if info != nil {
		schedulerGeneration = info.GetGeneration()
	}
	c := d.nodes[name]
	if c == nil {
		c = &comparison{}
		d.nodes[name] = c
	} else if c.ledgerGeneration == ledgerGeneration && c.schedulerGeneration == schedulerGeneration {
		c.check = d.last.Checks
		return
	}
	c.check, c.ledgerGeneration, c.schedulerGeneration = d.last.Checks, ledgerGeneration, schedulerGeneration

	var differences map[difference]time.Time
	ours, theirs := contentsOf(state), contentsOfInfo(info)
	later := func(pod *v1.Pod) bool { return !d.mine(pod.Spec.SchedulerName) }
	compareContents(&ours, &theirs, "the scheduler's snapshot", later, func(found difference) {
		if found.pod == "" && state != nil && info != nil {
			found.ledgerGeneration, found.schedulerGeneration = ledgerGeneration, schedulerGeneration
		}
		if differences == nil {
			differences = map[difference]time.Time{}
		}
		since, lasts := c.differences[found]
		if !lasts {
			since = now
		}
		differences[found] = since
	})
	c.differences = differences
}

// contentsOf returns what the ledger has of a node, which may be nil.
func contentsOf(state *ledger.NodeState) contents {
	if state == nil {
		return contents{}
	}
	return contents{exists: true, pods: state.Pods, requested: &state.Requested, allocatable: state.Allocatable}
}

// contentsOfInfo returns what the scheduler's snapshot has of a node, which may be nil.
func contentsOfInfo(info fwk.NodeInfo) contents {
	if info == nil {
		return contents{}
	}
	requested, pods := requestedOf(info), make([]*v1.Pod, 0, len(info.GetPods()))
	for _, pod := range info.GetPods() {
		pods = append(pods, pod.GetPod())
	}
	return contents{exists: true, pods: pods, requested: &requested, allocatable: resourcesOf(info.GetAllocatable())}
}

// summarizeLocked forgets nodes that neither side has any longer and counts those that differ.
func (d *driftDetector) summarizeLocked(logger klog.Logger, now time.Time) {
	d.last.Unsettled, d.last.Nodes = 0, nil
	for name, c := range d.nodes {
		if c.check != d.last.Checks {
			delete(d.nodes, name)
			continue
		}
		if len(c.differences) == 0 {
			c.reported = false
			continue
		}
		oldest := slices.MinFunc(slices.Collect(maps.Values(c.differences)), time.Time.Compare)
		if now.Sub(oldest) < d.settle {
			d.last.Unsettled++
			continue
		}
		drift := NodeDrift{Node: name, Since: oldest}
		for found, since := range c.differences {
			if now.Sub(since) >= d.settle {
				drift.Differences = append(drift.Differences, found.String())
			}
		}
		slices.Sort(drift.Differences)
		d.last.Nodes = append(d.last.Nodes, drift)
		if !c.reported {
			c.reported = true
			logger.Error(nil, "The ledger and the scheduler's snapshot of a node have drifted apart", "node", klog.KRef("", name), "since", oldest, "differences", strings.Join(drift.Differences, "; "))
		}
	}
	d.last.Compared = len(d.nodes)
	slices.SortFunc(d.last.Nodes, func(a, b NodeDrift) int { return cmp.Compare(a.Node, b.Node) })
}
