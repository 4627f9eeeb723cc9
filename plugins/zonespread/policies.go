package zonespread

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policies"
	"zonewise.dev/plugins/zonespread/policy"
)

const policyStateKey fwk.StateKey = "Policies" + Name

// policyState keeps the verdicts of PreFilter for PreScore and PostFilter. AddPod and RemovePod change those of a
// copied preFilterState only.
type policyState struct{ verdicts *policies.Verdicts }

// Clone returns the state itself: nothing changes it.
func (s policyState) Clone() fwk.StateData { return s }

// policiesFor returns the policies of the scheduler that the handle belongs to. Without an API server there are none.
func policiesFor(ctx context.Context, h fwk.Handle) (*policies.Policies, error) {
	if h.SharedInformerFactory() == nil {
		return policies.New(), nil
	}
	p := perscheduler.Get(ctx, h, Name+"/policies", func() *policies.Policies { return policies.New() })
	if err := p.Join(ctx, h); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	return p, nil
}

// judge asks the pod's policies. Most pods have none.
func (pl *ZoneSpread) judge(ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *policies.Verdicts {
	pl.policies.AwaitStart(ctx)
	if !pl.policies.Selects(pod) {
		return nil // before anything is allocated
	}
	verdicts := pl.policies.Judge(pod, policyCounter{pl: pl, ctx: ctx, cycleState: cycleState, nodes: nodes}, pl.features.comparisonOperators)
	if verdicts != nil {
		cycleState.Write(policyStateKey, policyState{verdicts})
	}
	return verdicts
}

// verdictsOf returns what judge found in this cycle; nil when the pod has no policies.
func verdictsOf(cycleState fwk.CycleState) *policies.Verdicts {
	state, _ := cycleState.Read(policyStateKey) // an error says that there is none
	if s, ok := state.(policyState); ok {
		return s.verdicts
	}
	return nil
}

// policyCounter counts for policies with the shared index.
type policyCounter struct {
	pl         *ZoneSpread
	ctx        context.Context //nolint:containedctx // it lives for one call of Judge, as an argument would
	cycleState fwk.CycleState
	nodes      []fwk.NodeInfo
}

// Domains implements policies.Counter. Whether a zone has a node of some kind is asked of the index as well, which keeps
// it for each kind of pod: looking at the nodes would cost more than all the rest.
func (c policyCounter) Domains(q policies.Query) []policy.Domain {
	in := newInclusion(q.Pod, c.pl.features.comparisonOperators)
	query := counts.Query{Namespace: q.Pod.Namespace, Selector: q.Selector, TopologyKey: q.TopologyKey}
	queries := append(make([]counts.Query, 0, 3), query)
	query.Eligibility = in.eligibility(q.HonorAffinity, q.HonorTaints)
	queries = append(queries, query)
	admission := in.eligibility(q.HonorAffinity, false)
	if admission != nil {
		query.Eligibility = admission
		queries = append(queries, query)
	}
	tables := c.pl.count(c.ctx, c.cycleState, c.nodes, queries)
	all, eligible := tables[0], tables[1]

	domains := make([]policy.Domain, 0, all.Domains())
	for zone, pods := range all.All() {
		domains = append(domains, policy.Domain{
			Name: zone, Pods: int64(eligible.Count(zone)), AllPods: int64(pods),
			Eligible: eligible.Has(zone), Excluded: admission != nil && !tables[2].Has(zone),
		})
	}
	return domains
}

// countsByPolicy tells whether a policy of the pod counts the other one, which may be nil.
func (pl *ZoneSpread) countsByPolicy(pod, other *v1.Pod) bool {
	return other != nil && other.DeletionTimestamp == nil && pl.policies.CountsFor(pod, other)
}

// policyScores are what the policies of the cycle's pod make of the nodes that passed all filters.
type policyScores struct {
	names  []string
	scores []int64 // by the place of the name
}

// scoresByPolicies returns nil when the pod has no policies.
func scoresByPolicies(cycleState fwk.CycleState, filteredNodes []fwk.NodeInfo) *policyScores {
	verdicts := verdictsOf(cycleState)
	if verdicts == nil {
		return nil
	}
	nodes := make([]*v1.Node, len(filteredNodes))
	names := make([]string, len(filteredNodes))
	for i := range filteredNodes {
		nodes[i] = filteredNodes[i].Node()
		names[i] = nodes[i].Name
	}
	return &policyScores{names: names, scores: verdicts.Scores(nodes)}
}

// of returns the score of a node; 0 for one that did not pass. The framework normalizes scores in the order in which it
// gave the nodes, which the guess at their place is about.
func (p *policyScores) of(name string, guess int) int64 {
	if guess >= len(p.names) || p.names[guess] != name {
		if guess = slices.Index(p.names, name); guess < 0 {
			return 0
		}
	}
	return p.scores[guess]
}

// policyShare is the weight of policies beside soft constraints, of 4 in all. Policies decide about zones; what
// constraints say, the default ones among them, is left to tell the nodes of a zone apart (ADR 0009).
const policyShare = 3

// addPolicies gives the policies their share in the normalized scores, all of it when there are no soft constraints.
func (s *preScoreState) addPolicies(scores fwk.NodeScoreList) {
	if s.byPolicies == nil {
		return
	}
	for i := range scores {
		score := s.byPolicies.of(scores[i].Name, i)
		if len(s.constraints) > 0 {
			score = (policyShare*score + (4-policyShare)*scores[i].Score) / 4
		}
		scores[i].Score = score
	}
}
