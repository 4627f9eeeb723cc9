package policies

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/internal/nodes"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// Queries are what has to be counted for a policy to decide about pods of a workload like one, if only eligible nodes count for the skew. The policy
// counts pods, not gangs. Domains takes the answers.
func Queries(p *policy.Policy, w *policy.Workload, like *v1.Pod, eligible counts.Eligibility) []counts.Query {
	query := func(selector labels.Selector, e counts.Eligibility) counts.Query {
		return counts.Query{Namespace: like.Namespace, Selector: selector, TopologyKey: p.TopologyKey(), Eligibility: e}
	}
	selector := p.SelectorFor(like.Labels)
	out := []counts.Query{query(selector, nil), query(selector, eligible)}
	if p.Caps() {
		held := p.HeldFor(w, like.Labels)
		out = append(out, query(held.All, nil))
		if held.Own != nil {
			out = append(out, query(held.Own, nil), query(held.Revision, nil))
		}
	}
	return out
}

// Domains returns the zones that have nodes, with their counts, given the answers to the queries of Queries.
func Domains(answers []*counts.Table) (domains []policy.Domain) {
	for zone, name := range answers[0].All() {
		d := policy.Domain{Name: name, Pods: int64(answers[1].At(zone)), Eligible: answers[1].Counts(zone)}
		if len(answers) > 2 {
			d.Held = int64(answers[2].At(zone))
		}
		if len(answers) > 3 {
			d.Held += int64(answers[4].At(zone) - answers[3].At(zone))
		}
		domains = append(domains, d)
	}
	return domains
}

// ZoneNodes returns what the nodes of each zone look like, by the value of a topology key.
func ZoneNodes(all []*v1.Node, topologyKey string) map[string]policy.ZoneNodes {
	out := map[string]policy.ZoneNodes{}
	for _, node := range all {
		if zone, ok := node.Labels[topologyKey]; ok {
			z := out[zone]
			z.Nodes++
			if nodes.Usable(node) {
				z.Open++
			}
			out[zone] = z
		}
	}
	return out
}
