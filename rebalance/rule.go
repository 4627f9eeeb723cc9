package rebalance

import (
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/cluster/census"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/plugins/zonespread/counts"
)

// rule is a policy or a constraint over zones, as it holds for the pods that carry it alike.
type rule struct {
	// key is the same in all copies of a cluster; name is for people.
	key, name string
	// set is the smallest key of the rules that count pods in common, directly or through others: a move may change
	// all of them.
	set       string
	workloads map[string]bool
	// selected: a pod that is selected carries the rule.
	selected  bool
	namespace string
	counted   labels.Selector
	table     table
	// zones has the pods that carry the rule and that it counts.
	zones map[string]*zonePods
	// open are the zones with a node that is ready, not cordoned and admits some of these pods.
	open map[string]bool
	// queries are what has to be counted for the table, and build makes it of the answers.
	queries []counts.Query
	build   func(tables []*counts.Table) table
}

// zonePods are the pods of a rule in one zone.
type zonePods struct {
	movable []*census.Pod
	stay    map[string]int // by why they may not be moved
}

func (z *zonePods) count() int {
	n := len(z.movable)
	for _, pods := range z.stay {
		n += pods
	}
	return n
}

// takes reports whether a zone takes pods of the rule.
func (r *rule) takes(zone string) bool { return r.open[zone] }

// excess is how many pods are more than the rule allows.
func (r *rule) excess() (pods int64) {
	for zone := range r.zones {
		pods += r.table.Above(zone)
	}
	return pods
}

// add enters a pod that carries the rule.
func (r *rule) add(pod *census.Pod, stays string) {
	z := r.zones[pod.On.Zone]
	if z == nil {
		z = &zonePods{stay: map[string]int{}}
		r.zones[pod.On.Zone] = z
	}
	if stays != "" {
		z.stay[stays]++
		return
	}
	z.movable = append(z.movable, pod)
}

// joinSets finds the rules that count pods in common.
func joinSets(rules []*rule, c *census.Census) {
	parent := map[*rule]*rule{}
	var root func(r *rule) *rule
	root = func(r *rule) *rule {
		if parent[r] == nil {
			return r
		}
		parent[r] = root(parent[r])
		return parent[r]
	}
	byNamespace := map[string][]*rule{}
	for _, r := range rules {
		byNamespace[r.namespace] = append(byNamespace[r.namespace], r)
	}
	seen := map[string]bool{} // pods with equal labels are counted by the same rules
	for _, pod := range c.Pods {
		like := pod.Namespace + "/" + labels.Set(pod.Labels).String()
		if seen[like] || len(byNamespace[pod.Namespace]) < 2 {
			continue
		}
		seen[like] = true
		var first *rule
		for _, r := range byNamespace[pod.Namespace] {
			if !r.counted.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if first == nil {
				first = root(r)
			} else if other := root(r); other != first {
				parent[other] = first
			}
		}
	}
	smallest := map[*rule]string{}
	for _, r := range rules {
		if key := smallest[root(r)]; key == "" || r.key < key {
			smallest[root(r)] = r.key
		}
	}
	for _, r := range rules {
		r.set = smallest[root(r)]
	}
}

// openZones returns the zones with a node that a pod may be given, as far as readiness, cordons, its affinity and
// taints go.
func openZones(c *census.Census, eligible counts.Eligibility) map[string]bool {
	open := map[string]bool{}
	for _, node := range c.Nodes {
		if node.Zone != "" && !open[node.Zone] && nodes.Usable(node.Node) && counts.Admits(eligible, node.Node) {
			open[node.Zone] = true
		}
	}
	return open
}
