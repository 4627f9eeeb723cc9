package rebalance

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/policies"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// reader finds the rules of a cluster.
type reader struct {
	*census.Census
	policies *policies.Reader
	rules    map[string]*rule
	selects  func(*v1.Pod) bool
	open     map[string]map[string]bool // openZones by the eligibility's key
}

// rulesOf returns the rules about zones that pods carry, in the order of their keys. stays says why a pod may not be moved, selects of which pods the
// rules are to hold.
func rulesOf(c *census.Census, stays func(*v1.Pod) string, selects func(*v1.Pod) bool) []*rule {
	r := &reader{Census: c, selects: selects, policies: policies.Read(c), rules: map[string]*rule{}, open: map[string]map[string]bool{}}
	for _, pod := range c.Pods {
		if pod.On == nil || pod.On.Zone == "" {
			continue
		}
		why := stays(pod.Pod)
		constraints := pods.SpreadConstraints(pod.Pod)
		for i := range constraints {
			if census.OverZones(constraints[i]) {
				r.addConstraint(pod, constraints, i, why)
			}
		}
		for _, p := range r.policies.In(pod.Namespace) {
			if p.Selects(pod.Labels) {
				r.addPolicy(pod, p, why)
			}
		}
	}
	var out []*rule
	var queries []counts.Query
	for _, key := range slices.Sorted(maps.Keys(r.rules)) {
		out = append(out, r.rules[key])
		queries = append(queries, r.rules[key].queries...)
	}
	tables := c.Count(queries)
	for _, rule := range out {
		rule.table = rule.build(tables[:len(rule.queries)])
		tables = tables[len(rule.queries):]
	}
	joinSets(out, c)
	return out
}

// rule returns the rule with a key, which it makes when there is none yet.
func (r *reader) rule(key string, pod *census.Pod, makeRule func() *rule) *rule {
	out := r.rules[key]
	if out == nil {
		out = makeRule()
		out.key, out.namespace, out.workloads, out.zones = key, pod.Namespace, map[string]bool{}, map[string]*zonePods{}
		eligible := counts.EligibilityOf(pod.Pod, true, true, feature.TolerationOperators())
		if r.open[eligible.Key()] == nil {
			r.open[eligible.Key()] = openZones(r.Census, eligible)
		}
		out.open = r.open[eligible.Key()]
		r.rules[key] = out
	}
	out.workloads[r.Workload(pod.Pod)] = true
	out.selected = out.selected || r.selects(pod.Pod)
	return out
}

// keyOf is that of an eligibility, which is nil if all nodes are eligible.
func keyOf(e counts.Eligibility) string {
	if e == nil {
		return ""
	}
	return e.Key()
}

// addConstraint enters a pod for one of its constraints, unless the constraint does not count the pod.
func (r *reader) addConstraint(pod *census.Pod, all []v1.TopologySpreadConstraint, number int, stays string) {
	c := &all[number]
	query := census.QueryOf(pod.Pod, c)
	for i := range all {
		if other := &all[i]; other.WhenUnsatisfiable == c.WhenUnsatisfiable {
			query.RequiredKeys = append(query.RequiredKeys, other.TopologyKey) // as ZoneSpread's PreFilter and PreScore do
		}
	}
	if !query.Selector.Matches(labels.Set(pod.Labels)) || !counts.Admits(query.Eligibility, pod.On.Node) {
		return
	}
	minDomains := ptr.Deref(c.MinDomains, 1)
	key := fmt.Sprint("constraint ", pod.Namespace, " ", query.Selector, " ", c.MaxSkew, " ", minDomains, " ", query.RequiredKeys, " ", keyOf(query.Eligibility), " ",
		keyOf(counts.EligibilityOf(pod.Pod, true, true, feature.TolerationOperators())))
	r.rule(key, pod, func() *rule {
		return &rule{
			name: "topologySpreadConstraint", counted: query.Selector, queries: []counts.Query{query},
			build: func(tables []*counts.Table) table { return newConstraintTable(tables[0], c.MaxSkew, minDomains) },
		}
	}).add(pod, stays)
}

// addPolicy enters a pod for a policy that selects it. What is counted is what ZoneSpread counts for a pod like it.
func (r *reader) addPolicy(pod *census.Pod, p *policies.Policy, stays string) {
	decision := r.policies.Decide(p, pod.Pod)
	if !counts.Admits(decision.Eligible, pod.On.Node) {
		return
	}
	r.rule(decision.Key, pod, func() *rule {
		// A zone that has come back is to have its share, however long its recovery still takes.
		maps.DeleteFunc(decision.Availability, func(_ string, a policy.Availability) bool { return a == policy.Recovering })
		return &rule{
			name: "ZoneSpreadPolicy " + p.Key(), counted: decision.Counted(), queries: decision.Queries(),
			build: func(tables []*counts.Table) table { return policyTable{decision.Table(tables)} },
		}
	}).add(pod, stays)
}
