package permitgate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// The gangs of a composite group are gangs of their own; package gang says what they may do only together. Here they
// hear of each other.

// setComposite takes in what a composite group asks for.
func (g *gangs) setComposite(name types.NamespacedName, spec gang.Composite) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.hierarchy.Gangs(name)
	g.hierarchy.Set(name, spec)
	g.actOnLocked(before)
	g.actOnLocked(g.hierarchy.Gangs(name))
}

// dropComposite forgets a composite group.
func (g *gangs) dropComposite(name types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	concerned := g.hierarchy.Gangs(name)
	g.hierarchy.Delete(name)
	g.actOnLocked(concerned)
}

// actOnLocked has the worker look at gangs.
func (g *gangs) actOnLocked(changed []*gang.Gang) {
	for _, other := range changed {
		g.agenda.Add(g.ids[other])
	}
}

// tellRelativesLocked has the worker look at the gangs that depend on one, if its standing has changed.
func (g *gangs) tellRelativesLocked(e *gangEntry) {
	standing := e.gang.Standing()
	if standing == e.standing {
		return
	}
	e.standing = standing
	g.actOnLocked(e.gang.Relatives())
}

// catchUpHierarchyLocked takes in the groups of a gang's hierarchy that kube-scheduler may have seen before this plugin
// has, if some are missing. Their events are on the way.
func (g *gangs) catchUpHierarchyLocked(e *gangEntry, now time.Time) {
	if !e.gang.MissesGroups() {
		return
	}
	for name, spec := range g.natives.composites.Of(e.id.Namespace) {
		g.hierarchy.Set(name, spec)
	}
	for _, part := range g.natives.groups.PartsOf(e.id.Namespace) {
		if other := g.entryLocked(part.ID); other.group == nil {
			other.setGroup(part, now)
			g.afterChangeLocked(other)
		}
	}
}

// groupGone handles the end of a PodGroup.
func (g *gangs) groupGone(group *podgroup.Group) {
	g.change(group.ID, func(e *gangEntry, now time.Time) {
		relatives := e.gang.Relatives()
		e.group = nil
		e.gang.DeleteGroup(now)
		g.actOnLocked(relatives)
	})
}
