package zonespread

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
)

var (
	_ fwk.PreScorePlugin  = (*ZoneSpread)(nil)
	_ fwk.ScorePlugin     = (*ZoneSpread)(nil)
	_ fwk.ScoreExtensions = (*ZoneSpread)(nil)
)

const preScoreStateKey fwk.StateKey = "PreScore" + Name

// preScoreState is what Score knows about a pod's soft constraints and policies.
type preScoreState struct {
	constraints []constraint
	tables      []*counts.Table // by constraint
	weights     []float64       // by constraint
	// ignored holds the names of the nodes that lack a topology key and get the lowest score.
	ignored    sets.Set[string]
	byPolicies policyScores // nil without policies
}

// Clone returns the state itself: nothing changes it.
func (s *preScoreState) Clone() fwk.StateData { return s }

// PreScore counts for the pod's soft constraints and scores zones by its policies. It is Skip when there are none of
// either. A pod that was signed before its policy came gets no hint: what the hint rests on are scores that the pods
// placed since have changed.
func (pl *ZoneSpread) PreScore(
	ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, filteredNodes []fwk.NodeInfo,
) *fwk.Status {
	if rescores(cycleState) {
		return fwk.NewStatus(fwk.Unschedulable, "pods with zone spread policies are not batched")
	}
	nodes, err := pl.lister.NodeInfos().List()
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("getting all nodes: %w", err))
	}
	if len(nodes) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	constraints, err := pl.constraintsOf(pod, v1.ScheduleAnyway)
	if err != nil {
		return fwk.AsStatus(err)
	}
	byPolicies := pl.scoresByPolicies(cycleState, filteredNodes)
	if len(constraints) == 0 && byPolicies == nil {
		return fwk.NewStatus(fwk.Skip)
	}

	// A cluster without zones still spreads over hosts by the system's default constraints, so those do
	// not need every key.
	needsAllKeys := len(pods.SpreadConstraints(pod)) > 0 || !pl.systemDefaulted
	state := &preScoreState{constraints: constraints, ignored: sets.New[string](), byPolicies: byPolicies}
	queries := make([]counts.Query, len(constraints))
	var keys []string
	if needsAllKeys {
		keys = topologyKeys(constraints)
	}
	for i := range constraints {
		if constraints[i].topologyKey == v1.LabelHostname {
			// A host counts the pods that are on it, whatever its label says, if it has the label.
			queries[i] = counts.Query{
				Namespace: pod.Namespace, Selector: constraints[i].selector,
				TopologyKey: counts.PerNode, RequiredKeys: []string{v1.LabelHostname},
			}
			continue
		}
		queries[i] = constraints[i].query(pod.Namespace, keys)
		queries[i].MissingIsEmpty = !needsAllKeys
	}
	state.tables = pl.count(ctx, cycleState, nodes, queries)
	state.weights = weigh(state, filteredNodes, len(nodes), needsAllKeys)
	cycleState.Write(preScoreStateKey, state)
	return nil
}

// domainOf returns the node's domain for a constraint, and false if it lacks the topology key.
func (s *preScoreState) domainOf(node *v1.Node, i int) (counts.Domain, bool) {
	domain, ok := s.tables[i].Find(node)
	if ok && s.constraints[i].topologyKey == v1.LabelHostname {
		// By name each node is a domain; this one's table counts those with the label.
		ok = s.tables[i].Counts(domain)
	}
	return domain, ok
}

// seenAll reports whether the remaining nodes cannot change the weights: all domains are offered, and no node is
// ignored.
func (s *preScoreState) seenAll(offered []sets.Set[counts.Domain], allNodes int) bool {
	for i, table := range s.tables {
		if s.constraints[i].topologyKey == v1.LabelHostname {
			if table.Domains() < allNodes {
				return false
			}
			continue
		}
		if values, everywhere := table.Everywhere(); !everywhere || offered[i].Len() < values {
			return false
		}
	}
	return true
}

// weigh returns the weight of each constraint, by the number of domains that the pod can choose from,
// and notes the nodes to be ignored. There are allNodes in the cluster.
func weigh(state *preScoreState, filteredNodes []fwk.NodeInfo, allNodes int, needsAllKeys bool) []float64 {
	offered := make([]sets.Set[counts.Domain], len(state.constraints))
	for i := range offered {
		offered[i] = sets.New[counts.Domain]()
	}
	found := make([]counts.Domain, len(state.constraints))
nodes:
	for _, nodeInfo := range filteredNodes {
		if state.seenAll(offered, allNodes) {
			break
		}
		node := nodeInfo.Node()
		for i := range state.constraints {
			domain, ok := state.domainOf(node, i)
			switch {
			case ok:
			case needsAllKeys:
				state.ignored.Insert(node.Name)
				continue nodes
			default:
				domain = state.tables[i].Empty()
			}
			found[i] = domain
		}
		for i, domain := range found {
			if state.constraints[i].topologyKey != v1.LabelHostname {
				offered[i].Insert(domain)
			}
		}
	}
	weights := make([]float64, len(state.constraints))
	for i := range state.constraints {
		domains := offered[i].Len()
		if state.constraints[i].topologyKey == v1.LabelHostname {
			domains = len(filteredNodes) - state.ignored.Len()
		}
		weights[i] = counts.Weight(domains)
	}
	return weights
}

// Score returns the node's raw score. Less is better in its part by constraints, and more in that by policies.
func (pl *ZoneSpread) Score(
	_ context.Context, cycleState fwk.CycleState, _ *v1.Pod, nodeInfo fwk.NodeInfo,
) (int64, *fwk.Status) {
	s, err := readState[*preScoreState](cycleState, preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	node := nodeInfo.Node()
	byPolicies := s.byPolicies.scoreOf(node)
	// Most pods ignore no node.
	if len(s.ignored) > 0 && s.ignored.Has(node.Name) {
		return withPolicy(0, byPolicies), nil
	}
	var sum float64
	for i := range s.constraints {
		if domain, ok := s.domainOf(node, i); ok {
			sum += counts.Contribution(s.tables[i].At(domain), s.constraints[i].maxSkew, s.weights[i])
		}
	}
	return withPolicy(counts.Raw(sum), byPolicies), nil
}

// NormalizeScore turns raw scores into 0..MaxNodeScore; ignored nodes get 0.
func (pl *ZoneSpread) NormalizeScore(
	_ context.Context, cycleState fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	s, err := readState[*preScoreState](cycleState, preScoreStateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	scored := counts.NewRange()
	for i := range scores {
		if !s.ignored.Has(scores[i].Name) {
			scored.Add(byConstraints(scores[i].Score))
		}
	}
	for i := range scores {
		var normalized int64
		if !s.ignored.Has(scores[i].Name) {
			normalized = scored.Normalize(byConstraints(scores[i].Score))
		}
		scores[i].Score = s.byPolicies.joinScores(normalized, scores[i].Score, len(s.constraints) > 0)
	}
	return nil
}

// ScoreExtensions returns the plugin itself.
func (pl *ZoneSpread) ScoreExtensions() fwk.ScoreExtensions { return pl }
