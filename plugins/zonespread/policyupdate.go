package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// updatePolicies changes the policies of a pod as if so many pods like the given one came to the node, or left it. That
// pod is not terminating, and is of the namespace.
func (pl *ZoneSpread) updatePolicies(
	ctx context.Context, cycleState fwk.CycleState, p *podPolicies, pod *v1.Pod, node *v1.Node, pods int,
) error {
	if p == nil {
		return nil
	}
	for _, each := range p.each {
		zone, ok := node.Labels[each.TopologyKey()]
		if !ok {
			continue
		}
		change, err := pl.changeBy(ctx, cycleState, each, p.pod, pod, node, zone, pods)
		if err != nil {
			return err
		}
		if change != (policy.Change{}) {
			each.table.Add(zone, change)
			clear(each.refusals)
		}
	}
	return nil
}

// changeBy returns the change of a policy's counts in a zone, see updatePolicies.
func (pl *ZoneSpread) changeBy(ctx context.Context, cycleState fwk.CycleState, p *podPolicy, podToSchedule, pod *v1.Pod,
	node *v1.Node,
	zone string, pods int,
) (policy.Change, error) {
	var c policy.Change
	podLabels := labels.Set(pod.Labels)
	gang := pod.Labels[p.GroupBy()]
	if gang == "" {
		if p.Selector.Matches(podLabels) && p.admits(zone, node) {
			c.Pods = int64(pods)
		}
		if p.Held.Counts(podLabels) {
			c.Held = int64(pods)
		}
		return c, nil
	}
	if gang == podToSchedule.Labels[p.GroupBy()] || !p.Selector.Matches(podLabels) {
		return c, nil
	}
	views, err := pl.viewsOf(ctx, cycleState, p, podToSchedule, gang)
	if err != nil {
		return c, err
	}
	c.Held = addToGang(&views.everywhere, zone, pods) // the caps count the same gangs
	if counts.Admits(p.Eligible, node) {
		c.Pods = addToGang(&views.eligible, zone, pods)
	} else if p.Availability[zone].IgnoresLifecycle() {
		c.Pods = c.Held
	}
	p.gangs[gang] = views
	return c, nil
}

// gangViews are the pods of a gang, on eligible nodes and on all.
type gangViews struct{ eligible, everywhere counts.View }

// viewsOf returns where a gang's pods are.
func (pl *ZoneSpread) viewsOf(
	ctx context.Context, cycleState fwk.CycleState, p *podPolicy, pod *v1.Pod, gang string,
) (gangViews, error) {
	if views, known := p.gangs[gang]; known {
		return views, nil
	}
	nodes, err := pl.lister.NodeInfos().List()
	if err != nil {
		return gangViews{}, err
	}
	ofGang, _ := labels.SelectorFromSet(labels.Set{p.GroupBy(): gang}).Requirements()
	query := counts.Query{
		Namespace: pod.Namespace, Selector: p.Selector.Add(ofGang...), TopologyKey: p.TopologyKey(),
		Eligibility: p.Eligible,
	}
	everywhere := query
	everywhere.Eligibility = nil
	tables := pl.count(ctx, cycleState, nodes, []counts.Query{query, everywhere})
	if p.gangs == nil {
		p.gangs = map[string]gangViews{}
	}
	p.gangs[gang] = gangViews{counts.NewView(tables[0]), counts.NewView(tables[1])}
	return p.gangs[gang], nil
}

// addToGang adds pods of a gang to a zone or removes them, and returns the change in the number of gangs there.
func addToGang(view *counts.View, zone string, pods int) int64 {
	had := view.Count(zone) > 0
	view.Add(zone, pods)
	has := view.Count(zone) > 0
	switch {
	case has && !had:
		return 1
	case had && !has:
		return -1
	}
	return 0
}
