package zonespread

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counted"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/plugins/zonespread/serve"
)

// maxPolicies is how many policies may select one pod.
const maxPolicies = 16

// podPolicies are the policies of one pod, applied to every zone. Any number of goroutines may read them; a change
// needs exclusive access. Nil ones let every node pass.
type podPolicies struct {
	pod  *v1.Pod
	each []*podPolicy
}

// podPolicy is one policy of the pod.
type podPolicy struct {
	serve.Input
	zones    counted.Zones
	closesAt time.Time // when the first zone that only this pod sees closing is closed; zero without one
	table    *policy.Table
	refusals []atomic.Pointer[fwk.Status] // by the table's slot; made when a node needs them
	// gangs are the tried pods of other gangs, by gang. Nil if the policy counts pods.
	gangs map[string]gangViews
}

// policiesFor returns the policies that apply to a pod with their input; nil if there are none, as for most pods. A pod
// with too many is refused: each of them costs the cycle, which all tenants share.
func (pl *ZoneSpread) policiesFor(ctx context.Context, pod *v1.Pod) (*podPolicies, *fwk.Status) {
	pl.shared.policies.AwaitStart(ctx)
	applied := pl.shared.policies.For(pod)
	if len(applied) == 0 {
		return nil, nil
	}
	if len(applied) > maxPolicies {
		var attempts []serve.Attempt
		for _, input := range pl.shared.policies.Inputs(pod, applied[:maxPolicies+1]) {
			attempts = append(attempts, serve.Attempt{Input: input, Refused: true})
		}
		pl.shared.policies.Attempted(pod, attempts) // the end of one of them wakes the pod
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(
			"%d ZoneSpreadPolicies select the pod, at most %d may: %s, %s and others",
			len(applied), maxPolicies, applied[0].Key(), applied[1].Key()))
	}
	p := &podPolicies{pod: pod}
	for _, input := range pl.shared.policies.Inputs(pod, applied) {
		p.each = append(p.each, &podPolicy{Input: input})
	}
	return p, nil
}

// countPolicies counts for the policies of a pod and applies them to every zone. The index also answers whether a zone
// has eligible nodes, which it keeps for each kind of pod: looking at the nodes would cost more than everything else.
func (pl *ZoneSpread) countPolicies(ctx context.Context, cycleState fwk.CycleState, nodes []fwk.NodeInfo, p *podPolicies, q *queries) {
	if p == nil {
		pl.answer(ctx, cycleState, nodes, q)
		return
	}
	for _, each := range p.each {
		each.AddQueries(each.Policy, p.pod, each.Availability, &each.zones, q.add)
	}
	pl.answer(ctx, cycleState, nodes, q)
	start := time.Now()
	for _, each := range p.each {
		if each.closeZones(nodes) {
			again := &queries{}
			each.AddQueries(each.Policy, p.pod, each.Availability, &each.zones, again.add)
			pl.answer(ctx, cycleState, nodes, again)
		}
		each.setTable(each.Evaluate(policy.Input{
			Domains: each.zones.Domains(each.Availability), Replicas: each.Replicas, OwnerMissing: each.OwnerMissing,
			Availability: each.Availability,
		}))
	}
	evaluationDuration.Observe(time.Since(start).Seconds())
}

// closeZones finds zones that are closing, or closed, for this pod: all nodes that it may use are, and others are open,
// such as those of the control plane. It returns whether there are any.
func (p *podPolicy) closeZones(nodes []fwk.NodeInfo) (found bool) {
	hidden := slices.Collect(p.zones.Hidden(p.Availability))
	if len(hidden) == 0 {
		return false
	}
	var own []*v1.Node
	for _, info := range nodes {
		if node := info.Node(); counts.Admits(p.Lenient, node) {
			own = append(own, node)
		}
	}
	byZone := policy.NodesByZone(own, p.TopologyKey())
	for _, zone := range hidden {
		availability, until := p.ClosingFor(p.Now(), byZone[zone])
		if availability == policy.Available {
			continue
		}
		found = true
		p.SetAvailability(zone, availability)
		if !until.IsZero() && (p.closesAt.IsZero() || until.Before(p.closesAt)) {
			p.closesAt = until
		}
	}
	return found
}

// admits reports whether a node of a zone counts for the skew.
func (p *podPolicy) admits(zone string, node *v1.Node) bool {
	if p.Availability[zone].IgnoresLifecycle() {
		return counts.Admits(p.Lenient, node)
	}
	return counts.Admits(p.Eligible, node)
}

func (p *podPolicy) setTable(t *policy.Table) {
	p.table = t
	p.refusals = make([]atomic.Pointer[fwk.Status], t.Zones()+1)
}

// clone returns policies that can be changed without a change to these.
func (p *podPolicies) clone() *podPolicies {
	if p == nil {
		return nil
	}
	c := &podPolicies{pod: p.pod, each: make([]*podPolicy, len(p.each))}
	for i, each := range p.each {
		copied := &podPolicy{Input: each.Input, zones: each.zones, closesAt: each.closesAt, gangs: maps.Clone(each.gangs)}
		copied.setTable(each.table.Clone())
		for gang, views := range copied.gangs {
			copied.gangs[gang] = gangViews{views.eligible.Clone(), views.everywhere.Clone()}
		}
		c.each[i] = copied
	}
	return c
}

// hard reports whether some node may be refused, so that Filter must check.
func (p *podPolicies) hard() bool {
	return p != nil && slices.ContainsFunc(p.each, func(each *podPolicy) bool { return each.Hard() })
}

// check returns the refusal of a node, or nil if every policy allows it. All nodes of a zone share one, of which the
// framework must get a copy.
func (p *podPolicies) check(node *v1.Node) *fwk.Status {
	if p == nil {
		return nil
	}
	for _, each := range p.each {
		if rule := each.table.Check(node.Labels); !rule.OK() {
			return each.refusal(rule, node.Labels)
		}
	}
	return nil
}

// refusal returns the status of a node that a rule refuses.
func (p *podPolicy) refusal(rule policy.Rule, nodeLabels map[string]string) *fwk.Status {
	slot := p.table.Slot(nodeLabels)
	if slot >= 0 {
		if status := p.refusals[slot].Load(); status != nil {
			return status
		}
	}
	code := fwk.UnschedulableAndUnresolvable
	if rule.Resolvable() {
		code = fwk.Unschedulable
	}
	status := fwk.NewStatus(code, p.table.MessageFor(nodeLabels))
	if slot >= 0 {
		p.refusals[slot].Store(status)
	}
	return status
}
