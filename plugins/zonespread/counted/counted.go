// Package counted says which pods have to be counted for a policy to decide about a pod, and what their numbers say
// about each zone.
package counted

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// Pods are those that a policy counts for a pod.
type Pods struct {
	// Selector selects the pods that count for the skew, and Held those that count for the caps; it is zero without
	// caps.
	Selector labels.Selector
	Held     policy.Held
	// Eligible are the nodes that count for the skew, and Lenient those that do in a zone that is closing or closed,
	// where the taints of the node lifecycle make no difference; nil for all.
	Eligible, Lenient counts.Eligibility
}

// For returns what a policy counts for a pod of a workload, if only eligible nodes count for the skew.
func For(p *policy.Policy, w *policy.Workload, podLabels labels.Set, eligible counts.Eligibility) Pods {
	out := Pods{
		Selector: p.SelectorFor(podLabels), Eligible: eligible, Lenient: counts.IgnoringLifecycle(eligible),
	}
	if p.Caps() {
		out.Held = p.HeldFor(w, podLabels)
	}
	return out
}

// Zones are the pods by zone: for the skew on eligible nodes, and on those that are eligible in a zone that is closing
// or closed; for the caps see policy.Held. Existing has all zones and counts no pods. Those that are not needed are
// nil.
type Zones struct {
	Existing, Eligible, Lenient *counts.Table
	Held, Own, Revision         *counts.Table
}

// AddQueries adds what has to be counted for a pod, each with where its answer belongs, given how the zones take part.
// The pod's own gang is left out if the policy counts gangs, so that all of its members are treated alike.
func (p *Pods) AddQueries(
	of *policy.Policy, pod *v1.Pod, availability policy.ZoneAvailability, z *Zones,
	add func(query counts.Query, answer **counts.Table),
) {
	query := func(selector labels.Selector, eligible counts.Eligibility) counts.Query {
		groupBy := of.GroupBy()
		return counts.Query{
			Namespace: pod.Namespace, Selector: selector, TopologyKey: of.TopologyKey(), Eligibility: eligible,
			GroupBy: groupBy, ExceptGroup: pod.Labels[groupBy],
		}
	}
	add(query(labels.Nothing(), nil), &z.Existing)
	add(query(p.Selector, p.Eligible), &z.Eligible)
	if p.Lenient != p.Eligible {
		selector := labels.Nothing() // whether a zone has such nodes
		for _, a := range availability {
			if a.IgnoresLifecycle() {
				selector = p.Selector
			}
		}
		add(query(selector, p.Lenient), &z.Lenient)
	}
	if p.Held.All != nil {
		add(query(p.Held.All, nil), &z.Held)
	}
	if p.Held.Own != nil {
		add(query(p.Held.Own, nil), &z.Own)
		add(query(p.Held.Revision, nil), &z.Revision)
	}
}

// Queries returns what AddQueries adds, and Answered the pods by zone, given their answers in the same order.
func (p *Pods) Queries(of *policy.Policy, pod *v1.Pod, availability policy.ZoneAvailability) (out []counts.Query) {
	p.AddQueries(of, pod, availability, &Zones{}, func(query counts.Query, _ **counts.Table) { out = append(out, query) })
	return out
}

// Answered is the other half of Queries.
func (p *Pods) Answered(
	of *policy.Policy, pod *v1.Pod, availability policy.ZoneAvailability, answers []*counts.Table,
) *Zones {
	z := &Zones{}
	p.AddQueries(of, pod, availability, z,
		func(_ counts.Query, answer **counts.Table) { *answer, answers = answers[0], answers[1:] })
	return z
}

// Domains returns the zones that have nodes, with their counts.
func (z *Zones) Domains(availability policy.ZoneAvailability) []policy.Domain {
	domains := make([]policy.Domain, 0, z.Existing.Domains())
	for zone, name := range z.Existing.All() {
		eligible := z.Eligible
		if z.Lenient != nil && availability[name].IgnoresLifecycle() {
			eligible = z.Lenient
		}
		d := policy.Domain{Name: name, Pods: int64(eligible.At(zone)), Eligible: eligible.Counts(zone)}
		if z.Held != nil {
			d.Held = int64(z.Held.At(zone))
		}
		if z.Own != nil {
			d.Held += int64(z.Revision.At(zone) - z.Own.At(zone))
		}
		domains = append(domains, d)
	}
	return domains
}

// Hidden yields the zones that are available, and in which only the taints of the node lifecycle make all nodes of a
// pod ineligible: others are open.
func (z *Zones) Hidden(availability policy.ZoneAvailability) iter.Seq[string] {
	return func(yield func(string) bool) {
		if z.Lenient == nil {
			return
		}
		for zone, name := range z.Lenient.All() {
			if !z.Eligible.Counts(zone) && availability[name] == policy.Available && !yield(name) {
				return
			}
		}
	}
}
