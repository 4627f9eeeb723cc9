package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/buy"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
)

// Purchase says which nodes would have to be there so that no pod stays Pending in any scenario.
type Purchase struct {
	// Enough is true if there are such nodes among those like the nodes of the cluster. If no pod stays Pending anyway,
	// Nodes is empty.
	Enough bool             `json:"enough"`
	Nodes  []PurchasedNodes `json:"nodes"`
}

// PurchasedNodes are nodes like one of the cluster.
type PurchasedNodes struct {
	Nodes int    `json:"nodes"`
	Like  string `json:"like"`
	Zone  string `json:"zone"`
}

// FindPurchase runs the scenarios with more and more nodes, given their results without. tried is told what is tried;
// it may be nil.
func FindPurchase(
	ctx context.Context, c *census.Census, scenarios []Scenario, results []*Result, options sim.Options, tried func(words string),
) (*Purchase, error) {
	most := 0
	order := make([]int, len(scenarios))
	for i, r := range results {
		most, order[i] = max(most, r.Pending), i // a pod needs one node at most
	}
	if most == 0 {
		return &Purchase{Enough: true, Nodes: []PurchasedNodes{}}, nil
	}
	slices.SortStableFunc(order, func(a, b int) int { return results[b].Pending - results[a].Pending })
	models := buy.Models(snapshot.List[*corev1.Node](c.Snapshot))
	for _, i := range order {
		hopeless, err := isHopeless(ctx, c, &scenarios[i], models, options)
		if err != nil {
			return nil, err
		}
		if hopeless {
			return &Purchase{Nodes: []PurchasedNodes{}}, nil
		}
	}
	bought, err := buy.Search(models, most, func(bought map[string]int) (bool, error) {
		if tried != nil {
			tried(purchaseText(purchased(models, bought)))
		}
		for at, i := range order {
			scenario := scenarios[i]
			scenario.Bought, scenario.Rebalance = bought, false // moves are planned once
			r, err := Run(ctx, c, &scenario, options)
			if err != nil {
				return false, err
			}
			if r.Pending > 0 {
				copy(order[1:at+1], order[:at]) // what is not enough here is likely not enough with fewer nodes
				order[0] = i
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return &Purchase{Enough: bought != nil, Nodes: purchased(models, bought)}, nil
}

// isHopeless reports whether a pod stays Pending in a scenario that no node like the models would take, such as one
// whose volume is in the lost zone: each refuses it although it is empty. So no number of them is tried, and no copy is
// many times as large as the cluster for nothing.
func isHopeless(ctx context.Context, c *census.Census, scenario *Scenario, models []buy.Model, options sim.Options) (bool, error) {
	once := *scenario
	once.Rebalance = false
	p, err := newRun(ctx, c, &once, options, false)
	if err != nil {
		return false, err
	}
	defer p.sim.Close()
	if err := p.runScenario(&once); err != nil {
		return false, err
	}
	fresh := map[string]bool{}
	for _, m := range models {
		if _, there := sim.Get[*corev1.Node](p.sim, "", m.Node); !there {
			continue // what is bought there is lost as well
		}
		added, err := p.sim.AddNodes(1, m.Node)
		if err != nil {
			return false, err
		}
		fresh[added[0]] = true
	}
	asked := map[string]bool{} // workloads, whose pods are alike but for their volumes
	for _, pod := range sim.List[*corev1.Pod](p.sim) {
		key := fmt.Sprint(metav1.GetControllerOfNoCopy(pod), pod.Spec.Volumes)
		if pod.Spec.NodeName != "" || !p.moved[pod.UID] || asked[key] || p.sim.OfOtherScheduler(pod) {
			continue
		}
		asked[key] = true
		a, err := p.sim.Evaluate(ctx, pod)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(a.Nodes, func(n sim.NodeEvaluation) bool {
			return fresh[n.Node.Name] && !n.RefusesEmpty()
		}) {
			return true, nil
		}
	}
	return false, nil
}

// purchased lists what is bought, in the order of the models.
func purchased(models []buy.Model, bought map[string]int) []PurchasedNodes {
	out := []PurchasedNodes{}
	for _, m := range models {
		if n := bought[m.Node]; n > 0 {
			out = append(out, PurchasedNodes{Nodes: n, Like: m.Node, Zone: m.Zone})
		}
	}
	return out
}

func purchaseText(nodes []PurchasedNodes) string {
	var parts []string
	for _, n := range nodes {
		parts = append(parts, fmt.Sprintf("%s like %s in zone %s", show.Plural(n.Nodes, "node"), n.Like, status.ZoneText(n.Zone)))
	}
	return strings.Join(parts, ", ")
}

func (b *Purchase) writeText(p *show.Page) {
	p.Title("To buy")
	switch {
	case !b.Enough:
		p.Para(2, show.Red, "no number of nodes like those of the cluster lets all pods run")
	case len(b.Nodes) == 0:
		p.Para(2, show.Green, "nothing: no pod stays Pending")
	default:
		p.Para(2, show.Plain, "%s: then no pod stays Pending", purchaseText(b.Nodes))
	}
}

// addedNodes returns how many nodes are added like which.
func (s *Scenario) addedNodes() map[string]int {
	out := maps.Clone(s.Bought)
	if out == nil {
		out = map[string]int{}
	}
	if s.AddNodes > 0 {
		out[s.Like] += s.AddNodes
	}
	return out
}
