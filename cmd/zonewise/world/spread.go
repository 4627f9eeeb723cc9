package world

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/zonespread/counts"
)

// Spread is what one topologySpreadConstraint over zones counts for a workload.
type Spread struct {
	Workload string
	// Pods are those that are counted, by zone in Zones; Most is the largest of the latter. Zones without a node that
	// counts are left out.
	Pods, Most int
	Zones      map[string]int
	// Skew is measured as the scheduler does, against MaxSkew; Hard says whether it must hold.
	Skew    int
	MaxSkew int32
	Hard    bool
}

// Spreads measures the constraints over zones of the workloads with pods in a namespace, in all when it is empty, by
// name. Of a workload the newest pod speaks for all. It looks at no more than so many nodes and pods, and returns
// how many workloads are left out for that.
func (w *World) Spreads(namespace string, work int) (out []Spread, left int) {
	newest := map[string]*Pod{}
	for _, p := range w.In(namespace) {
		if !slices.ContainsFunc(p.Object.Spec.TopologySpreadConstraints, overZones) {
			continue
		}
		name := w.Workload(p.Object)
		if old := newest[name]; old == nil || old.Object.CreationTimestamp.Time.Before(p.Object.CreationTimestamp.Time) {
			newest[name] = p
		}
	}
	names := make([]string, 0, len(newest))
	for name := range newest {
		names = append(names, name)
	}
	slices.Sort(names)
	known := map[string]*counting{} // by what it depends on
	for _, name := range names {
		pod := newest[name].Object
		for i := range pod.Spec.TopologySpreadConstraints {
			c := &pod.Spec.TopologySpreadConstraints[i]
			if !overZones(*c) {
				continue
			}
			key := countingKey(pod, c)
			nodes := known[key]
			if nodes == nil {
				if work < len(w.Nodes) {
					left++
					break
				}
				work -= len(w.Nodes)
				nodes = w.counting(pod, c)
				known[key] = nodes
			}
			s := w.spread(pod, c, nodes)
			s.Workload = name
			work -= s.Pods
			out = append(out, s)
		}
	}
	return out, left
}

func overZones(c corev1.TopologySpreadConstraint) bool {
	return c.TopologyKey == corev1.LabelTopologyZone
}

func honors(policy *corev1.NodeInclusionPolicy, unless corev1.NodeInclusionPolicy) bool {
	return ptr.Deref(policy, unless) == corev1.NodeInclusionPolicyHonor
}

// countingKey is equal when the same nodes count.
func countingKey(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) string {
	var of struct {
		Selector map[string]string
		Affinity *corev1.NodeSelector
		Taints   bool
		Tolerate []corev1.Toleration
	}
	if honors(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) {
		of.Selector = pod.Spec.NodeSelector
		if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			of.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
	}
	if of.Taints = honors(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore); of.Taints {
		of.Tolerate = pod.Spec.Tolerations
	}
	data, err := json.Marshal(of)
	if err != nil {
		return string(pod.UID)
	}
	return string(data)
}

// counting is the nodes that count for a constraint.
type counting struct {
	nodes []bool // by index
	zones map[string]int
}

// counting returns which nodes count for a constraint of a pod.
func (w *World) counting(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) *counting {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	cordon := &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	throughCordon := tolerated(cordon, pod.Spec.Tolerations)
	honorAffinity := honors(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor)
	honorTaints := honors(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore)
	out := &counting{nodes: make([]bool, len(w.Nodes)), zones: map[string]int{}}
	for i, n := range w.Nodes {
		if n.Lost || n.Zone == "" {
			continue
		}
		if honorAffinity {
			if match, err := affinity.Match(n.Object); err != nil || !match {
				continue
			}
		}
		if honorTaints && (n.Object.Spec.Unschedulable && !throughCordon || Untolerated(n.Object, pod.Spec.Tolerations) != nil) {
			continue
		}
		out.nodes[i] = true
		out.zones[n.Zone] = 0
	}
	return out
}

// spread counts for one constraint.
func (w *World) spread(pod *corev1.Pod, c *corev1.TopologySpreadConstraint, of *counting) Spread {
	s := Spread{Zones: maps.Clone(of.zones), MaxSkew: c.MaxSkew, Hard: c.WhenUnsatisfiable == corev1.DoNotSchedule}
	for _, p := range w.matching(pod.Namespace, selectorOf(c.LabelSelector, pod, c.MatchLabelKeys, nil)) {
		if p.Node != nil && of.nodes[p.Node.index] {
			s.Zones[p.Node.Zone]++
			s.Pods++
		}
	}
	fewest := math.MaxInt32
	for _, n := range s.Zones {
		fewest = min(fewest, n)
		s.Most = max(s.Most, n)
	}
	s.Skew = s.Most - min(s.Most, counts.GlobalMinimum(fewest, len(s.Zones), int(ptr.Deref(c.MinDomains, 1))))
	return s
}
