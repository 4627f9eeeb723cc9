package zonespread

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/plugins/zonespread/serve"
)

// verdicts are the verdicts of one pod's policies about every zone. Any number of goroutines may read them; a change needs
// exclusive access. Nil verdicts let every node pass.
type verdicts struct {
	pod      *v1.Pod
	requests policy.Requests
	rows     []row
}

// row is one policy of the pod.
type row struct {
	serve.Answer
	everywhere *counts.Table // the pods that count for the skew, on all nodes
	table      *policy.Table
	refusals   []atomic.Pointer[fwk.Status] // by the table's slot; made when a node needs them
	// gangs are the tried pods of other gangs, by gang: on eligible nodes, and on all. Nil if the policy counts pods.
	gangs map[string][2]counts.View
}

// ask collects the input of a pod's policies; nil if it has none, like most pods.
func (pl *ZoneSpread) ask(ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *verdicts {
	pl.shared.policies.AwaitStart(ctx)
	applied := pl.shared.policies.For(pod)
	if len(applied) == 0 {
		return nil
	}
	v := &verdicts{pod: pod, requests: policy.RequestsOf(pod), rows: make([]row, len(applied))}
	zoneHasRoom := func(a *serve.Answer, zone string) bool {
		return slices.ContainsFunc(nodes, func(info fwk.NodeInfo) bool {
			name, ok := info.Node().Labels[a.TopologyKey()]
			return ok && name == zone && hasRoom(info, v.requests) && counts.Admits(a.Eligible, info.Node())
		})
	}
	if cycleState.IsPodGroupSchedulingCycle() {
		zoneHasRoom = nil // pods are only tried out
	}
	for i, answer := range pl.shared.policies.Ask(pod, applied, v.requests, zoneHasRoom) {
		v.rows[i].Answer = answer
	}
	return v
}

// query counts the pods of a selector, or gangs if the policy counts those, by zone. The pod's own gang is left out, so that
// all of its members are judged alike.
func (r *row) query(pod *v1.Pod, selector labels.Selector, eligible counts.Eligibility) counts.Query {
	by := r.GroupBy()
	return counts.Query{
		Namespace: pod.Namespace, Selector: selector, TopologyKey: r.TopologyKey(), Eligibility: eligible,
		GroupBy: by, ExceptGroup: pod.Labels[by],
	}
}

// addQueries appends the queries of all rows; judge gets the answers. The index also answers whether a zone has eligible
// nodes, which it keeps for each kind of pod: looking at the nodes would cost more than everything else.
func (v *verdicts) addQueries(queries []counts.Query) []counts.Query {
	if v == nil {
		return queries
	}
	for i := range v.rows {
		r := &v.rows[i]
		queries = append(queries, r.query(v.pod, r.Selector, nil))
		for _, e := range []counts.Eligibility{r.Eligible, r.Admitted} {
			if e != nil {
				queries = append(queries, r.query(v.pod, r.Selector, e))
			}
		}
		for _, selector := range []labels.Selector{r.Held.All, r.Held.Own, r.Held.Revision} {
			if selector != nil {
				queries = append(queries, r.query(v.pod, selector, nil))
			}
		}
	}
	return queries
}

// judge makes the verdicts from the answers to addQueries.
func (v *verdicts) judge(tables []*counts.Table) {
	start := time.Now()
	next := func(asked bool) *counts.Table {
		if !asked {
			return nil
		}
		t := tables[0]
		tables = tables[1:]
		return t
	}
	for i := range v.rows {
		r := &v.rows[i]
		r.everywhere = next(true)
		eligible, admitted := next(r.Eligible != nil), next(r.Admitted != nil)
		held, own, revision := next(r.Held.All != nil), next(r.Held.Own != nil), next(r.Held.Revision != nil)
		domains := make([]policy.Domain, 0, r.everywhere.Domains())
		for zone, name := range r.everywhere.All() {
			pods := int64(r.everywhere.At(zone))
			d := policy.Domain{Name: name, Pods: pods, AllPods: pods, Eligible: true}
			if eligible != nil {
				d.Pods, d.Eligible = int64(eligible.At(zone)), eligible.Counts(zone)
			}
			d.Excluded = admitted != nil && !admitted.Counts(zone)
			if held != nil {
				d.Held = int64(held.At(zone))
			}
			if own != nil {
				d.Held += int64(revision.At(zone) - own.At(zone))
			}
			domains = append(domains, d)
		}
		r.judged(r.Judge(policy.Question{Domains: domains, Replicas: r.Replicas, Typical: r.Typical, View: r.View}))
	}
	evaluationDuration.Observe(time.Since(start).Seconds())
}

// judged sets the row's table.
func (r *row) judged(t *policy.Table) {
	r.table = t
	r.refusals = make([]atomic.Pointer[fwk.Status], t.Zones()+1)
}

// hasRoom reports whether a node has what a pod asks for.
func hasRoom(info fwk.NodeInfo, requests policy.Requests) bool {
	allocatable, requested := info.GetAllocatable(), info.GetRequested()
	if len(info.GetPods()) >= allocatable.GetAllowedPodNumber() {
		return false
	}
	for name, amount := range requests {
		if amountOf(requested, name)+amount > amountOf(allocatable, name) {
			return false
		}
	}
	return true
}

func amountOf(r fwk.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.GetMilliCPU()
	case v1.ResourceMemory:
		return r.GetMemory()
	case v1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	}
	return r.GetScalarResources()[name]
}

// clone returns verdicts that can be changed without a change to these.
func (v *verdicts) clone() *verdicts {
	if v == nil {
		return nil
	}
	c := &verdicts{pod: v.pod, requests: v.requests, rows: append([]row(nil), v.rows...)}
	for i := range c.rows {
		r := &c.rows[i]
		r.judged(r.table.Clone())
		r.gangs = maps.Clone(r.gangs)
		for gang, views := range r.gangs {
			r.gangs[gang] = [2]counts.View{views[0].Clone(), views[1].Clone()}
		}
	}
	return c
}

// hard reports whether some node may be refused, so that Filter must check.
func (v *verdicts) hard() bool {
	return v != nil && slices.ContainsFunc(v.rows, func(r row) bool { return r.Hard() })
}

// tryOutPolicies changes the verdicts as if so many pods like the given one came to the node, or left it. The pod is not
// terminating, and is of the namespace.
func (pl *ZoneSpread) tryOutPolicies(ctx context.Context, cycleState fwk.CycleState, v *verdicts, pod *v1.Pod, node *v1.Node, pods int) error {
	if v == nil {
		return nil
	}
	for i := range v.rows {
		r := &v.rows[i]
		zone, ok := node.Labels[r.TopologyKey()]
		if !ok {
			continue
		}
		podLabels := labels.Set(pod.Labels)
		var c policy.Change
		gang := pod.Labels[r.GroupBy()]
		switch {
		case gang == "":
			if r.Selector.Matches(podLabels) {
				c.AllPods = int64(pods)
				if counts.Admits(r.Eligible, node) {
					c.Pods = int64(pods)
				}
			}
			if r.Held.Counts(podLabels) {
				c.Held = int64(pods)
			}
		case gang == v.pod.Labels[r.GroupBy()] || !r.Selector.Matches(podLabels):
		default:
			views, err := pl.viewsOf(ctx, cycleState, r, v.pod, gang)
			if err != nil {
				return err
			}
			if counts.Admits(r.Eligible, node) {
				c.Pods = addToGang(&views[0], zone, pods)
			}
			c.AllPods = addToGang(&views[1], zone, pods)
			c.Held = c.AllPods // the caps count the same gangs
			r.gangs[gang] = views
		}
		if c != (policy.Change{}) {
			r.table.Add(zone, c)
			clear(r.refusals)
		}
	}
	return nil
}

// viewsOf returns where a gang's pods are, on eligible nodes and on all.
func (pl *ZoneSpread) viewsOf(ctx context.Context, cycleState fwk.CycleState, r *row, pod *v1.Pod, gang string) ([2]counts.View, error) {
	if views, known := r.gangs[gang]; known {
		return views, nil
	}
	nodes, err := pl.lister.NodeInfos().List()
	if err != nil {
		return [2]counts.View{}, err
	}
	of, _ := labels.SelectorFromSet(labels.Set{r.GroupBy(): gang}).Requirements()
	query := counts.Query{Namespace: pod.Namespace, Selector: r.Selector.Add(of...), TopologyKey: r.TopologyKey(), Eligibility: r.Eligible}
	everywhere := query
	everywhere.Eligibility = nil
	tables := pl.count(ctx, cycleState, nodes, []counts.Query{query, everywhere})
	if r.gangs == nil {
		r.gangs = map[string][2]counts.View{}
	}
	r.gangs[gang] = [2]counts.View{counts.NewView(tables[0]), counts.NewView(tables[1])}
	return r.gangs[gang], nil
}

// addToGang adds pods of a gang to a zone or removes them, and returns the change in the number of gangs there.
func addToGang(view *counts.View, zone string, pods int) int64 {
	had := view.Count(zone) > 0
	view.Add(zone, pods)
	has := view.Count(zone) > 0
	switch {
	case has && !had:
		return 1
	case had && !has:
		return -1
	}
	return 0
}

// check returns the refusal of a node, or nil if every policy allows it. It allocates only one
// refusal per policy and zone, which all nodes of the zone share. The framework writes to the statuses that it gets, so it
// must get a copy.
func (v *verdicts) check(node *v1.Node) *fwk.Status {
	if v == nil {
		return nil
	}
	for i := range v.rows {
		if rule := v.rows[i].table.Check(node.Labels); !rule.OK() {
			return v.rows[i].refusal(rule, node.Labels)
		}
	}
	return nil
}

func (r *row) refusal(rule policy.Rule, nodeLabels map[string]string) *fwk.Status {
	slot := r.table.Slot(nodeLabels)
	if slot >= 0 {
		if status := r.refusals[slot].Load(); status != nil {
			return status
		}
	}
	code := fwk.UnschedulableAndUnresolvable
	if rule.Resolvable() {
		code = fwk.Unschedulable
	}
	status := fwk.NewStatus(code, r.table.MessageFor(nodeLabels))
	if slot >= 0 {
		r.refusals[slot].Store(status)
	}
	return status
}
