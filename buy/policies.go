package buy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

const (
	// WaitsAtLeast is how long a pod has waited before room is asked for it: one that waits for less may be about to be
	// placed.
	WaitsAtLeast = 30 * time.Second
	// WaitsAtMost is how long room is asked for a pod that a policy refuses: one that waits longer lacks something
	// else.
	WaitsAtMost = time.Hour
)

// Refused are pods that a policy has made wait, about which it decides alike.
type Refused struct {
	// Table is the policy's decision, and Beside are those of the other policies that select the pods and may refuse a
	// zone.
	Table  *policy.Table
	Beside []*policy.Table
	Pods   []*v1.Pod
	// Changes returns what a pod of others that the policy has made wait changes about each table, Table's first, once
	// it is placed.
	Changes func(pod *v1.Pod) []policy.Change
}

// Waits reports whether a pod waits because of a policy.
func Waits(pod *v1.Pod, p *policy.Policy) bool {
	return pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 && pod.Status.NominatedNodeName == "" &&
		pods.Live(pod) &&
		p.Refused(pod)
}

// WaitsSince returns since when a pod that waits may be placed, given when it was first seen to wait. The condition of
// a pod that was gated keeps its time when the gates go, so the time of one whose spec has changed tells nothing.
func WaitsSince(pod *v1.Pod, seen time.Time) time.Time {
	if pod.Generation > 1 {
		return seen
	}
	return pods.Condition(pod, v1.PodScheduled).LastTransitionTime.Time
}

// PolicyDemand returns what a policy with spec.buy wants: room for the pods that it has made wait, in the zones to
// which it lets them go. In the other zones an autoscaler sees itself what is missing, once the policy lets pods go
// there.
func PolicyDemand(p *v1alpha1.ZoneSpreadPolicy, refused []Refused, cluster *Cluster) *Demand {
	d := newDemand("ZoneSpreadPolicy", p, &v1alpha1.Buy{
		Namespace: p.Namespace, Max: p.Spec.Buy.Max, PriorityClassName: p.Spec.Buy.PriorityClassName,
		Labels: p.Spec.Buy.Labels,
	})
	d.Lost = lostZones(cluster.Nodes) // the policy itself decides whether the others take over
	d.Arrived = arrived(p, cluster)
	d.wantFor(refused)
	slices.SortFunc(d.Wants, func(a, b Want) int {
		return cmp.Or(
			strings.Compare(a.Zone, b.Zone),
			strings.Compare(shapeKey(a.Requests, a.Placing), shapeKey(b.Requests, b.Placing)),
		)
	})
	return d
}

// wantFor adds what pods want, the oldest first: each goes to the zone that the policies send it to once those before
// it have gone.
func (d *Demand) wantFor(all []Refused) {
	var groups []*placing
	byPod := map[*v1.Pod]*placing{}
	var queue []*v1.Pod
	for i := range all {
		if !all[i].Table.Refuses() {
			continue // an autoscaler sees what the scheduler sees
		}
		g := &placing{Refused: &all[i], changes: map[*placing][]policy.Change{}}
		for _, table := range append([]*policy.Table{g.Table}, g.Beside...) {
			g.tables = append(g.tables, table.Clone())
		}
		groups = append(groups, g)
		for _, pod := range g.Pods {
			byPod[pod] = g
			queue = append(queue, pod)
		}
	}
	slices.SortStableFunc(queue, func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	for _, pod := range queue {
		from := byPod[pod]
		zone, ok := from.zoneFor(pod)
		if !ok {
			continue // another pod may still go somewhere: this one may be bound to a zone
		}
		for _, g := range groups {
			g.place(from, zone)
		}
		if from.Table.Rule(zone).OK() {
			d.want(zone, resource.PodRequests(pod, resource.PodResourcesOptions{}), placingOf(pod), 1)
		}
	}
}

// placing is refused pods, and the decisions about them once others are placed.
type placing struct {
	*Refused
	tables  []*policy.Table
	changes map[*placing][]policy.Change // by whose pod is placed
}

// zoneFor returns where the policies send a pod; false if nowhere.
func (g *placing) zoneFor(pod *v1.Pod) (zone string, ok bool) {
	only, fixed := pod.Spec.NodeSelector[v1.LabelTopologyZone]
	return g.tables[0].Emptiest(func(zone string) bool {
		return (!fixed || only == zone) &&
			!slices.ContainsFunc(g.tables[1:], func(t *policy.Table) bool { return !t.Rule(zone).OK() })
	})
}

// place enters that a pod of a group is in a zone. The pods of one group are alike to all.
func (g *placing) place(from *placing, zone string) {
	changes, known := g.changes[from]
	switch {
	case known:
	case from == g:
		for _, table := range g.tables {
			change := policy.Change{Pods: 1}
			if table.Policy().Caps() {
				change.Held = 1
			}
			changes = append(changes, change)
		}
	default:
		changes = g.Changes(from.Pods[0])
	}
	g.changes[from] = changes
	for i, change := range changes {
		if change != (policy.Change{}) {
			g.tables[i].Add(zone, change)
		}
	}
}

// arrived returns when the pods of a policy were placed in each zone.
func arrived(p *v1alpha1.ZoneSpreadPolicy, cluster *Cluster) map[string][]time.Time {
	selected := selection{}
	selected.add(p.Namespace, &p.Spec.PodSelector)
	zones := zonesOf(cluster.Nodes)
	out := map[string][]time.Time{}
	for _, pod := range cluster.Pods {
		zone := zones[pod.Spec.NodeName]
		if zone == "" || !pods.Live(pod) || !selected.has(pod) {
			continue
		}
		if c := pods.Condition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionTrue {
			out[zone] = append(out[zone], c.LastTransitionTime.Time)
		}
	}
	return out
}

// placingOf says where a pod may be, as far as a PodTemplate without the pod's labels can say it.
func placingOf(pod *v1.Pod) *Placing {
	out := &Placing{NodeSelector: pod.Spec.NodeSelector, Tolerations: declaredTolerations(pod)}
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return out
	}
	if affinity.NodeAffinity != nil {
		out.Affinity = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if affinity.PodAntiAffinity == nil {
		return out
	}
	for i := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		term := affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i].DeepCopy()
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if term.TopologyKey != v1.LabelHostname || err != nil {
			continue
		}
		term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil // the API server has put their values into the selector
		out.Apart = append(out.Apart, *term)
		if selector.Matches(labels.Set(pod.Labels)) {
			out.PerNode = 1
		}
	}
	if out.PerNode == 0 {
		out.Apart = nil
	}
	return out
}

// zonesOf returns the zones of nodes by their names.
func zonesOf(all []*v1.Node) map[string]string {
	zones := map[string]string{}
	for _, node := range all {
		zones[node.Name] = node.Labels[v1.LabelTopologyZone]
	}
	return zones
}
