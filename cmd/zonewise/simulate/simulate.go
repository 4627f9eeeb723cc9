package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
)

// Scenario lists what happens, in this order.
type Scenario struct {
	// AddNodes copies of the node Like are added.
	AddNodes int
	Like     string
	// Bought has for nodes how many more copies of them are added.
	Bought map[string]int
	// Added is created, see ParseWorkload.
	Added *Workload
	// Drained nodes are cordoned, and their pods evicted as kubectl drain does.
	Drained []string
	// Zones and Nodes are lost.
	Zones, Nodes []string
	// Return brings them back, once the displaced pods have found other nodes.
	Return bool
	// Rebalance plans moves in the end.
	Rebalance bool
}

// Name describes the scenario in a few words.
func (s *Scenario) Name() string {
	var parts []string
	if s.AddNodes > 0 {
		parts = append(parts, fmt.Sprintf("add %d nodes like %s", s.AddNodes, s.Like))
	}
	if s.Added != nil {
		parts = append(parts, "add "+s.Added.Name)
	}
	if len(s.Drained) > 0 {
		parts = append(parts, "drain node "+strings.Join(s.Drained, ", "))
	}
	if len(s.Zones) > 0 {
		parts = append(parts, "lose zone "+strings.Join(s.Zones, ", "))
	}
	if len(s.Nodes) > 0 {
		parts = append(parts, "lose node "+strings.Join(s.Nodes, ", "))
	}
	if s.Return {
		parts = append(parts, "bring it back")
	}
	if s.Rebalance {
		parts = append(parts, "rebalance")
	}
	return strings.Join(parts, ", then ")
}

// Result is the result of a scenario.
type Result struct {
	Scenario string `json:"scenario"`
	// LostNodes, AddedNodes and DrainedNodes count nodes.
	LostNodes    int `json:"lostNodes"`
	AddedNodes   int `json:"addedNodes,omitempty"`
	DrainedNodes int `json:"drainedNodes,omitempty"`
	// ReturnedNodes of the lost ones have come back.
	ReturnedNodes int `json:"returnedNodes,omitempty"`
	// Displaced pods were on lost or drained nodes, Evicted ones made room for others; their controllers replace both.
	// Of the replacements and the Added pods, Placed find a node and Pending do not.
	Displaced int `json:"displaced"`
	Evicted   int `json:"evicted,omitempty"`
	Added     int `json:"added,omitempty"`
	// Removed pods are those that a workload of the file has no more, or that it replaces.
	Removed int `json:"removed,omitempty"`
	Placed  int `json:"placed"`
	Pending int `json:"pending"`
	// PendingElsewhere are displaced and evicted pods of other schedulers that would find no node if kube-scheduler
	// placed them. They are none of Pending: what their scheduler would do is not known.
	PendingElsewhere int `json:"pendingElsewhere,omitempty"`
	// NodeBound pods are lost with their nodes (DaemonSets, static pods). Orphans have no controller that replaces
	// them; NotReplaced says why.
	NodeBound   int    `json:"nodeBound"`
	Orphans     int    `json:"orphans"`
	NotReplaced []Lost `json:"notReplaced,omitempty"`
	// WaitedBefore pods had no node at the start; StillWaiting of them have none in the end.
	WaitedBefore int `json:"waitedBefore"`
	StillWaiting int `json:"stillWaiting"`
	// NodesStay is what becomes of them while the lost nodes' objects still exist; nil if no node is lost, or if they
	// come back.
	NodesStay *NodesStay `json:"nodesStay,omitempty"`
	// Passed is about the time that passes in the copy until nothing more happens.
	Passed string `json:"passed"`

	Workloads []Workloads `json:"workloads"`
	Zones     []ZoneLoad  `json:"zones"`
	Promises  []Promise   `json:"promises"`
	// Rebalance is the plan of a scenario that ends with one.
	Rebalance    *rebalance.Plan `json:"rebalance,omitempty"`
	Certificates []Certificate   `json:"certificates,omitempty"`
	Notes        []string        `json:"notes,omitempty"`
}

// Lost are pods that no controller replaces, and why.
type Lost struct {
	Pods int    `json:"pods"`
	Why  string `json:"why"`
}

// Workloads is what becomes of the pods of one workload that have to find a node.
type Workloads struct {
	Name    string         `json:"name"`
	Pods    int            `json:"pods"`
	To      map[string]int `json:"to,omitempty"`
	Pending int            `json:"pending,omitempty"`
	// Why says in the scheduler's words why pods wait.
	Why []string `json:"why,omitempty"`
	// Scheduler is that of pods which the configuration has no profile for. They are placed as kube-scheduler would.
	Scheduler string `json:"scheduler,omitempty"`
}

// NodesStay is what becomes of displaced pods while the objects of the lost nodes still exist, not ready and tainted as
// unreachable: in an outage, until somebody or something deletes them.
type NodesStay struct {
	// Placed and Pending count replacements, as those of a Result. Staying pods tolerate the taint, and stay on nodes
	// that do not run them.
	Placed  int `json:"placed"`
	Pending int `json:"pending"`
	Staying int `json:"staying,omitempty"`
	// Workloads are those of which more pods wait than once the nodes are deleted.
	Workloads []Workloads `json:"workloads,omitempty"`
}

// mostWhys is the largest number of the scheduler's reasons that are kept for a workload.
const mostWhys = 4

// Run runs a scenario that Check accepts on a copy of the cluster, see sim.Of for the options. What is lost and does
// not come back is lost in both forms: the nodes are deleted, and they stay.
func Run(ctx context.Context, c *census.Census, scenario *Scenario, options sim.Options) (*Result, error) {
	gone, err := runForm(ctx, c, scenario, options, false)
	if err != nil {
		return nil, err
	}
	r := gone.result
	if len(scenario.Zones)+len(scenario.Nodes) == 0 || scenario.Return || scenario.Bought != nil {
		return r, nil
	}
	stay, err := runForm(ctx, c, scenario, options, true)
	if err != nil {
		return nil, err
	}
	r.NodesStay = &NodesStay{
		Placed: stay.result.Placed, Pending: stay.result.Pending, Staying: len(stay.loss.Staying),
		Workloads: slices.DeleteFunc(stay.result.Workloads, func(w Workloads) bool {
			gone := slices.IndexFunc(r.Workloads, func(other Workloads) bool { return other.Name == w.Name })
			return w.Pending == 0 || gone >= 0 && r.Workloads[gone].Pending >= w.Pending
		}),
	}
	for i := range r.Certificates {
		if r.Certificates[i].NodesStay || r.Certificates[i].Waiting == 0 && r.Certificates[i].WaitingHere == 0 {
			r.Certificates[i] = stay.result.Certificates[i]
		}
	}
	return r, nil
}

// runForm runs a scenario, and returns it without its copy. With stay, the objects of lost nodes stay.
func runForm(ctx context.Context, c *census.Census, scenario *Scenario, options sim.Options, stay bool) (*scenarioRun, error) {
	p, err := newRun(ctx, c, scenario, options, stay)
	if err != nil {
		return nil, err
	}
	defer p.sim.Close()
	return p, p.runScenario(scenario)
}

// newRun copies the cluster for a scenario.
func newRun(ctx context.Context, c *census.Census, scenario *Scenario, options sim.Options, stay bool) (*scenarioRun, error) {
	if scenario.Added != nil {
		for _, pod := range slices.Concat(scenario.Added.Pods, scenario.Added.agents) {
			if !slices.Contains(options.SchedulerNames, pod.Spec.SchedulerName) {
				options.SchedulerNames = append(options.SchedulerNames, pod.Spec.SchedulerName)
			}
		}
	}
	s, err := sim.Of(ctx, c.Snapshot, options)
	if err != nil {
		return nil, err
	}
	notes := c.Snapshot.Notes()
	if options.Config != nil && len(options.Config.Extenders) > 0 && !options.CallExtenders {
		notes = append(notes, "the extenders of the configuration were not asked (--call-extenders)")
	}
	p := &scenarioRun{
		ctx: ctx, sim: s, cluster: c, moved: map[types.UID]bool{}, added: map[types.UID]bool{}, waited: map[types.UID]bool{},
		result: &Result{Scenario: scenario.Name(), Notes: notes, Promises: []Promise{}}, controllers: options.Controllers, stay: stay,
	}
	for _, pod := range c.Pods {
		p.waited[pod.UID] = pod.Waits()
	}
	return p, nil
}

// Check returns an error for a scenario that names something that does not exist.
func (s *Scenario) Check(c *census.Census) error {
	for _, zone := range s.Zones {
		if !slices.Contains(c.ZoneNames(), zone) {
			return fmt.Errorf("--lose-zone: there is no zone %q, only %s", zone, strings.Join(c.ZoneNames(), ", "))
		}
	}
	for flag, names := range map[string][]string{"--lose-node": s.Nodes, "--drain-node": s.Drained} {
		for _, node := range names {
			if c.FindNode(node) == nil {
				return fmt.Errorf("%s: there is no node %q", flag, node)
			}
		}
	}
	if s.AddNodes > 0 && c.FindNode(s.Like) == nil {
		return fmt.Errorf("--like: there is no node %q", s.Like)
	}
	return nil
}

// scenarioRun is a running scenario.
type scenarioRun struct {
	ctx     context.Context //nolint:containedctx // of one call of Run
	sim     *sim.Sim
	cluster *census.Census // of which sim is a copy
	result  *Result
	// controllers are those of Options.Controllers.
	controllers []string
	// moved has the pods that need a node: those that are added, and in the end those that controllers have made.
	// waited has those that needed one before.
	moved, waited map[types.UID]bool
	// added has the pods of the scenario's workload.
	added map[types.UID]bool
	// stay: the objects of lost nodes stay.
	stay bool
	// drained is how many pods have been evicted from drained nodes.
	drained int
	// loss has the pods that are lost with nodes; nil before.
	loss *sim.Loss
}

// reportTime is how long plugins take to bring their statuses up to date.
const reportTime = 11 * time.Second

func (p *scenarioRun) runScenario(scenario *Scenario) error {
	s, r := p.sim, p.result
	if err := s.PassTime(p.ctx, reportTime); err != nil {
		return err
	}
	began := s.Now()
	before := p.takeCensus()
	added := scenario.addedNodes()
	for _, like := range slices.Sorted(maps.Keys(added)) {
		names, err := s.AddNodes(added[like], like)
		if err != nil {
			return err
		}
		r.AddedNodes += len(names)
	}
	if scenario.Added != nil {
		if err := p.createWorkload(scenario.Added); err != nil {
			return err
		}
	}
	if scenario.Added != nil || r.AddedNodes > 0 {
		if err := s.Run(p.ctx); err != nil {
			return err
		}
	}
	if err := p.drainNodes(scenario.Drained); err != nil {
		return err
	}
	left := p.healthyByBudget()
	if len(scenario.Zones)+len(scenario.Nodes) > 0 {
		p.loseNodes(scenario)
		left = p.healthyByBudget()
		if err := s.Run(p.ctx); err != nil {
			return err
		}
	}
	if scenario.Return {
		r.ReturnedNodes = len(p.loss.Nodes)
		if err := s.ReturnNodes(p.loss); err != nil {
			return err
		}
		if err := s.Run(p.ctx); err != nil {
			return err
		}
	}
	r.Passed = s.Now().Sub(began).Round(10 * time.Second).String() // more exactly it depends on the machine
	after := p.takeCensus()
	p.compareAll(before, left, after)
	p.compareCertificates(scenario, before, after)
	if scenario.Rebalance && !p.stay { // moves are planned once
		return p.rebalance()
	}
	return nil
}

// takeCensus counts the copy.
func (p *scenarioRun) takeCensus() *census.Census {
	s := snapshot.New(p.sim.Now())
	s.Add(p.sim.Objects()...)
	return census.Take(s)
}

// healthyByBudget counts the healthy pods of each budget.
func (p *scenarioRun) healthyByBudget() map[string]int64 {
	out := map[string]int64{}
	for _, b := range sim.List[*policyv1.PodDisruptionBudget](p.sim) {
		out[b.Namespace+"/"+b.Name] = int64(b.Status.CurrentHealthy)
	}
	return out
}

// createWorkload applies a workload.
func (p *scenarioRun) createWorkload(w *Workload) error {
	objects := append(w.daemonPods(sim.List[*corev1.Node](p.sim)), w.objects()...) // agents come first, as on a new node
	changed := slices.Clone(w.removed)
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok {
			p.result.Added++
			p.moved[pod.UID], p.added[pod.UID] = true, true
			changed = append(changed, pod)
		}
	}
	for _, pod := range w.removed {
		p.result.Removed++
		p.sim.Remove(pod)
	}
	for _, obj := range w.changed {
		if err := p.sim.Put(obj.DeepCopyObject().(client.Object)); err != nil { //nolint:forcetypeassert // a copy has the type of the original
			return err
		}
	}
	if err := p.sim.Add(objects...); err != nil {
		return err
	}
	return p.recountBudgets(changed)
}

func (p *scenarioRun) loseNodes(scenario *Scenario) {
	lose := p.sim.Lose
	if p.stay {
		lose = p.sim.Fail
	}
	p.loss = lose(func(node *corev1.Node) bool {
		return slices.Contains(scenario.Zones, node.Labels[corev1.LabelTopologyZone]) || slices.Contains(scenario.Nodes, node.Name)
	})
	r := p.result
	r.LostNodes, r.NodeBound = len(p.loss.Nodes), len(p.loss.NodeBound)
	r.Displaced, r.Orphans = r.Displaced+len(p.loss.Displaced), r.Orphans+len(p.loss.Orphans)
	for _, pod := range p.loss.Orphans {
		r.addNotReplaced(p.sim.WhyNotReplaced(pod))
	}
	p.noteAssumptions()
}

// addNotReplaced counts a pod that no controller replaces.
func (r *Result) addNotReplaced(why string) {
	at := slices.IndexFunc(r.NotReplaced, func(l Lost) bool { return l.Why == why })
	if at < 0 {
		at, r.NotReplaced = len(r.NotReplaced), append(r.NotReplaced, Lost{Why: why})
	}
	r.NotReplaced[at].Pods++
	slices.SortFunc(r.NotReplaced, func(a, b Lost) int { return cmp.Or(cmp.Compare(b.Pods, a.Pods), strings.Compare(a.Why, b.Why)) })
}

// noteAssumptions names the controllers that replace displaced pods because the caller says so.
func (p *scenarioRun) noteAssumptions() {
	pods := map[string]int{}
	for _, pod := range p.loss.Displaced {
		pods[sim.ControllerKind(pod)]++
	}
	for _, kind := range p.controllers {
		for displaced, n := range pods {
			if strings.EqualFold(kind, displaced) {
				p.result.Notes = append(p.result.Notes, fmt.Sprintf("it is taken for granted that %s replaces its pods: %d (--controllers)", displaced, n))
			}
		}
	}
}

// compareAll says what has changed.
func (p *scenarioRun) compareAll(before *census.Census, left map[string]int64, after *census.Census) {
	p.result.Evicted = len(p.sim.Evicted()) - p.drained
	for uid := range p.sim.Replaced() {
		p.moved[uid] = true
	}
	p.compareWorkloads(after)
	p.compareZones(before, after)
	p.comparePolicies(before, after)
	p.compareBudgets(before, left, after)
	p.compareGangs(before, after)
	p.compareReservations(before, after)
}

// reliesOnPack reports whether a pod is in a gang or is selected by a policy or a reservation, which a plain
// kube-scheduler does not know. If such a pod waits, the wrong scheduler has been simulated or the pod names the wrong
// one: neither is a success.
func (p *scenarioRun) reliesOnPack(after *census.Census, pod *corev1.Pod) bool {
	return after.GangOf(pod) != "" ||
		slices.ContainsFunc(sim.List[*v1alpha1.ZoneSpreadPolicy](p.sim), func(policy *v1alpha1.ZoneSpreadPolicy) bool {
			return census.SelectedBy(policy, pod)
		}) ||
		slices.ContainsFunc(sim.List[*v1alpha1.ZoneReservation](p.sim), func(reservation *v1alpha1.ZoneReservation) bool {
			return census.OwnedBy(reservation, pod)
		})
}

func (p *scenarioRun) compareWorkloads(after *census.Census) {
	rows := map[string]*Workloads{}
	for _, pod := range after.Pods {
		if p.waited[pod.UID] {
			p.result.WaitedBefore++
			if pod.Waits() {
				p.result.StillWaiting++
			}
			continue
		}
		if !p.moved[pod.UID] {
			continue
		}
		name := after.Workload(pod.Pod)
		row := rows[name]
		if row == nil {
			row = &Workloads{Name: name}
			rows[name] = row
		}
		row.Pods++
		elsewhere := p.sim.OfOtherScheduler(pod.Pod)
		if elsewhere {
			row.Scheduler = pod.Pod.Spec.SchedulerName
		}
		if pod.Waits() {
			row.Pending++
			if elsewhere && !p.added[pod.UID] && !p.reliesOnPack(after, pod.Pod) {
				p.result.PendingElsewhere++
			} else {
				p.result.Pending++
			}
			if reason := p.sim.WhyWaits(pod.Pod); reason != "" && len(row.Why) < mostWhys && !slices.Contains(row.Why, reason) {
				row.Why = append(row.Why, reason)
			}
			continue
		}
		p.result.Placed++
		if row.To == nil {
			row.To = map[string]int{}
		}
		zone := ""
		if pod.On != nil {
			zone = pod.On.Zone
		}
		row.To[zone]++
	}
	p.result.Workloads = []Workloads{}
	for _, row := range rows {
		p.result.Workloads = append(p.result.Workloads, *row)
	}
	slices.SortFunc(p.result.Workloads, func(a, b Workloads) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(b.Pods, a.Pods), strings.Compare(a.Name, b.Name))
	})
}
