package parity

import (
	"math"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Recount judges a pod's own constraints (defaults are not looked at) from nothing but lists of nodes
// and pods: the pods that run, each with its spec.nodeName.
type Recount struct {
	Nodes []*v1.Node
	Pods  []*v1.Pod
}

// Verdict is what hard constraints say of a node.
type Verdict string

// The verdicts, by the status code that a plugin has to return for them.
const (
	Fits        Verdict = "Success"
	TooSkewed   Verdict = "Unschedulable"
	HasNoDomain Verdict = "UnschedulableAndUnresolvable"
)

// matches tells whether other counts for a constraint of pod.
func matches(pod, other *v1.Pod, c *v1.TopologySpreadConstraint) bool {
	if c.LabelSelector == nil || other.Namespace != pod.Namespace || other.DeletionTimestamp != nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		panic(err)
	}
	for _, key := range c.MatchLabelKeys {
		want, ok := pod.Labels[key]
		if got, has := other.Labels[key]; ok && (!has || got != want) {
			return false
		}
	}
	return selector.Matches(labels.Set(other.Labels))
}

// countable tells whether a node takes part in a constraint of pod.
func countable(pod *v1.Pod, node *v1.Node, c *v1.TopologySpreadConstraint, allOf []*v1.TopologySpreadConstraint) bool {
	for _, other := range allOf {
		if _, ok := node.Labels[other.TopologyKey]; !ok {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor {
		for i := range node.Spec.Taints {
			taint := &node.Spec.Taints[i]
			if taint.Effect != v1.TaintEffectPreferNoSchedule &&
				!corev1helpers.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, taint, false) {
				return false
			}
		}
	}
	return true
}

func constraintsWith(pod *v1.Pod, action v1.UnsatisfiableConstraintAction) []*v1.TopologySpreadConstraint {
	var out []*v1.TopologySpreadConstraint
	for i := range pod.Spec.TopologySpreadConstraints {
		if c := &pod.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == action {
			out = append(out, c)
		}
	}
	return out
}

// Domains returns the matching pods in each domain of a constraint of pod.
func (r Recount) Domains(pod *v1.Pod, c *v1.TopologySpreadConstraint, allOf []*v1.TopologySpreadConstraint) map[string]int {
	domains := map[string]int{}
	home := map[string]string{}
	for _, node := range r.Nodes {
		if countable(pod, node, c, allOf) {
			domains[node.Labels[c.TopologyKey]] += 0
			home[node.Name] = node.Labels[c.TopologyKey]
		}
	}
	for _, other := range r.Pods {
		if domain, ok := home[other.Spec.NodeName]; ok && matches(pod, other, c) {
			domains[domain]++
		}
	}
	return domains
}

// Hard returns the verdict of each node.
func (r Recount) Hard(pod *v1.Pod) map[string]Verdict {
	verdicts := map[string]Verdict{}
	for _, node := range r.Nodes {
		verdicts[node.Name] = Fits
	}
	hard := constraintsWith(pod, v1.DoNotSchedule)
	// The verdict of a node is that of the first constraint which refuses it.
	for _, c := range hard {
		domains := r.Domains(pod, c, hard)
		least := math.MaxInt32
		for _, n := range domains {
			least = min(least, n)
		}
		if c.MinDomains != nil && len(domains) < int(*c.MinDomains) || len(domains) < 1 {
			least = 0
		}
		for _, node := range r.Nodes {
			if verdicts[node.Name] != Fits {
				continue
			}
			domain, ok := node.Labels[c.TopologyKey]
			n := domains[domain]
			if matches(pod, pod, c) {
				n++
			}
			switch {
			case !ok:
				verdicts[node.Name] = HasNoDomain
			case n-least > int(c.MaxSkew):
				verdicts[node.Name] = TooSkewed
			}
		}
	}
	return verdicts
}

// Soft returns the normalized scores of the candidates, or nil when the pod has no soft constraint.
func (r Recount) Soft(pod *v1.Pod, candidates []*v1.Node) map[string]int64 {
	soft := constraintsWith(pod, v1.ScheduleAnyway)
	if len(soft) == 0 {
		return nil
	}
	var scored []*v1.Node
	scores := map[string]int64{}
	for _, node := range candidates {
		scores[node.Name] = 0
		complete := true
		for _, c := range soft {
			_, ok := node.Labels[c.TopologyKey]
			complete = complete && ok
		}
		if complete {
			scored = append(scored, node)
		}
	}
	sums := make([]float64, len(scored))
	for _, c := range soft {
		domains := r.Domains(pod, c, soft)
		offered := map[string]bool{}
		for _, node := range scored {
			offered[node.Labels[c.TopologyKey]] = true
		}
		size := len(offered)
		if c.TopologyKey == v1.LabelHostname {
			size = len(scored)
		}
		weight := math.Log(float64(size + 2))
		for i, node := range scored {
			n := domains[node.Labels[c.TopologyKey]]
			if c.TopologyKey == v1.LabelHostname {
				n = 0
				for _, other := range r.Pods {
					if other.Spec.NodeName == node.Name && matches(pod, other, c) {
						n++
					}
				}
			}
			sums[i] += float64(n)*weight + float64(c.MaxSkew-1)
		}
	}
	low, high := int64(math.MaxInt64), int64(0)
	for i := range sums {
		low, high = min(low, int64(math.Round(sums[i]))), max(high, int64(math.Round(sums[i])))
	}
	for i, node := range scored {
		if high == 0 {
			scores[node.Name] = 100
			continue
		}
		scores[node.Name] = 100 * (high + low - int64(math.Round(sums[i]))) / high
	}
	return scores
}
