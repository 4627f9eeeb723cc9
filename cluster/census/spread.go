package census

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
)

// Spread is the pods that one topologySpreadConstraint over zones counts.
type Spread struct {
	Workload string
	// Zones has the pods by zone; zones without a node that counts are left out.
	Zones map[string]int
	// Pods is the sum, Most and Fewest the extremes.
	Pods, Most, Fewest int
	MaxSkew            int32
	// Hard is true if the constraint must hold.
	Hard bool
}

// Skew is the difference between the zones with most and with fewest pods.
func (s *Spread) Skew() int { return s.Most - s.Fewest }

// Spreads counts for the zone constraints of the workloads with pods in a namespace (all if it is empty), sorted by
// name. The newest pod of a workload stands for all.
func (c *Census) Spreads(namespace string) []Spread {
	newest := map[string]*Pod{}
	for _, p := range c.PodsIn(namespace) {
		if !slices.ContainsFunc(pods.SpreadConstraints(p.Pod), OverZones) {
			continue
		}
		name := c.Workload(p.Pod)
		if old := newest[name]; old == nil || old.CreationTimestamp.Time.Before(p.CreationTimestamp.Time) {
			newest[name] = p
		}
	}
	var out []Spread
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		pod := newest[name].Pod
		constraints := pods.SpreadConstraints(pod)
		for i := range constraints {
			if constraint := &constraints[i]; OverZones(*constraint) {
				s := c.Spread(pod, constraint)
				s.Workload = name
				out = append(out, s)
			}
		}
	}
	return out
}

// OverZones reports whether a constraint spreads over zones.
func OverZones(c v1.TopologySpreadConstraint) bool { return c.TopologyKey == v1.LabelTopologyZone }

// Spread counts for one constraint over zones of a pod.
func (c *Census) Spread(pod *v1.Pod, constraint *v1.TopologySpreadConstraint) Spread {
	table := c.Count([]counts.Query{QueryOf(pod, constraint)})[0]
	s := Spread{
		Zones: map[string]int{}, MaxSkew: constraint.MaxSkew, Hard: constraint.WhenUnsatisfiable == v1.DoNotSchedule,
		Fewest: counts.GlobalMinimum(table.Minimum(), table.Domains(), int(ptr.Deref(constraint.MinDomains, 1))),
	}
	for domain, zone := range table.All() {
		count := table.At(domain)
		s.Zones[zone] = count
		s.Pods += count
		s.Most = max(s.Most, count)
	}
	return s
}

// QueryOf asks for the pods that a constraint over zones of a pod counts.
func QueryOf(pod *v1.Pod, constraint *v1.TopologySpreadConstraint) counts.Query {
	honorAffinity := ptr.Deref(constraint.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor
	honorTaints := ptr.Deref(constraint.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyHonor
	return counts.Query{
		Namespace: pod.Namespace, Selector: selectorOf(pod, constraint), TopologyKey: v1.LabelTopologyZone,
		Eligibility: counts.EligibilityOf(pod, honorAffinity, honorTaints, feature.TolerationOperators()),
	}
}

// Count answers queries about the pods on nodes that have a zone.
func (c *Census) Count(queries []counts.Query) []*counts.Table { return c.index().Count(queries, nil) }

func selectorOf(pod *v1.Pod, c *v1.TopologySpreadConstraint) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return labels.Nothing()
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			same, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
			selector = selector.Add(same...)
		}
	}
	return selector
}

// newIndex counts the pods on nodes that have a zone.
func (c *Census) newIndex() *counts.Index {
	var nodes []nodeInfo
	for _, n := range c.Nodes {
		if n.Zone != "" {
			nodes = append(nodes, nodeInfo{n})
		}
	}
	index := counts.NewIndex(counts.DefaultLimits())
	counts.Update(index, nodes, make([]int64, len(nodes)))
	return index
}

// nodeInfo implements counts.NodeInfo.
type nodeInfo struct{ of *Node }

func (n nodeInfo) Node() *v1.Node { return n.of.Node }

func (n nodeInfo) GetPods() []*Pod { return n.of.Pods }

// GetPod implements counts.PodInfo.
func (p *Pod) GetPod() *v1.Pod { return p.Pod }
