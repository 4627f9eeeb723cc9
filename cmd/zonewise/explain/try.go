package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/amount"
	"zonewise.dev/sim"
)

// change is a change that might let the pod go, and can be tried.
type change struct {
	text string
	// edit changes the pod, without another part of the cluster is.
	edit    func(pod *corev1.Pod)
	without client.Object
	// short is the resource of which the pod would ask for less, instead of words.
	short corev1.ResourceName
	// index tells changes with the same words apart.
	index int
}

func (c *change) sameAs(other change) bool {
	return c.text == other.text && c.short == other.short && c.index == other.index
}

// mostChanges is the largest number of changes that are tried together.
const mostChanges = 12

// tryChanges finds for each zone a change after which a node takes the pod, or several changes if no single one helps.
func (e *examination) tryChanges(ctx context.Context) ([]string, error) {
	var steps []string
	changes := e.candidateChanges(e.answer)
	for _, c := range changes {
		answer, err := e.evaluateWith(ctx, c)
		if err != nil {
			return nil, err
		}
		steps = append(steps, e.helpfulChanges(answer, c)...)
	}
	if len(steps) == 0 {
		var err error
		steps, err = e.together(ctx, changes)
		if err != nil {
			return nil, err
		}
	}
	nodes, err := e.anotherNode(ctx)
	steps = append(steps, nodes...)
	slices.SortStableFunc(steps, func(a, b string) int { return strings.Compare(head(a), head(b)) })
	if len(steps) == 0 && err == nil {
		steps = append(steps, "none of the changes that were tried: see above what is in the way")
	}
	return steps, err
}

// head is the zone, by which steps are sorted.
func head(step string) string {
	zone, _, _ := strings.Cut(step, ":")
	return zone
}

// helpfulChanges says for each zone with a node that takes the pod after the changes what they are.
func (e *examination) helpfulChanges(answer *sim.Evaluation, changes ...change) []string {
	fit := map[string][]*corev1.Node{}
	for _, n := range answer.FittingNodes() {
		zone := n.Labels[corev1.LabelTopologyZone]
		fit[zone] = append(fit[zone], n)
	}
	var steps []string
	for _, zone := range slices.Sorted(maps.Keys(fit)) {
		var parts []string
		for _, c := range changes {
			parts = append(parts, e.describeChange(c, fit[zone]))
		}
		steps = append(steps, fmt.Sprintf("in zone %s: %s", status.ZoneText(zone), strings.Join(parts, ", and ")))
	}
	return steps
}

// together looks for changes that help only in combination. It begins with all changes, adds those that newly refusing
// plugins suggest, and then drops those that are not needed.
func (e *examination) together(ctx context.Context, changes []change) ([]string, error) {
	answer, err := e.evaluateWith(ctx, changes...)
	for err == nil && len(answer.FittingNodes()) == 0 && len(changes) < mostChanges {
		known := len(changes)
		for _, c := range e.candidateChanges(answer) {
			if !slices.ContainsFunc(changes, c.sameAs) {
				changes = append(changes, c)
			}
		}
		if len(changes) == known {
			return nil, nil
		}
		answer, err = e.evaluateWith(ctx, changes...)
	}
	if err != nil || len(answer.FittingNodes()) == 0 {
		return nil, err
	}
	for i := range slices.Backward(changes) {
		fewer := slices.Delete(slices.Clone(changes), i, i+1)
		less, err := e.evaluateWith(ctx, fewer...)
		if err != nil {
			return nil, err
		}
		if len(less.FittingNodes()) > 0 {
			changes, answer = fewer, less
		}
	}
	return e.helpfulChanges(answer, changes...), nil
}

// evaluateWith asks the plugins while changes are applied, and then undoes the changes.
func (e *examination) evaluateWith(ctx context.Context, changes ...change) (*sim.Evaluation, error) {
	pod := withoutGang(e.pod)
	for _, c := range changes {
		if c.edit != nil {
			c.edit(pod)
		}
		if c.without != nil {
			e.sim.Remove(c.without)
		}
	}
	answer, err := e.sim.Evaluate(ctx, pod)
	for _, c := range changes {
		if c.without != nil && err == nil {
			err = e.sim.Put(c.without)
		}
	}
	return answer, err
}

// describeChange describes a change, and the nodes that would then take the pod.
func (e *examination) describeChange(c change, nodes []*corev1.Node) string {
	taken := " (" + show.Plural(len(nodes), "node") + " would take it)"
	if c.short == "" {
		return c.text + taken
	}
	wanted := amount.Of(c.short, census.Requests(e.pod)[c.short])
	name, free := "", int64(-1)
	for _, node := range nodes {
		if n := e.census.FindNode(node.Name); n != nil && n.Allocatable[c.short]-n.Requested[c.short] > free {
			name, free = node.Name, n.Allocatable[c.short]-n.Requested[c.short]
		}
	}
	if free < 0 || free >= wanted { // the free room is held or nominated
		return fmt.Sprintf("less %s asked for, or more free%s", c.short, taken)
	}
	return fmt.Sprintf("%s more %s (%s free, %s asked for) on node %s", amount.Quantity(c.short, wanted-free), c.short, amount.Quantity(c.short, free), amount.Quantity(c.short, wanted), name)
}

// candidateChanges returns the changes that concern the plugins that refuse the pod.
func (e *examination) candidateChanges(answer *sim.Evaluation) []change {
	var out []change
	for i := range answer.Nodes {
		n := &answer.Nodes[i]
		if n.Refusal == nil {
			continue
		}
		for plugin := range strings.SplitSeq(n.Refusal.Plugin, ", ") {
			for _, c := range e.changesFor(plugin, n) {
				if len(out) < mostChanges && !slices.ContainsFunc(out, c.sameAs) {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

func (e *examination) changesFor(plugin string, n *sim.NodeEvaluation) []change {
	var out []change
	// offer adds an edit of the pod, if there is something to edit.
	offer := func(applies bool, text string, edit func(p *corev1.Pod)) {
		if applies {
			out = append(out, change{text: text, edit: edit})
		}
	}
	spec, affinity := &e.pod.Spec, ptr.Deref(e.pod.Spec.Affinity, corev1.Affinity{})
	switch plugin {
	case "NodeResourcesFit":
		return e.lowerRequests(n)
	case "ReserveCache":
		return append(e.lowerRequests(n), e.withoutHolds(n)...)
	case "ZoneSpread", "PodTopologySpread":
		return e.withoutSpread()
	case "TaintToleration":
		for _, taint := range n.Node.Spec.Taints {
			offer(taint.Effect != corev1.TaintEffectPreferNoSchedule, "a toleration of the taint "+taint.ToString(), func(p *corev1.Pod) {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect})
			})
		}
	case "NodeUnschedulable":
		offer(true, "the node uncordoned", func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
		})
	case "NodeAffinity":
		offer(len(spec.NodeSelector) > 0, "without its nodeSelector", func(p *corev1.Pod) { p.Spec.NodeSelector = nil })
		offer(affinity.NodeAffinity != nil, "without its node affinity", func(p *corev1.Pod) { p.Spec.Affinity.NodeAffinity = nil })
	case "InterPodAffinity":
		offer(affinity.PodAffinity != nil, "without its affinity to other pods", func(p *corev1.Pod) { p.Spec.Affinity.PodAffinity = nil })
		offer(affinity.PodAntiAffinity != nil, "without its anti-affinity to other pods", func(p *corev1.Pod) { p.Spec.Affinity.PodAntiAffinity = nil })
		offer(len(e.pod.Labels) > 0, "without the pods whose anti-affinity keeps it off", func(p *corev1.Pod) { p.Labels = nil })
	case "NodePorts":
		offer(true, "without its host ports", func(p *corev1.Pod) {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Ports = nil
			}
		})
	case "VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits":
		for _, v := range spec.Volumes {
			offer(v.PersistentVolumeClaim != nil || v.Ephemeral != nil, "without its volume "+v.Name, func(p *corev1.Pod) {
				p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(other corev1.Volume) bool { return other.Name == v.Name })
			})
		}
	case "DynamicResources":
		for _, c := range spec.ResourceClaims {
			offer(true, "without its resource claim "+c.Name, func(p *corev1.Pod) {
				p.Spec.ResourceClaims = slices.DeleteFunc(p.Spec.ResourceClaims, func(other corev1.PodResourceClaim) bool { return other.Name == c.Name })
			})
		}
	}
	return out
}

// lowerRequests removes the requests for resources that a node lacks.
func (e *examination) lowerRequests(n *sim.NodeEvaluation) []change {
	var out []change
	for _, name := range slices.Sorted(maps.Keys(census.Requests(e.pod))) {
		if !slices.Contains(n.Refusal.Reasons, "Insufficient "+string(name)) {
			continue
		}
		out = append(out, change{short: name, edit: func(p *corev1.Pod) {
			for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for i := range list {
					delete(list[i].Resources.Requests, name)
					delete(list[i].Resources.Limits, name)
				}
			}
			delete(p.Spec.Overhead, name)
			if r := p.Spec.Resources; r != nil {
				delete(r.Requests, name)
				delete(r.Limits, name)
			}
		}})
	}
	return out
}

// withoutHolds removes the reservations of others that hold something on a node.
func (e *examination) withoutHolds(n *sim.NodeEvaluation) []change {
	var out []change
	for _, r := range reservations(e.sim) {
		if hasSlotsOn(r, n.Node.Name) && !census.OwnedBy(r, e.pod) {
			out = append(out, change{text: "without the slots that ZoneReservation " + r.Name + " holds", without: r})
		}
	}
	return out
}

// hasSlotsOn reports whether a reservation has slots on a node.
func hasSlotsOn(r *v1alpha1.ZoneReservation, node string) bool {
	return slices.ContainsFunc(r.Status.Zones, func(z v1alpha1.ReservationZoneStatus) bool {
		return slices.ContainsFunc(z.Nodes, func(n v1alpha1.ReservationNodeStatus) bool { return n.Name == node })
	})
}

func (e *examination) withoutSpread() []change {
	var out []change
	for i, c := range e.pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			text := fmt.Sprintf("without its topologySpreadConstraint over %s (maxSkew %d), or with pods that even it out", c.TopologyKey, c.MaxSkew)
			out = append(out, change{text: text, index: i, edit: func(p *corev1.Pod) {
				p.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = corev1.ScheduleAnyway
			}})
		}
	}
	for _, policy := range policiesOf(e.sim, e.pod) {
		text := fmt.Sprintf("without ZoneSpreadPolicy %s/%s, or with fewer of its pods in the zone", policy.Namespace, policy.Name)
		out = append(out, change{text: text, without: policy})
	}
	return out
}

// anotherNode tries one more node in each zone, a copy of the first one there that accepts pods.
func (e *examination) anotherNode(ctx context.Context) ([]string, error) {
	var steps []string
	for _, n := range e.census.NodePerZone() {
		added, err := e.sim.AddNodes(1, n.Name)
		if err != nil {
			return nil, err
		}
		answer, err := e.sim.Evaluate(ctx, withoutGang(e.pod))
		for _, name := range added {
			e.sim.RemoveNode(name)
		}
		if err != nil {
			return nil, err
		}
		if len(answer.FittingNodes()) > 0 {
			steps = append(steps, fmt.Sprintf("in zone %s: another node like %s", status.ZoneText(n.Zone), n.Name))
		}
	}
	return steps, nil
}
