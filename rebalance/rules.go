package rebalance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// reader finds the rules of a cluster.
type reader struct {
	*census.Census
	policies map[string][]*activePolicy // by namespace
	// workloads are the top-level owners of pods, by the UIDs of their controllers.
	workloads map[types.UID]policy.Workload
	rules     map[string]*rule
	selects   func(*v1.Pod) bool
	open      map[string]map[string]bool // openZones by the eligibility's key
}

// activePolicy is a policy over zones with what its status remembers of them.
type activePolicy struct {
	*policy.Policy
	zones *policy.Zones
	live  int64 // pods that it selects
}

// rulesOf returns the rules about zones that pods carry, in the order of their keys. stays says why a pod may not be moved, selects of which pods the
// rules are to hold.
func rulesOf(c *census.Census, stays func(*v1.Pod) string, selects func(*v1.Pod) bool) []*rule {
	r := &reader{
		Census: c, selects: selects, policies: map[string][]*activePolicy{}, workloads: map[types.UID]policy.Workload{}, rules: map[string]*rule{}, open: map[string]map[string]bool{},
	}
	r.readPolicies()
	readWorkloads[*appsv1.ReplicaSet](r)
	readWorkloads[*appsv1.StatefulSet](r)
	readWorkloads[*v1.ReplicationController](r)
	readWorkloads[*batchv1.Job](r)
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
		for _, p := range r.policies[pod.Namespace] {
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

// readPolicies takes the policies over zones. Those that count gangs are left out: members of gangs are not moved.
func (r *reader) readPolicies() {
	nodes := map[string]policy.ZoneNodes{}
	for _, node := range r.Nodes {
		if node.Zone != "" {
			z := nodes[node.Zone]
			z.Nodes++
			if usable(node.Node) {
				z.Open++
			}
			nodes[node.Zone] = z
		}
	}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](r.Snapshot, "") {
		p, errs := policy.Compile(object)
		if len(errs) > 0 || p.TopologyKey() != v1.LabelTopologyZone || p.GroupBy() != "" {
			continue
		}
		a := &activePolicy{Policy: p, zones: policy.NewZones(p, object.Status.Zones)}
		a.zones.ObserveNodes(r.Now, nodes)
		for _, pod := range r.PodsIn(object.Namespace) {
			if p.Selects(pod.Labels) {
				a.live++
			}
		}
		r.policies[object.Namespace] = append(r.policies[object.Namespace], a)
	}
}

// readWorkloads reads the controllers of one kind, as ZoneSpread does.
func readWorkloads[T interface {
	metav1.Object
	comparable
}](r *reader) {
	for _, obj := range r.Snapshot.Objects() {
		object, ok := obj.(T)
		if !ok {
			continue
		}
		over := metav1.GetControllerOfNoCopy(object)
		if set, isSet := obj.(*appsv1.ReplicaSet); isSet && over != nil {
			if over.Kind == "Deployment" {
				r.workloads[set.UID] = policy.BehindReplicaSet(set, over)
			}
			continue
		}
		if w, ok := policy.WorkloadOf(object); ok {
			r.workloads[object.GetUID()] = w
		}
	}
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
func (r *reader) addPolicy(pod *census.Pod, p *activePolicy, stays string) {
	eligible := counts.EligibilityOf(pod.Pod, p.HonorsAffinity(), p.HonorsTaints(), feature.TolerationOperators())
	if !counts.Admits(eligible, pod.On.Node) {
		return
	}
	owner := types.UID("")
	if over := metav1.GetControllerOfNoCopy(pod); over != nil {
		owner = over.UID
	}
	workload := r.workloads[owner]
	runs := cmp.Or(workload.UID, owner, p.UID())
	own := types.UID("")
	if p.Caps() || p.zones.HasRun(runs) {
		own = runs
	}
	key := fmt.Sprint("policy ", p.Key(), " ", p.Revision(pod.Labels), " ", own, " ", keyOf(eligible))
	r.rule(key, pod, func() *rule {
		query := func(selector labels.Selector, e counts.Eligibility) counts.Query {
			return counts.Query{Namespace: pod.Namespace, Selector: selector, TopologyKey: v1.LabelTopologyZone, Eligibility: e}
		}
		selector := p.SelectorFor(pod.Labels)
		out := &rule{
			name: "ZoneSpreadPolicy " + p.Key(), counted: p.CountedFor(pod.Labels),
			queries: []counts.Query{query(selector, nil), query(selector, eligible)},
		}
		var held policy.Held
		if p.Caps() {
			held = p.HeldFor(&workload, pod.Labels)
			out.queries = append(out.queries, query(held.All, nil))
			if held.Own != nil {
				out.queries = append(out.queries, query(held.Own, nil), query(held.Revision, nil))
			}
		}
		in := policy.Input{Replicas: p.Replicas(&workload, p.live), Availability: p.zones.For(r.Now, runs)}
		// A zone that has come back is to have its share, however long its recovery still takes.
		maps.DeleteFunc(in.Availability, func(_ string, a policy.Availability) bool { return a == policy.Recovering })
		out.build = func(tables []*counts.Table) table {
			for zone, name := range tables[0].All() {
				d := policy.Domain{Name: name, Pods: int64(tables[1].At(zone)), Eligible: tables[1].Counts(zone)}
				if len(tables) > 2 {
					d.Held = int64(tables[2].At(zone))
				}
				if len(tables) > 3 {
					d.Held += int64(tables[4].At(zone) - tables[3].At(zone))
				}
				in.Domains = append(in.Domains, d)
			}
			return policyTable{p.Evaluate(in)}
		}
		return out
	}).add(pod, stays)
}
