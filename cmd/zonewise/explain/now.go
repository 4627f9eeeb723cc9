package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
)

// Now says where a bound pod would go if it were placed now, and so why it is where it is.
type Now struct {
	// Node is the one that it would get, the first of Nodes; empty if it would wait. If several have the same score, it
	// is its own if that is among them.
	Node string `json:"node,omitempty"`
	// Stays: Node is where it is.
	Stays bool `json:"stays"`
	// Fit is how many nodes would take it.
	Fit int `json:"fit"`
	// Refusal is why its own node would not take it: the plugin and its words.
	Refusal string `json:"refusal,omitempty"`
	// Nodes has the best nodes and its own, the best first.
	Nodes []NodeScore `json:"nodes,omitempty"`
}

// NodeScore is what the plugins give a node.
type NodeScore struct {
	Node  string `json:"node"`
	Zone  string `json:"zone,omitempty"`
	Own   bool   `json:"own,omitempty"`
	Score int64  `json:"score"`
	// Plugins has each plugin's points with its weight.
	Plugins map[string]int64 `json:"plugins"`
}

// mostScores is the largest number of nodes whose scores are shown, besides the pod's own.
const mostScores = 3

// explainBound adds to the report where a bound pod would go now.
func explainBound(ctx context.Context, c *census.Census, s *sim.Sim, p *census.Pod, r *Report) error {
	if sim.NodeBound(p.Pod) {
		return nil // it was made for its node
	}
	bound := withoutGang(p.Pod)
	answer, err := s.EvaluateBound(ctx, bound)
	if err != nil {
		return err
	}
	r.Zone = zonesOf(c, s, bound, answer)
	r.Now = &Now{}
	var nodes []NodeScore
	for i := range answer.Nodes {
		n := &answer.Nodes[i]
		own := n.Node.Name == p.Spec.NodeName
		if n.Refusal == nil {
			nodes = append(nodes, NodeScore{Node: n.Node.Name, Zone: n.Node.Labels[corev1.LabelTopologyZone], Own: own, Score: n.Score, Plugins: n.Scores})
		} else if own {
			r.Now.Refusal = strings.TrimPrefix(n.Refusal.Plugin+": "+n.Refusal.Message(), ": ")
		}
	}
	slices.SortStableFunc(nodes, func(a, b NodeScore) int { return cmp.Or(cmp.Compare(b.Score, a.Score), compareTrue(a.Own, b.Own)) })
	r.Now.Fit = len(nodes)
	if len(nodes) == 0 {
		return nil
	}
	r.Now.Node, r.Now.Stays = nodes[0].Node, nodes[0].Own
	for i := range nodes {
		if i < mostScores || nodes[i].Own {
			r.Now.Nodes = append(r.Now.Nodes, nodes[i])
		}
	}
	return nil
}

// compareTrue puts what is true first.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (n *Now) writeText(p *show.Page) {
	p.Title("If it were placed now")
	switch {
	case n.Node == "":
		p.Para(2, show.Yellow, "it would wait: no node would take it")
	case n.Stays:
		p.Para(2, show.Green, "it would get the same node: %s would take it, and no score is higher", show.Plural(n.Fit, "node"))
	default:
		p.Para(2, show.Yellow, "it would go to node %s in zone %s: %s would take it", n.Node, status.ZoneText(n.Nodes[0].Zone), show.Plural(n.Fit, "node"))
	}
	if n.Refusal != "" {
		p.Para(2, show.Plain, "its own node would not take it: %s", n.Refusal)
	}
	show.Section(p, "Scores", []string{"NODE", "ZONE", "SCORE", "BY PLUGIN"}, n.Nodes, func(s *NodeScore) []show.Cell {
		name := s.Node
		if s.Own {
			name += " (its own)"
		}
		var parts []string
		for _, plugin := range slices.Sorted(maps.Keys(s.Plugins)) {
			if s.Plugins[plugin] != 0 {
				parts = append(parts, fmt.Sprintf("%s %d", plugin, s.Plugins[plugin]))
			}
		}
		return show.Row(name, status.ZoneText(s.Zone), s.Score, strings.Join(parts, ", "))
	})
}
