package census

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/feature"
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
// name. The newest pod of a workload stands for all. It looks at a limited number of nodes and pods, and returns how many
// workloads it left out for that reason.
func (c *Census) Spreads(namespace string, work int) (out []Spread, left int) {
	newest := map[string]*Pod{}
	var names []string
	for _, p := range c.In(namespace) {
		if !slices.ContainsFunc(p.Spec.TopologySpreadConstraints, OverZones) {
			continue
		}
		name := c.Workload(p.Pod)
		old := newest[name]
		if old == nil {
			names = append(names, name)
		}
		if old == nil || old.CreationTimestamp.Time.Before(p.CreationTimestamp.Time) {
			newest[name] = p
		}
	}
	slices.Sort(names)
	index := c.indexFor(newest)
	anyNode := c.counting(&v1.Pod{}, &v1.TopologySpreadConstraint{})
	for _, name := range names {
		pod := newest[name].Pod
		for i := range pod.Spec.TopologySpreadConstraints {
			constraint := &pod.Spec.TopologySpreadConstraints[i]
			if !OverZones(*constraint) {
				continue
			}
			candidates := index.candidates(pod, constraint)
			nodes := anyNode
			if work -= len(candidates); !everyNode(pod, constraint) {
				if work -= len(c.Nodes); work >= 0 {
					nodes = c.counting(pod, constraint)
				}
			}
			if work < 0 {
				left++
				break
			}
			s := count(pod, constraint, nodes, candidates)
			s.Workload = name
			out = append(out, s)
		}
	}
	return out, left
}

// OverZones reports whether a constraint spreads over zones.
func OverZones(c v1.TopologySpreadConstraint) bool { return c.TopologyKey == v1.LabelTopologyZone }

// Spread counts for one constraint over zones of a pod.
func (c *Census) Spread(pod *v1.Pod, constraint *v1.TopologySpreadConstraint) Spread {
	return count(pod, constraint, c.counting(pod, constraint), c.byPlace[pod.Namespace])
}

// everyNode reports whether every node with a zone counts for a constraint.
func everyNode(pod *v1.Pod, constraint *v1.TopologySpreadConstraint) bool {
	return len(pod.Spec.NodeSelector) == 0 && pod.Spec.Affinity == nil && !honors(constraint.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore)
}

func honors(policy *v1.NodeInclusionPolicy, unless v1.NodeInclusionPolicy) bool {
	return ptr.Deref(policy, unless) == v1.NodeInclusionPolicyHonor
}

// counting returns the nodes that count for a constraint.
func (c *Census) counting(pod *v1.Pod, constraint *v1.TopologySpreadConstraint) map[*Node]bool {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	honorAffinity := honors(constraint.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor)
	honorTaints := honors(constraint.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore)
	operators := feature.TolerationOperators() // once: asking takes as long as many nodes
	out := map[*Node]bool{}
	for _, n := range c.Nodes {
		if n.Zone == "" {
			continue
		}
		if honorAffinity {
			if match, err := affinity.Match(n.Node); err != nil || !match {
				continue
			}
		}
		if honorTaints {
			if _, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, pod.Spec.Tolerations, keepsOff, operators); refused {
				continue
			}
		}
		out[n] = true
	}
	return out
}

func count(pod *v1.Pod, constraint *v1.TopologySpreadConstraint, nodes map[*Node]bool, candidates []*Pod) Spread {
	s := Spread{Zones: map[string]int{}, MaxSkew: constraint.MaxSkew, Hard: constraint.WhenUnsatisfiable == v1.DoNotSchedule}
	for n := range nodes {
		s.Zones[n.Zone] = 0
	}
	selector := selectorOf(pod, constraint)
	for _, p := range candidates {
		if p.On != nil && p.Namespace == pod.Namespace && nodes[p.On] && selector.Matches(labels.Set(p.Labels)) {
			s.Zones[p.On.Zone]++
			s.Pods++
		}
	}
	first := true
	for _, n := range s.Zones {
		s.Most = max(s.Most, n)
		if first || n < s.Fewest {
			s.Fewest, first = n, false
		}
	}
	if len(s.Zones) < int(ptr.Deref(constraint.MinDomains, 1)) {
		s.Fewest = 0 // as in KEP-3022
	}
	return s
}

func keepsOff(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

func selectorOf(pod *v1.Pod, c *v1.TopologySpreadConstraint) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return labels.Nothing()
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			same, err := labels.ValidatedSelectorFromSet(labels.Set{key: value})
			if err != nil {
				return labels.Nothing()
			}
			requirements, _ := same.Requirements()
			selector = selector.Add(requirements...)
		}
	}
	return selector
}

// index finds the pods that a selector can match, by one label that the selector requires.
type index map[[3]string][]*Pod // namespace, key, value

func indexKey(pod *v1.Pod, c *v1.TopologySpreadConstraint) (key [3]string, ok bool) {
	if c.LabelSelector != nil {
		for name, value := range c.LabelSelector.MatchLabels {
			if !ok || name < key[1] {
				key, ok = [3]string{pod.Namespace, name, value}, true
			}
		}
	}
	return key, ok
}

func (c *Census) indexFor(pods map[string]*Pod) index {
	out := index{}
	for _, p := range pods {
		for i := range p.Spec.TopologySpreadConstraints {
			if key, ok := indexKey(p.Pod, &p.Spec.TopologySpreadConstraints[i]); ok {
				out[key] = nil
			} else {
				out[[3]string{p.Namespace}] = c.byPlace[p.Namespace]
			}
		}
	}
	for _, p := range c.Pods {
		for name, value := range p.Labels {
			key := [3]string{p.Namespace, name, value}
			if list, wanted := out[key]; wanted {
				out[key] = append(list, p)
			}
		}
	}
	return out
}

func (x index) candidates(pod *v1.Pod, c *v1.TopologySpreadConstraint) []*Pod {
	if key, ok := indexKey(pod, c); ok {
		return x[key]
	}
	return x[[3]string{pod.Namespace}]
}
