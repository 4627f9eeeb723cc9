package proposal

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/internal/amount"
)

// Signature identifies what a pod of a namespace asks of a single node. Pods with the same signature are refused by the
// same nodes, except for reasons of other pods or volumes. It takes microseconds, so callers keep it.
func Signature(pod *v1.Pod) string {
	needs := struct {
		Requests []Amount
		Selector map[string]string
		Affinity *v1.Affinity
		Spread   []v1.TopologySpreadConstraint
		Tolerate []v1.Toleration
		Ports    []v1.ContainerPort
		Claims   int
		Profile  string
		Priority *int32
		Labels   map[string]string
	}{
		Requests(pod), pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints,
		pod.Spec.Tolerations, HostPorts(pod), len(pod.Spec.ResourceClaims), pod.Spec.SchedulerName, pod.Spec.Priority, selectedLabels(pod),
	}
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(needs); err != nil {
		return string(pod.UID) // nothing of the above fails to encode; a class of its own does no harm
	}
	return b.String()
}

// selectedLabels returns those of a pod's labels that its own affinity and spread constraints select by: pods that
// differ in them keep away from different pods. Other labels may differ from pod to pod.
func selectedLabels(pod *v1.Pod) map[string]string {
	selected := map[string]string{}
	take := func(key string) {
		if value, labelled := pod.Labels[key]; labelled {
			selected[key] = value
		}
	}
	takeAll := func(selector *metav1.LabelSelector, keys ...[]string) {
		if selector != nil {
			for key := range selector.MatchLabels {
				take(key)
			}
			for i := range selector.MatchExpressions {
				take(selector.MatchExpressions[i].Key)
			}
		}
		for _, key := range slices.Concat(keys...) {
			take(key)
		}
	}
	terms := func(terms []v1.PodAffinityTerm) {
		for i := range terms {
			takeAll(terms[i].LabelSelector, terms[i].MatchLabelKeys, terms[i].MismatchLabelKeys)
		}
	}
	if affinity := pod.Spec.Affinity; affinity != nil {
		if affinity.PodAffinity != nil {
			terms(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if affinity.PodAntiAffinity != nil {
			terms(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		takeAll(pod.Spec.TopologySpreadConstraints[i].LabelSelector, pod.Spec.TopologySpreadConstraints[i].MatchLabelKeys)
	}
	return selected
}

// Amount is how much of a resource a pod asks for.
type Amount struct {
	Name  v1.ResourceName
	Value int64
}

// Requests returns what a pod takes from its node, by name, the pod itself included, in the units of [Cluster].
func Requests(pod *v1.Pod) []Amount {
	list := resource.PodRequests(pod, resource.PodResourcesOptions{})
	amounts := make([]Amount, 0, len(list)+1)
	for name, quantity := range list {
		if value := amount.Of(name, quantity); value > 0 && accounted(name) {
			amounts = append(amounts, Amount{name, value})
		}
	}
	amounts = append(amounts, Amount{v1.ResourcePods, 1})
	slices.SortFunc(amounts, func(a, b Amount) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return amounts
}

// Add adds amounts to those of the named resources.
func Add(into []int64, names []v1.ResourceName, amounts []Amount) {
	for _, a := range amounts {
		if j := slices.Index(names, a.Name); j >= 0 {
			into[j] = min(into[j]+a.Value, Unlimited)
		}
	}
}

// Names lists the resources that the members of some classes ask for, sorted.
func Names(classes []Class) []v1.ResourceName {
	var names []v1.ResourceName
	for i := range classes {
		for _, a := range Requests(classes[i].Pod) {
			if at, known := slices.BinarySearch(names, a.Name); !known {
				names = slices.Insert(names, at, a.Name)
			}
		}
	}
	return names
}

// accounted reports whether kube-scheduler accounts for a resource.
func accounted(name v1.ResourceName) bool {
	s := string(name)
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage:
		return true
	case name == v1.ResourcePods:
		return false
	case strings.HasPrefix(s, v1.ResourceHugePagesPrefix), strings.HasPrefix(s, v1.ResourceAttachableVolumesPrefix),
		strings.Contains(s, v1.ResourceDefaultNamespacePrefix):
		return true
	case !strings.Contains(s, "/"), strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix):
		return false
	}
	return len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+s)) == 0
}

// HostPorts lists the ports of the node that a pod uses.
func HostPorts(pod *v1.Pod) []v1.ContainerPort {
	var ports []v1.ContainerPort
	visit := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, v1.ContainerPort{HostPort: p.HostPort, HostIP: p.HostIP, Protocol: p.Protocol})
			}
		}
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			visit(c)
		}
	}
	return ports
}

// SelfAffinity returns the topology key over which a pod must be near pods like itself, or empty. A gang of such pods
// is most likely to find its nodes within one domain.
func SelfAffinity(pod *v1.Pod) string {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAffinity != nil {
		for i := range affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if term := &affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]; matchesItself(pod, term) {
				return term.TopologyKey
			}
		}
	}
	return ""
}

// apartOverHosts reports whether a pod keeps pods like itself off its node.
func apartOverHosts(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return false
	}
	for i := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		term := &affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if term.TopologyKey == v1.LabelHostname && matchesItself(pod, term) {
			return true
		}
	}
	return false
}

// matchesItself reports whether a term of a pod certainly selects the pod itself.
func matchesItself(pod *v1.Pod, term *v1.PodAffinityTerm) bool {
	if len(term.MatchLabelKeys)+len(term.MismatchLabelKeys) > 0 || term.NamespaceSelector != nil ||
		len(term.Namespaces) > 0 && !slices.Contains(term.Namespaces, pod.Namespace) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}
