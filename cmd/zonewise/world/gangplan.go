package world

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Placement is what becomes of the members of a gang that wait.
type Placement struct {
	// Placed are the members that have got a node: none unless the gang is whole with them.
	Placed []*Pod
	// Fit is how many members would find a node, all placed together.
	Fit int
	// Why says why the gang is not placed, empty when it is, and when it is the filters that refuse its only missing member.
	Why string
	// Stuck is a member that found no node, nil when all did or the gang was not tried.
	Stuck *Pod

	partly []*Pod // of an attempt that did not place the quorum
}

// PlaceGang gives the waiting members of a gang nodes, and none of them unless the gang is whole then. [World.Undo] takes it
// back.
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
		w.placeTogether(g, out)
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

// placeTogether places the members one after the other, and takes that back unless the quorum has a node then.
func (w *World) placeTogether(g *Gang, out *Placement) {
	w.placeSingly(g, out)
	if len(out.Placed) >= g.Missing() {
		return
	}
	w.Undo(out.Placed)
	out.Fit, out.partly, out.Placed = len(out.Placed), out.Placed, nil
	out.Why = fmt.Sprintf("needs %d members, %d fit at once", g.MinMember(), g.MinMember()-g.Missing()+out.Fit)
}

// PlacePartly places the members that the attempt behind a refusal had placed, and returns them.
func (w *World) PlacePartly(_ *Gang, p *Placement) (placed []*Pod) {
	for _, pod := range p.partly {
		if w.Place(pod) {
			placed = append(placed, pod)
		}
	}
	return placed
}

// Amount writes an amount of a resource as people do.
func Amount(name corev1.ResourceName, n int64) string {
	switch {
	case n >= math.MaxInt64/4:
		return "any amount"
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
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
