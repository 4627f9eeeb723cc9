package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"
)

// class is a set of members that have equal needs. It is built once for a plan and does not change.
type class struct {
	pods     []*v1.Pod // in the order of creation
	request  []int64   // by planner.names
	size     float64   // the largest share of all that is free in the cluster
	static   []verdict // of each node
	spread   []int     // its constraints, by planner.spread
	terms    []int     // its affinity to pods, by planner.terms
	matches  []bool    // whether its pods match a selector, by planner.selectors
	ports    []v1.ContainerPort
	excluded *Exclusions
	hasRules bool
	// blockers are the candidates of a node without whom it is open to the class, see planner.open.
	blockers map[int][]int32
}

// classify sorts the members into classes.
func (p *planner) classify(members []Member) {
	type group struct {
		pods     []*v1.Pod
		excluded *Exclusions
		rules    string
	}
	// Pods with the same signature, and the same values of the labels that their selectors are made with,
	// have the same selectors. Whose selectors their labels match is known only when all have been seen.
	type outline struct {
		signature string
		group
	}
	outlines := map[string]*outline{}
	var order []*outline
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return byAge(a.Pod, b.Pod) })
	for _, m := range members {
		rules := ""
		if p.RulesKey != nil {
			rules = p.RulesKey(m.Pod)
		}
		signature := m.Signature
		if signature == "" {
			signature = Signature(m.Pod)
		}
		signature += ownLabels(m.Pod)
		key := fmt.Sprintf("%s\x00%s\x00%p", signature, rules, m.Excluded)
		o := outlines[key]
		if o == nil {
			o = &outline{signature: signature, group: group{excluded: m.Excluded, rules: rules}}
			outlines[key] = o
			order = append(order, o)
		}
		o.pods = append(o.pods, m.Pod)
	}
	for _, o := range order {
		p.collectSelectors(o.pods[0])
	}
	classes := map[string]*class{}
	for i, o := range order {
		for _, pod := range o.pods {
			bits := make([]byte, len(p.selectors))
			for s := range p.selectors {
				bits[s] = '0'
				if p.selectors[s].matches(pod) {
					bits[s] = '1'
				}
			}
			key := fmt.Sprintf("%d %s", i, bits)
			c := classes[key]
			if c == nil {
				c = &class{excluded: o.excluded, ports: HostPorts(pod), hasRules: o.rules != "", matches: make([]bool, len(bits))}
				for s := range bits {
					c.matches[s] = bits[s] == '1'
				}
				classes[key] = c
				p.classes = append(p.classes, c)
			}
			c.pods = append(c.pods, pod)
		}
	}
}

// ownLabels renders the labels of a pod that its own selectors take values from.
func ownLabels(pod *v1.Pod) string {
	var b strings.Builder
	write := func(keys []string) {
		for _, key := range keys {
			fmt.Fprintf(&b, "%q=%q ", key, pod.Labels[key])
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		write(pod.Spec.TopologySpreadConstraints[i].MatchLabelKeys)
	}
	forEachTerm(pod, func(t *v1.PodAffinityTerm, _ bool) {
		write(t.MatchLabelKeys)
		write(t.MismatchLabelKeys)
	})
	return b.String()
}

// Signature tells pods apart by what they ask of a single node. Pods with the same signature in one namespace
// are refused by the same nodes, except for reasons that lie in labels, other pods or volumes.
func Signature(pod *v1.Pod) string {
	var b strings.Builder
	needs := struct {
		Requests []amount
		Selector map[string]string
		Affinity *v1.Affinity
		Spread   []v1.TopologySpreadConstraint
		Tolerate []v1.Toleration
		Ports    []v1.ContainerPort
		Claims   []v1.PodResourceClaim
		Profile  string
	}{
		requestsOf(pod), pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints,
		pod.Spec.Tolerations, HostPorts(pod), pod.Spec.ResourceClaims, pod.Spec.SchedulerName,
	}
	if err := json.NewEncoder(&b).Encode(needs); err != nil {
		return string(pod.UID) // nothing of the above fails to encode; alone it is in no wrong company
	}
	return b.String()
}

// amount is how much of a resource a pod asks for.
type amount struct {
	Name  v1.ResourceName
	Value int64
}

// requestsOf returns what a pod takes from its node, by name, the pod itself included.
func requestsOf(pod *v1.Pod) []amount {
	list := resource.PodRequests(pod, resource.PodResourcesOptions{})
	amounts := make([]amount, 0, len(list)+1)
	for name, quantity := range list {
		value := quantity.Value()
		if name == v1.ResourceCPU {
			value = quantity.MilliValue()
		}
		if value > 0 && accounted(name) {
			amounts = append(amounts, amount{name, value})
		}
	}
	amounts = append(amounts, amount{v1.ResourcePods, 1})
	slices.SortFunc(amounts, func(a, b amount) int { return cmp.Compare(a.Name, b.Name) })
	return amounts
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

// byAge orders pods by their creation, then by name.
func byAge(a, b *v1.Pod) int {
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(string(a.UID), string(b.UID))
}

// Subtract takes what a pod asks for off what is free of the named resources.
func Subtract(pod *v1.Pod, names []v1.ResourceName, free []int64) {
	for _, a := range requestsOf(pod) {
		if j := slices.Index(names, a.Name); j >= 0 {
			free[j] -= a.Value
		}
	}
}
