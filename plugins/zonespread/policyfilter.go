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

// podPolicies are the policies of one pod, applied to every zone. Any number of goroutines may read them; a change
// needs exclusive access. Nil ones let every node pass.
type podPolicies struct {
	pod  *v1.Pod
	each []*podPolicy
}

// podPolicy is one policy of the pod.
type podPolicy struct {
	serve.Input
	zoneCounts
	table    *policy.Table
	refusals []atomic.Pointer[fwk.Status] // by the table's slot; made when a node needs them
	// gangs are the tried pods of other gangs, by gang. Nil if the policy counts pods.
	gangs map[string]gangViews
}

// zoneCounts are the pods by zone that the policy counts: for the skew on all nodes, on eligible ones, and on those
// that are eligible in a zone that is closing; for the caps see policy.Held. Those that are the same as everywhere, or
// not needed, are nil.
type zoneCounts struct {
	everywhere, eligible, closing *counts.Table
	held, own, revision           *counts.Table
}

// policiesFor returns the policies that apply to a pod with their input; nil if there are none, as for most pods.
func (pl *ZoneSpread) policiesFor(ctx context.Context, pod *v1.Pod) *podPolicies {
	pl.shared.policies.AwaitStart(ctx)
	applied := pl.shared.policies.For(pod)
	if len(applied) == 0 {
		return nil
	}
	p := &podPolicies{pod: pod}
	for _, input := range pl.shared.policies.Inputs(pod, applied) {
		p.each = append(p.each, &podPolicy{Input: input})
	}
	return p
}

// addQueries adds what has to be counted for the policies. The index also answers whether a zone has eligible nodes,
// which it keeps for each kind of pod: looking at the nodes would cost more than everything else.
func (p *podPolicies) addQueries(q *queries) {
	if p == nil {
		return
	}
	for _, each := range p.each {
		q.add(each.query(p.pod, each.Selector, nil), &each.everywhere)
		if each.Eligible != nil {
			q.add(each.query(p.pod, each.Selector, each.Eligible), &each.eligible)
		}
		if each.EligibleClosing != each.Eligible {
			q.add(each.query(p.pod, each.Selector, each.EligibleClosing), &each.closing)
		}
		if each.Held.All != nil {
			q.add(each.query(p.pod, each.Held.All, nil), &each.held)
		}
		if each.Held.Own != nil {
			q.add(each.query(p.pod, each.Held.Own, nil), &each.own)
			q.add(each.query(p.pod, each.Held.Revision, nil), &each.revision)
		}
	}
}

// query counts the pods of a selector, or gangs if the policy counts those, by zone. The pod's own gang is left out, so
// that all of its members are treated alike.
func (p *podPolicy) query(pod *v1.Pod, selector labels.Selector, eligible counts.Eligibility) counts.Query {
	groupBy := p.GroupBy()
	return counts.Query{
		Namespace: pod.Namespace, Selector: selector, TopologyKey: p.TopologyKey(), Eligibility: eligible,
		GroupBy: groupBy, ExceptGroup: pod.Labels[groupBy],
	}
}

// evaluate applies the policies to every zone, once the queries are answered.
func (p *podPolicies) evaluate() {
	if p == nil {
		return
	}
	start := time.Now()
	for _, each := range p.each {
		each.setTable(each.Evaluate(policy.Input{
			Domains: each.domains(), Replicas: each.Replicas, OwnerMissing: each.OwnerMissing, Availability: each.Availability,
		}))
	}
	evaluationDuration.Observe(time.Since(start).Seconds())
}

// domains returns the zones that have nodes, with their counts.
func (p *podPolicy) domains() []policy.Domain {
	domains := make([]policy.Domain, 0, p.everywhere.Domains())
	for zone, name := range p.everywhere.All() {
		d := policy.Domain{Name: name, Pods: int64(p.everywhere.At(zone)), Eligible: true}
		eligible := p.eligible
		if p.isClosing(name) && p.closing != nil {
			eligible = p.closing
		}
		if eligible != nil {
			d.Pods, d.Eligible = int64(eligible.At(zone)), eligible.Counts(zone)
		}
		d.Eligible = d.Eligible && !p.Excluded[name]
		if p.held != nil {
			d.Held = int64(p.held.At(zone))
		}
		if p.own != nil {
			d.Held += int64(p.revision.At(zone) - p.own.At(zone))
		}
		domains = append(domains, d)
	}
	return domains
}

func (p *podPolicy) isClosing(zone string) bool { return p.Availability[zone] == policy.Closing }

// admits reports whether a node of a zone counts for the skew.
func (p *podPolicy) admits(zone string, node *v1.Node) bool {
	if p.isClosing(zone) {
		return counts.Admits(p.EligibleClosing, node)
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
		copied := &podPolicy{Input: each.Input, zoneCounts: each.zoneCounts, gangs: maps.Clone(each.gangs)}
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
