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
	"zonewise.dev/internal/nodes"
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
	helpful := map[string]bool{} // nodes by name
	for _, i := range order {
		hopeless, err := findHelpful(ctx, c, &scenarios[i], helpful, options)
		if err != nil {
			return nil, err
		}
		if hopeless {
			return &Purchase{Nodes: []PurchasedNodes{}}, nil
		}
	}
	models := buy.Models(slices.DeleteFunc(slices.Clone(snapshot.List[*corev1.Node](c.Snapshot)), func(n *corev1.Node) bool { return !helpful[n.Name] }))
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

// findHelpful adds the nodes that would take a pod that stays Pending in a scenario if they were empty. It reports
// whether there is a pod that none would take, such as one whose volume is in the lost zone: then no number of nodes is
// tried, and no copy is many times as large as the cluster for nothing.
func findHelpful(
	ctx context.Context, c *census.Census, scenario *Scenario, helpful map[string]bool, options sim.Options,
) (hopeless bool, err error) {
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
		takers := slices.DeleteFunc(a.NodesIfEmpty(), func(n *corev1.Node) bool { return !nodes.Usable(n) })
		if len(takers) == 0 {
			return true, nil
		}
		for _, n := range takers {
			helpful[n.Name] = true
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
