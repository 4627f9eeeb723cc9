package world

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/plan"
	"zonewise.dev/plugins/zonespread/policy"
)

// gangView is the nodes that are not lost, less what reservations of the gang's priority or a higher one hold: those that
// the members own too, since a gang holds room of its own.
type gangView struct {
	nodes    []*Node
	priority int32 // the lowest of the members'
	members  map[types.UID]*Pod
}

var _ plan.Cluster = &gangView{}

// member returns a pod of the plan, nil for nil.
func (v *gangView) member(pod *corev1.Pod) *Pod {
	if pod == nil {
		return nil
	}
	return v.members[pod.UID]
}

// Len implements plan.Cluster.
func (v *gangView) Len() int { return len(v.nodes) }

// Node implements plan.Cluster.
func (v *gangView) Node(i int) *corev1.Node { return v.nodes[i].Object }

// Free implements plan.Cluster.
func (v *gangView) Free(i int, names []corev1.ResourceName, into []int64) {
	n := v.nodes[i]
	for j, name := range names {
		into[j] = n.Allocatable.Amount(name) - n.Requested.Amount(name)
	}
	for _, s := range n.holds {
		if s.hold.claim.Priority < v.priority {
			continue
		}
		for j, name := range names {
			into[j] -= int64(s.count) * s.hold.claim.Slot.Amount(name)
		}
	}
}

// Pods implements plan.Cluster.
func (v *gangView) Pods(i int) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, p := range v.nodes[i].pods {
			if !yield(p.Object) {
				return
			}
		}
	}
}

// PortTaken implements plan.Cluster.
func (v *gangView) PortTaken(i int, wanted *corev1.ContainerPort) bool {
	ours := port{wanted.HostIP, wanted.Protocol, wanted.HostPort}
	for _, p := range v.nodes[i].pods {
		if slices.ContainsFunc(portsOf(p.Object), ours.conflicts) {
			return true
		}
	}
	return false
}

func priorityOf(pod *corev1.Pod) int32 { return ptr.Deref(pod.Spec.Priority, 0) }

// rulesKey is equal for pods of a namespace that the same hard policies judge by the same counts, empty for one that none
// is about.
func (w *World) rulesKey(pod *corev1.Pod) string {
	var b strings.Builder
	for _, p := range w.PoliciesOf(pod) {
		if p.Compiled.Hard() {
			fmt.Fprintf(&b, "%p %s;", p, p.Compiled.SelectorFor(pod.Labels))
		}
	}
	return b.String()
}

// rulesOf returns what makes the rules of a pod for one plan after the other. The world must not change meanwhile.
func (w *World) rulesOf() func(pod *corev1.Pod) plan.Rules {
	known := map[*corev1.Pod]*gangRules{}
	return func(pod *corev1.Pod) plan.Rules {
		judged := known[pod]
		if judged == nil {
			c := &Class{pod: pod}
			w.judgeNodes(c)
			judged = &gangRules{world: w, class: c}
			for _, p := range w.PoliciesOf(pod) {
				if p.Compiled.Hard() {
					judged.rows = append(judged.rows, rulesRow{w.judge(p, c).Table, p.Compiled.SelectorFor(pod.Labels)})
				}
			}
			known[pod] = judged
		}
		return judged.clone()
	}
}

// gangRules are the verdicts of a pod's policies on zones, as a plan fills them. It implements plan.Rules.
type gangRules struct {
	world *World
	class *Class
	rows  []rulesRow
}

type rulesRow struct {
	*policy.Table
	selector labels.Selector
}

func (r *gangRules) clone() *gangRules {
	out := &gangRules{r.world, r.class, make([]rulesRow, len(r.rows))}
	for i, row := range r.rows {
		out.rows[i] = rulesRow{row.Clone(), row.selector}
	}
	return out
}

// Domain implements plan.Rules.
func (r *gangRules) Domain(node *corev1.Node) string {
	var b strings.Builder
	for _, row := range r.rows {
		zone, ok := node.Labels[row.Policy().TopologyKey()]
		fmt.Fprintf(&b, "%t %q;", ok, zone)
	}
	return b.String()
}

// Check implements plan.Rules.
func (r *gangRules) Check(node *corev1.Node) string {
	for _, row := range r.rows {
		if !row.Check(node.Labels).OK() {
			return "kept: " + row.MessageFor(node.Labels)
		}
	}
	return ""
}

// Add implements plan.Rules.
func (r *gangRules) Add(pod *corev1.Pod, node *corev1.Node) { r.add(pod, node, 1) }

// Remove implements plan.Rules.
func (r *gangRules) Remove(pod *corev1.Pod, node *corev1.Node) { r.add(pod, node, -1) }

func (r *gangRules) add(pod *corev1.Pod, node *corev1.Node, delta int64) {
	n := r.world.byName[node.Name]
	for _, row := range r.rows {
		zone, ok := domain(n, row.Policy().TopologyKey())
		if ok && pod.Namespace == r.class.pod.Namespace && row.selector.Matches(labels.Set(pod.Labels)) {
			row.Table.Add(zone, changeOf(int(delta), r.class.eligible(row.Policy(), n.index)))
		}
	}
}
