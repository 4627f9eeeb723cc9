// Package counted says which pods have to be counted for a policy to decide about a pod, and what their numbers say
// about each zone.
package counted

import (
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
	// Eligible are the nodes that count for the skew, and EligibleClosing those that do in a zone that is closing,
	// where the taints of the node lifecycle make no difference; nil for all.
	Eligible, EligibleClosing counts.Eligibility
}

// For returns what a policy counts for a pod of a workload, given how the zones take part, if only eligible nodes count
// for the skew.
func For(
	p *policy.Policy, w *policy.Workload, podLabels labels.Set, eligible counts.Eligibility, availability policy.ZoneAvailability,
) Pods {
	out := Pods{Selector: p.SelectorFor(podLabels), Eligible: eligible, EligibleClosing: eligible}
	if p.Caps() {
		out.Held = p.HeldFor(w, podLabels)
	}
	for _, a := range availability {
		if a == policy.Closing {
			out.EligibleClosing = counts.IgnoringLifecycle(eligible)
			break
		}
	}
	return out
}

// Zones are the pods by zone: for the skew on all nodes, on eligible ones, and on those that are eligible in a zone that
// is closing; for the caps see policy.Held. Those that are the same as Everywhere, or not needed, are nil.
type Zones struct {
	Everywhere, Eligible, Closing *counts.Table
	Held, Own, Revision           *counts.Table
}

// AddQueries adds what has to be counted for a pod, each with where its answer belongs. The pod's own gang is left out
// if the policy counts gangs, so that all of its members are treated alike.
func (p *Pods) AddQueries(of *policy.Policy, pod *v1.Pod, z *Zones, add func(query counts.Query, answer **counts.Table)) {
	query := func(selector labels.Selector, eligible counts.Eligibility) counts.Query {
		groupBy := of.GroupBy()
		return counts.Query{
			Namespace: pod.Namespace, Selector: selector, TopologyKey: of.TopologyKey(), Eligibility: eligible,
			GroupBy: groupBy, ExceptGroup: pod.Labels[groupBy],
		}
	}
	add(query(p.Selector, nil), &z.Everywhere)
	if p.Eligible != nil {
		add(query(p.Selector, p.Eligible), &z.Eligible)
	}
	if p.EligibleClosing != p.Eligible {
		add(query(p.Selector, p.EligibleClosing), &z.Closing)
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
func (p *Pods) Queries(of *policy.Policy, pod *v1.Pod) (out []counts.Query) {
	p.AddQueries(of, pod, &Zones{}, func(query counts.Query, _ **counts.Table) { out = append(out, query) })
	return out
}

// Answered is the other half of Queries.
func (p *Pods) Answered(of *policy.Policy, pod *v1.Pod, answers []*counts.Table) *Zones {
	z := &Zones{}
	p.AddQueries(of, pod, z, func(_ counts.Query, answer **counts.Table) { *answer, answers = answers[0], answers[1:] })
	return z
}

// Domains returns the zones that have nodes, with their counts. Excluded zones are not eligible.
func (z *Zones) Domains(availability policy.ZoneAvailability, excluded map[string]bool) []policy.Domain {
	domains := make([]policy.Domain, 0, z.Everywhere.Domains())
	for zone, name := range z.Everywhere.All() {
		d := policy.Domain{Name: name, Pods: int64(z.Everywhere.At(zone)), Eligible: true}
		eligible := z.Eligible
		if availability[name] == policy.Closing && z.Closing != nil {
			eligible = z.Closing
		}
		if eligible != nil {
			d.Pods, d.Eligible = int64(eligible.At(zone)), eligible.Counts(zone)
		}
		d.Eligible = d.Eligible && !excluded[name]
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
