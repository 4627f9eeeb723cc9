package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// Placement is what becomes of the members of a gang that wait.
type Placement struct {
	// Placed are the members that have got a node: none unless the gang is whole with them.
	Placed []*Pod
	// Fit is how many members would find a node, all placed together; without a plan, how many at most.
	Fit int
	// Why says in the scheduler's words why the gang is not placed, empty when it is, and when it is the filters
	// that refuse its only missing member.
	Why string
	// Stuck is a member that found no node, nil when all did or the gang was not planned.
	Stuck *Pod

	partly []plan.Slot // of an attempt that did not place the quorum
}

// PlaceGang gives the waiting members of a gang nodes as PermitGate does: it plans for all of them at once, and gives none
// of them a node unless the gang is whole then. Who is only one member short, or none, has them placed one by one. [World.Undo]
// takes it back.
func (w *World) PlaceGang(g *Gang) *Placement {
	out := &Placement{}
	need, exist := g.Missing(), g.Bound+g.Done+len(g.Waiting)
	switch {
	case g.Group == nil && w.Snapshot.IsSet(podGroups):
		out.Why = "the PodGroup does not exist"
	case g.Group != nil && g.MinMember() < 1:
		out.Why = fmt.Sprintf("spec.minMember is %d, must be at least 1", g.MinMember())
	case exist < g.MinMember():
		out.Why = fmt.Sprintf("needs %d members, %d exist", g.MinMember(), exist)
		if n := len(g.Gated); n > 0 {
			out.Why += fmt.Sprintf(" and %d more have scheduling gates or another scheduler", n)
		}
	case need <= 1:
		w.placeSingly(g, out)
	default:
		w.placePlanned(g, out)
	}
	if len(out.Placed) > 0 {
		out.Fit = len(out.Placed)
	}
	return out
}

// placeSingly places members that depend on nobody.
func (w *World) placeSingly(g *Gang, out *Placement) {
	for _, p := range g.Waiting {
		switch {
		case p.Node != nil:
		case w.Place(p):
			out.Placed = append(out.Placed, p)
		case out.Stuck == nil:
			out.Stuck = p
		}
	}
}

// placePlanned places members where a plan for all of them has a node, as far as nothing refuses it that plans do not know.
func (w *World) placePlanned(g *Gang, out *Placement) {
	view := w.viewFor(g)
	if short := w.lacking(g, view); short != "" {
		out.Why = plan.ShortageWords(g.MinMember(), short)
		return
	}
	excluded := map[string]*plan.Exclusions{}
	for planned := 1; ; planned++ {
		result := plan.Make(w.request(g, view, excluded))
		if r := result.Refusal; r != nil {
			out.Why = r.Words(g.MinMember(), g.MinMember()-g.Missing())
			out.Fit, out.Stuck, out.partly = r.Found, view.member(r.Pod), result.Slots
			return
		}
		placed, refused := w.take(view, result.Slots)
		if refused == nil {
			out.Placed = placed
			w.placeSingly(g, out) // the others, now that the gang is whole
			return
		}
		// While the others are where they were planned: that is when the scheduler asks.
		nodes := w.refusing(refused)
		w.Undo(placed)
		if planned > gang.MaxReplans {
			out.Why = gang.PlannedInVain(planned, "node "+refused.node.Object.Name+": "+refused.words())
			out.Fit, out.Stuck = len(placed), refused.pod
			return
		}
		needs := needsOf(refused.pod.Object)
		if old := excluded[needs]; old != nil {
			maps.Copy(nodes, old.Nodes)
		}
		excluded[needs] = &plan.Exclusions{Nodes: nodes}
	}
}

// PlacePartly places the members that the attempt behind a refusal had placed, and returns them.
func (w *World) PlacePartly(g *Gang, p *Placement) []*Pod {
	placed, _ := w.take(w.viewFor(g), p.partly)
	return placed
}

func (w *World) request(g *Gang, view *gangView, excluded map[string]*plan.Exclusions) plan.Request {
	r := plan.Request{Need: g.Missing(), Cluster: view, ComparisonOperators: true}
	for _, p := range g.Waiting {
		m := plan.Member{Pod: p.Object}
		if len(excluded) > 0 {
			m.Excluded = excluded[needsOf(p.Object)]
		}
		r.Members = append(r.Members, m)
	}
	if len(w.policies) > 0 {
		r.RulesKey = w.rulesKey
		r.Rules = w.rulesOf()
	}
	return r
}

// needsOf is equal for members that are refused by the same nodes.
func needsOf(pod *corev1.Pod) string {
	needs := plan.Signature(pod)
	for i := range pod.Spec.Volumes {
		if claimOf(pod, &pod.Spec.Volumes[i]) != "" {
			return needs + string(pod.UID)
		}
	}
	return needs
}

// refused is a member whose planned node a filter refuses.
type refused struct {
	pod     *Pod
	node    *Node
	plugin  string
	message string
}

func (r *refused) words() string { return "refused by " + r.plugin + " (" + r.message + ")" }

// take binds members to their planned nodes, in the order of the plan, until one is refused its node.
func (w *World) take(view *gangView, slots []plan.Slot) (placed []*Pod, no *refused) {
	slots = slices.Clone(slots)
	slices.SortFunc(slots, func(a, b plan.Slot) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, slot := range slots {
		p, n := view.member(slot.Pod), w.byName[slot.Node]
		c := w.classOf(p)
		if plugin, message := w.filter(c, n.index); plugin != "" {
			return placed, &refused{p, n, plugin, message}
		}
		w.Bind(p, n)
		w.count(c, n, 1)
		placed = append(placed, p)
	}
	return placed, nil
}

// refusing lists, with the reasons, the nodes that are refused to a member by what plans do not know, and the one that
// it was refused.
func (w *World) refusing(r *refused) map[string]string {
	nodes := map[string]string{r.node.Object.Name: r.words()}
	c := w.classOf(r.pod)
	for i, n := range w.Nodes {
		if plugin, message := w.unplanned(c, i); plugin != "" && !n.Lost {
			nodes[n.Object.Name] = (&refused{plugin: plugin, message: message}).words()
		}
	}
	return nodes
}

// filter names the plugin that refuses a node to one more pod of a class, with its message; both are empty when none does. The
// plan has left room for what is held.
func (w *World) filter(c *Class, i int) (plugin, message string) {
	n := w.Nodes[i]
	switch c.static[i] {
	case unschedulable:
		return "NodeUnschedulable", "node(s) were unschedulable"
	case tainted:
		return "TaintToleration", "node(s) had untolerated taint(s)"
	case mismatched, lost:
		return "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
	case noKey:
		return "ZoneSpread", "node(s) didn't have the topology key of a constraint"
	case fits, elsewhere:
	}
	if c.taken != nil && c.taken[i] {
		return "NodePorts", "node(s) didn't have free ports for the requested pod ports"
	}
	if lacks := n.lacks(c); lacks != "" {
		return "NodeResourcesFit", "Insufficient " + lacks
	}
	for _, s := range c.zones {
		if s.hard && !s.fits(i) {
			return "ZoneSpread", "node(s) didn't match pod topology spread constraints"
		}
	}
	for _, table := range c.tables {
		if !table.rule(i).OK() {
			return "ZoneSpread", table.MessageFor(n.Object.Labels)
		}
	}
	return w.unplanned(c, i)
}

// unplanned is filter by the plugins that plans know nothing of, or not all, with the messages of kube-scheduler's.
func (w *World) unplanned(c *Class, i int) (plugin, message string) {
	if c.static[i] == elsewhere {
		return "VolumeBinding", "node(s) didn't match PersistentVolume's node affinity"
	}
	for _, anti := range []bool{false, true} {
		for _, t := range c.near {
			if t.anti != anti || t.fits(w.Nodes[i], c.near) {
				continue
			}
			if anti {
				return "InterPodAffinity", "node(s) didn't match pod anti-affinity rules"
			}
			return "InterPodAffinity", "node(s) didn't match pod affinity rules"
		}
	}
	if c.forbidden[i] {
		return "InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules"
	}
	return "", ""
}

// lacking says of what the cluster has less than a PodGroup's minResources, empty when it has enough. What the members take
// that have a node counts as free.
func (w *World) lacking(g *Gang, view *gangView) string {
	return plan.Shortage(g.Group.Spec.MinResources, view, func(names []corev1.ResourceName, total []int64) {
		for _, p := range g.Members {
			if p.Node == nil {
				continue
			}
			for j, name := range names {
				total[j] += p.Requests.Amount(name)
			}
		}
	})
}

// viewFor returns the cluster as a gang may use it.
func (w *World) viewFor(g *Gang) *gangView {
	v := &gangView{members: make(map[types.UID]*Pod, len(g.Waiting))}
	for _, n := range w.Nodes {
		if !n.Lost {
			v.nodes = append(v.nodes, n)
		}
	}
	for i, p := range g.Waiting {
		v.members[p.Object.UID] = p
		if priority := priorityOf(p.Object); i == 0 || priority < v.priority {
			v.priority = priority
		}
	}
	return v
}
