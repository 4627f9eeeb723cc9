package rebalance

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
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
	// carried has what the last pod of each controller carries, by the controller's UID: its next pod is most likely
	// like it.
	carried map[types.UID]*carried
}

// carried are the rules of pods that are alike.
type carried struct {
	like     *v1.Pod
	workload string
	// open are the zones with a node that takes such pods, see openZones.
	open  map[string]bool
	rules []carriedRule
}

// carriedRule is a rule as a pod carries it. It counts the pod only on eligible nodes.
type carriedRule struct {
	key      string
	eligible counts.Eligibility
	makeRule func() *rule
}

// rulesOf returns the rules about zones that pods carry, in the order of their keys. stays says why a pod may not be
// moved, selects of which pods the rules are to hold.
func rulesOf(c *census.Census, stays func(*v1.Pod) string, selects func(*v1.Pod) bool) []*rule {
	r := &reader{
		Census: c, selects: selects, policies: policies.Read(c), rules: map[string]*rule{},
		open: map[string]map[string]bool{}, carried: map[types.UID]*carried{},
	}
	for _, pod := range c.Pods {
		if pod.On == nil || pod.On.Zone == "" {
			continue
		}
		why, carries := stays(pod.Pod), r.carriedBy(pod.Pod)
		for i := range carries.rules {
			if counts.Admits(carries.rules[i].eligible, pod.On.Node) {
				r.rule(i, carries, pod.Pod).add(pod, why)
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

// rule returns one of the rules that a pod carries, which it makes when there is none yet.
func (r *reader) rule(number int, by *carried, pod *v1.Pod) *rule {
	c := &by.rules[number]
	out := r.rules[c.key]
	if out == nil {
		out = c.makeRule()
		out.key, out.namespace, out.workloads, out.zones = c.key, pod.Namespace, map[string]bool{}, map[string]*zonePods{}
		out.open = map[string]bool{}
		r.rules[c.key] = out
	}
	maps.Copy(out.open, by.open)
	out.workloads[by.workload] = true
	out.selected = out.selected || r.selects(pod)
	return out
}

// carriedBy returns the rules that a pod carries.
func (r *reader) carriedBy(pod *v1.Pod) *carried {
	over := metav1.GetControllerOfNoCopy(pod)
	if over != nil {
		if known := r.carried[over.UID]; known != nil && alike(known.like, pod) {
			return known
		}
	}
	out := &carried{like: pod, workload: r.Workload(pod)}
	constraints := pods.SpreadConstraints(pod)
	for i := range constraints {
		if census.OverZones(constraints[i]) {
			out.addConstraint(constraints, i)
		}
	}
	for _, p := range r.policies.In(pod.Namespace) {
		if p.Selects(pod.Labels) {
			out.addPolicy(r, p)
		}
	}
	if len(out.rules) > 0 {
		eligible := counts.EligibilityOf(pod, true, true, feature.TolerationOperators())
		if r.open[eligible.Key()] == nil {
			r.open[eligible.Key()] = openZones(r.Census, eligible)
		}
		out.open = r.open[eligible.Key()]
	}
	if over != nil {
		r.carried[over.UID] = out
	}
	return out
}

// alike reports whether two pods of one controller carry the same rules.
func alike(a, b *v1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Spec.NodeSelector, b.Spec.NodeSelector) &&
		a.Annotations[v1alpha1.ShownToAutoscalersAnnotation] == b.Annotations[v1alpha1.ShownToAutoscalersAnnotation] &&
		equality.Semantic.DeepEqual(a.Spec.TopologySpreadConstraints, b.Spec.TopologySpreadConstraints) &&
		equality.Semantic.DeepEqual(a.Spec.Affinity, b.Spec.Affinity) &&
		equality.Semantic.DeepEqual(a.Spec.Tolerations, b.Spec.Tolerations)
}

// addConstraint adds one of the constraints of the pod, unless it does not count the pod.
func (c *carried) addConstraint(all []v1.TopologySpreadConstraint, number int) {
	constraint := &all[number]
	query := census.QueryOf(c.like, constraint)
	for i := range all {
		if other := &all[i]; other.WhenUnsatisfiable == constraint.WhenUnsatisfiable {
			query.RequiredKeys = append(query.RequiredKeys, other.TopologyKey) // as ZoneSpread's PreFilter and PreScore do
		}
	}
	if !query.Selector.Matches(labels.Set(c.like.Labels)) {
		return
	}
	minDomains := ptr.Deref(constraint.MinDomains, 1)
	openTo := counts.EligibilityOf(c.like, true, true, feature.TolerationOperators())
	key := fmt.Sprint(
		"constraint ", c.like.Namespace, " ", query.Selector, " ", constraint.MaxSkew, " ", minDomains, " ",
		query.RequiredKeys, " ", counts.KeyOf(query.Eligibility), " ", counts.KeyOf(openTo),
	)
	c.rules = append(c.rules, carriedRule{key: key, eligible: query.Eligibility, makeRule: func() *rule {
		return &rule{
			name: "topologySpreadConstraint", counted: query.Selector, queries: []counts.Query{query},
			build: func(tables []*counts.Table) table {
				return newConstraintTable(tables[0], constraint.MaxSkew, minDomains)
			},
		}
	}})
}

// addPolicy adds a policy that selects the pod. What is counted is what ZoneSpread counts for a pod like it.
func (c *carried) addPolicy(r *reader, p *policies.Policy) {
	decision := r.policies.Decide(p, c.like)
	c.rules = append(c.rules, carriedRule{key: decision.Key, eligible: decision.Eligible, makeRule: func() *rule {
		// A zone that has come back is to have its share, however long its recovery still takes.
		maps.DeleteFunc(decision.Availability, func(_ string, a policy.Availability) bool { return a == policy.Recovering })
		return &rule{
			name: "ZoneSpreadPolicy " + p.Key(), counted: decision.Counted(), queries: decision.Queries(),
			build: func(tables []*counts.Table) table { return policyTable{decision.Table(tables)} },
		}
	}})
}
