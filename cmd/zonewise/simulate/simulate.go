package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/world"
)

// Scenario is what happens.
type Scenario struct {
	// Zones and Nodes are lost.
	Zones, Nodes []string
	// Added are pods that come first, see ParseWorkload.
	Added *Workload
}

// Name says what happens in a few words.
func (s *Scenario) Name() string {
	var parts []string
	if s.Added != nil {
		parts = append(parts, "add "+s.Added.Name)
	}
	if len(s.Zones) > 0 {
		parts = append(parts, "lose zone "+strings.Join(s.Zones, ", "))
	}
	if len(s.Nodes) > 0 {
		parts = append(parts, "lose node "+strings.Join(s.Nodes, ", "))
	}
	return strings.Join(parts, ", then ")
}

// Result is what comes of a scenario.
type Result struct {
	Scenario string `json:"scenario"`
	// LostNodes is how many nodes go.
	LostNodes int `json:"lostNodes"`
	// Displaced pods are made anew by their controllers; Placed of them find a node, Pending do not. Added pods are
	// among them.
	Displaced int `json:"displaced"`
	Added     int `json:"added,omitempty"`
	Placed    int `json:"placed"`
	Pending   int `json:"pending"`
	// NodeBound pods go with their nodes (DaemonSets, mirror pods). Orphans have no controller that would make
	// them anew.
	NodeBound int `json:"nodeBound"`
	Orphans   int `json:"orphans"`
	// WaitedBefore pods had no node to begin with.
	WaitedBefore int `json:"waitedBefore"`

	Workloads    []Workloads   `json:"workloads"`
	Zones        []Zone        `json:"zones"`
	Policies     []Policy      `json:"policies"`
	Budgets      []Budget      `json:"budgets"`
	Gangs        []Gang        `json:"gangs"`
	Reservations []Reservation `json:"reservations"`
	Notes        []string      `json:"notes,omitempty"`
}

// Workloads is what becomes of the pods of one workload that have to find a node.
type Workloads struct {
	Name    string         `json:"name"`
	Pods    int            `json:"pods"`
	To      map[string]int `json:"to,omitempty"`
	Pending int            `json:"pending,omitempty"`
	// Why says what is in the way of the pods that wait.
	Why []string `json:"why,omitempty"`
}

// Zone is what a zone has before and after.
type Zone struct {
	Name                string `json:"name"`
	Lost                bool   `json:"lost,omitempty"`
	PodsBefore          int    `json:"podsBefore"`
	PodsAfter           int    `json:"podsAfter"`
	MilliCPUBefore      int64  `json:"milliCPURequestedBefore"`
	MilliCPUAfter       int64  `json:"milliCPURequestedAfter"`
	MilliCPUAllocatable int64  `json:"milliCPUAllocatable"`
	MemoryBefore        int64  `json:"memoryRequestedBefore"`
	MemoryAfter         int64  `json:"memoryRequestedAfter"`
	MemoryAllocatable   int64  `json:"memoryAllocatable"`
}

// Progress is told how many of all pods have been looked at.
type Progress func(done, all int)

// Run plays a scenario. The snapshot is not changed. Errors name the flag that is wrong.
func Run(s *snapshot.Snapshot, now time.Time, scenario *Scenario, progress Progress) (*Result, error) {
	if progress == nil {
		progress = func(int, int) {}
	}
	p := &play{
		world: world.New(s, now), result: &Result{Scenario: scenario.Name()}, progress: progress,
		why: map[string]*Workloads{}, seen: map[*world.Pod]bool{}, pending: map[*world.Pod]bool{}, displaced: map[*world.Pod]bool{},
	}
	p.before()
	if scenario.Added != nil {
		p.add(scenario.Added)
	}
	lost, err := p.lost(scenario)
	if err != nil {
		return nil, err
	}
	p.all = len(p.waiting)
	p.lose(lost)
	p.place()
	p.after()
	return p.result, nil
}

// play is a scenario that runs.
type play struct {
	world    *world.World
	result   *Result
	progress Progress
	baseline baseline

	waiting   []*world.Pod // that have to find a node
	moved     []*world.Pod // that had to
	seen      map[*world.Pod]bool
	displaced map[*world.Pod]bool
	pending   map[*world.Pod]bool
	healthy   map[*corev1.Pod]bool // ready before
	why       map[string]*Workloads
	done, all int
}

// lost returns what tells lost nodes.
func (p *play) lost(s *Scenario) (func(*world.Node) bool, error) {
	zones, nodes := map[string]bool{}, map[string]bool{}
	for _, zone := range s.Zones {
		if !slices.Contains(p.world.Zones(), zone) {
			return nil, fmt.Errorf("--lose-zone: there is no zone %q, only %s", zone, strings.Join(p.world.Zones(), ", "))
		}
		zones[zone] = true
	}
	for _, node := range s.Nodes {
		if p.world.Node(node) == nil {
			return nil, fmt.Errorf("--lose-node: there is no node %q", node)
		}
		nodes[node] = true
	}
	return func(n *world.Node) bool { return zones[n.Zone] || nodes[n.Object.Name] }, nil
}

// add takes in pods that are not there yet.
func (p *play) add(workload *Workload) {
	p.world.AddWorkload(workload.Objects)
	for i := range workload.Pods {
		p.waiting = append(p.waiting, p.world.Add(&workload.Pods[i]))
	}
	p.result.Added = len(workload.Pods)
}

// lose takes nodes away, and sorts out which of their pods are made anew.
func (p *play) lose(lost func(*world.Node) bool) {
	if len(p.waiting) > 0 {
		p.place() // what is added comes first, and may then be displaced
	}
	for _, n := range p.world.Nodes {
		if lost(n) {
			p.result.LostNodes++
		}
	}
	if p.result.LostNodes == 0 {
		return
	}
	gone := map[*world.Pod]bool{}
	for _, pod := range p.world.Lose(lost) {
		switch {
		case nodeBound(pod.Object):
			p.result.NodeBound++
			gone[pod] = true
		case len(pod.Object.OwnerReferences) == 0:
			p.result.Orphans++
			gone[pod] = true
		default:
			p.displaced[pod] = true
			p.waiting = append(p.waiting, pod)
		}
	}
	p.world.Remove(gone)
	p.result.Displaced = len(p.displaced)
	p.all += len(p.displaced)
}

// nodeBound tells whether a pod goes with its node.
func nodeBound(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	for i := range pod.OwnerReferences {
		if kind := pod.OwnerReferences[i].Kind; kind == "DaemonSet" || kind == "Node" {
			return true
		}
	}
	return false
}

// place finds nodes for the pods that wait: the highest priority first, then gang by gang and workload by workload. A gang
// is placed with all its members that wait, since it is planned with all.
func (p *play) place() {
	type unit struct {
		pods     []*world.Pod
		gang     string
		name     string
		priority int32
	}
	units := map[string]*unit{}
	var order []*unit
	for _, pod := range p.waiting {
		name, gang := p.world.Workload(pod.Object), pod.Gang()
		priority := ptr.Deref(pod.Object.Spec.Priority, 0)
		key := fmt.Sprintf("%d\x00%s\x00%s", priority, gang, name)
		if gang != "" {
			key = gang
		}
		u := units[key]
		if u == nil {
			u = &unit{gang: gang, name: name, priority: priority}
			units[key] = u
			order = append(order, u)
		}
		u.priority = max(u.priority, priority)
		u.pods = append(u.pods, pod)
	}
	slices.SortFunc(order, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), strings.Compare(a.gang, b.gang), strings.Compare(a.name, b.name))
	})
	for _, pod := range p.waiting {
		if !p.seen[pod] {
			p.seen[pod] = true
			p.moved = append(p.moved, pod)
		}
	}
	p.waiting = nil
	for _, u := range order {
		why := ""
		if u.gang != "" {
			placement := p.world.PlaceGang(p.world.Gang(u.gang))
			if placement.Why != "" {
				why = "PodGroup " + u.gang + ": " + placement.Why
			}
			for _, pod := range placement.Placed {
				delete(p.pending, pod) // it may have waited for the others
			}
		}
		for _, pod := range u.pods {
			if pod.Node == nil && (u.gang != "" || !p.world.Place(pod)) {
				p.wait(pod, why)
			}
			p.tick()
		}
	}
}

func (p *play) tick() {
	p.done++
	p.all = max(p.all, p.done)
	if p.done%1000 == 0 || p.done == p.all {
		p.progress(p.done, p.all)
	}
}

// wait records a pod that finds no node, and why, once for each workload.
func (p *play) wait(pod *world.Pod, why string) {
	p.pending[pod] = true
	name := p.world.Workload(pod.Object)
	w := p.why[name]
	if w == nil {
		w = &Workloads{Name: name}
		p.why[name] = w
	}
	switch {
	case why != "" && !slices.Contains(w.Why, why):
		w.Why = append(w.Why, why)
	case why == "" && len(w.Why) == 0:
		w.Why = reasons(p.world.Ask(pod.Object))
	}
}

// reasons sums obstacles up over all zones, the most frequent first.
func reasons(zones []world.ZoneAnswer) []string {
	nodes := map[string]int{}
	for i := range zones {
		for _, o := range zones[i].Obstacles {
			nodes[o.Words] += o.Nodes
		}
	}
	words := make([]string, 0, len(nodes))
	for w := range nodes {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(nodes[b], nodes[a]), strings.Compare(a, b)) })
	words = words[:min(len(words), 4)]
	for i, w := range words {
		noun := "nodes"
		if nodes[w] == 1 {
			noun = "node"
		}
		words[i] = fmt.Sprintf("%d %s %s", nodes[w], noun, w)
	}
	return words
}
