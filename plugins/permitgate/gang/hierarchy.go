package gang

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Composite groups make gangs depend on each other: each asks for a number of the groups below it, which are gangs or
// composite groups again. A gang that is part of one ([Spec.Parent]) is a gang like any other, but for three moments:
// its members are released, and bound, only when each composite group above it has the groups that it asks for, which
// go together with them; and they are sent back when one of these can have them no more. A composite group that does
// not get a further group, beyond those that it asks for, does without it. Members beyond the quorum of a gang whose
// quorum nothing stops any more depend on no other gang.

// Hierarchy is the composite groups that are known, by name, with the gangs below them. The zero value has none. It
// shares the lock of its gangs. After a change of a composite group the caller lets its gangs act, see
// [Hierarchy.Gangs].
type Hierarchy struct {
	composites map[types.NamespacedName]*composite
}

// Composite is what a composite group asks for.
type Composite struct {
	// Parent is the composite group above it; the zero value for the root.
	Parent types.NamespacedName
	// MinGroups is how many of the groups below are to be placed together.
	MinGroups int
}

// composite is a composite group, or, without its spec, one of which only groups below it are known.
type composite struct {
	spec   *Composite
	groups map[*composite]struct{}
	gangs  map[*Gang]struct{}
}

// maxLevels is how deep a hierarchy may be: the API server does not refuse one that is a ring.
const maxLevels = 32

// at returns a composite group, which is made if it is not known.
func (h *Hierarchy) at(name types.NamespacedName) *composite {
	c := h.composites[name]
	if c == nil {
		c = &composite{groups: map[*composite]struct{}{}, gangs: map[*Gang]struct{}{}}
		if h.composites == nil {
			h.composites = map[types.NamespacedName]*composite{}
		}
		h.composites[name] = c
	}
	return c
}

// drop forgets a composite group of which nothing is known any more.
func (h *Hierarchy) drop(name types.NamespacedName) {
	if c := h.composites[name]; c != nil && c.spec == nil && len(c.groups)+len(c.gangs) == 0 {
		delete(h.composites, name)
	}
}

// Set says what a composite group asks for.
func (h *Hierarchy) Set(name types.NamespacedName, spec Composite) {
	h.Delete(name)
	c := h.at(name)
	c.spec = &spec
	if spec.Parent.Name != "" {
		h.at(spec.Parent).groups[c] = struct{}{}
	}
}

// Delete says that a composite group does not exist. No gang below it is placed.
func (h *Hierarchy) Delete(name types.NamespacedName) {
	c := h.composites[name]
	if c == nil || c.spec == nil {
		return
	}
	if parent := h.composites[c.spec.Parent]; parent != nil {
		delete(parent.groups, c)
		h.drop(c.spec.Parent)
	}
	c.spec = nil
	h.drop(name)
}

// Gangs returns the gangs that may depend on a composite group: all of its hierarchy, as far as it is known.
func (h *Hierarchy) Gangs(name types.NamespacedName) (gangs []*Gang) {
	top := h.composites[name]
	if top == nil {
		return nil
	}
	for level := 0; level < maxLevels && top.spec != nil && h.composites[top.spec.Parent] != nil; level++ {
		top = h.composites[top.spec.Parent]
	}
	seen := map[*composite]bool{}
	for left := []*composite{top}; len(left) > 0; left = left[1:] {
		if c := left[0]; !seen[c] {
			seen[c] = true
			gangs = slices.AppendSeq(gangs, maps.Keys(c.gangs))
			left = slices.AppendSeq(left, maps.Keys(c.groups))
		}
	}
	return gangs
}

// join makes a gang part of the composite group that its PodGroup names.
func (g *Gang) join() {
	if g.inHierarchy() {
		g.config.Hierarchy.at(g.spec.Parent).gangs[g] = struct{}{}
	}
}

// leaveHierarchy ends what join has made.
func (g *Gang) leaveHierarchy() {
	if g.inHierarchy() {
		delete(g.config.Hierarchy.at(g.spec.Parent).gangs, g)
		g.config.Hierarchy.drop(g.spec.Parent)
	}
}

func (g *Gang) inHierarchy() bool {
	return g.config.Hierarchy != nil && g.spec != nil && g.spec.Parent.Name != ""
}

// has reports whether a composite group has the groups that it asks for, of the gangs for which counts is true. Its
// hierarchy has a root, so it is no ring.
func (c *composite) has(counts func(*Gang) bool) bool {
	groups := 0
	for g := range c.gangs {
		if counts(g) {
			groups++
		}
	}
	for below := range c.groups {
		if below.has(counts) {
			groups++
		}
	}
	return groups >= c.spec.MinGroups
}

// collect appends the gangs below a composite group for which counts is true, if it has the groups that it asks for of
// those, and so has each composite group between.
func (c *composite) collect(counts func(*Gang) bool, to []*Gang) []*Gang {
	if !c.has(counts) {
		return to
	}
	for g := range c.gangs {
		if counts(g) {
			to = append(to, g)
		}
	}
	for below := range c.groups {
		to = below.collect(counts, to)
	}
	return to
}

// above returns the composite groups above a gang, the nearest first; ok is false if one of them is not known.
func (g *Gang) above() (composites []*composite, ok bool) {
	if !g.inHierarchy() {
		return nil, true
	}
	for name := g.spec.Parent; name.Name != ""; {
		c := g.config.Hierarchy.composites[name]
		if c == nil || c.spec == nil || len(composites) == maxLevels {
			return composites, false
		}
		composites = append(composites, c)
		name = c.spec.Parent
	}
	return composites, true
}

// allowed reports whether each composite group above a gang has the groups that it asks for, of the gangs for which
// counts is true.
func (g *Gang) allowed(counts func(*Gang) bool) bool {
	composites, ok := g.above()
	for _, c := range composites {
		ok = ok && c.has(counts)
	}
	return ok
}

// together returns the gangs that may take a step together with this one: those of the hierarchy for which counts is
// true, and that are allowed to by it.
func (g *Gang) together(counts func(*Gang) bool) []*Gang {
	composites, ok := g.above()
	switch {
	case !ok:
		return nil
	case len(composites) > 0:
		return composites[len(composites)-1].collect(counts, nil)
	case counts(g):
		return []*Gang{g}
	}
	return nil
}

// Relatives returns all gangs that may depend on this one, itself among them.
func (g *Gang) Relatives() []*Gang {
	if !g.inHierarchy() {
		return []*Gang{g}
	}
	return g.config.Hierarchy.Gangs(g.spec.Parent)
}

// placed reports whether the quorum has nodes, and no rehearsal keeps it.
func (g *Gang) placed() bool {
	return g.quorumReleased() || g.valid() && g.Lacking() <= 0 && g.rehearsed()
}

// quorumReleased reports whether the quorum has been released.
func (g *Gang) quorumReleased() bool { return g.valid() && g.releasedOrLater() >= g.MinMember() }

// quorumPrepared reports whether the quorum has come to the barrier, or is past it.
func (g *Gang) quorumPrepared() bool {
	return g.valid() && g.committedOrLater()+g.count[memberPrepared] >= g.MinMember()
}

// quorumCommitted reports whether nothing stops the quorum's binds.
func (g *Gang) quorumCommitted() bool { return g.valid() && g.committedOrLater() >= g.MinMember() }

// possible reports whether the quorum has nodes, or may still get them without another backoff.
func (g *Gang) possible() bool {
	return g.quorumCommitted() || g.valid() && g.live() >= g.MinMember() && !g.RolledBack()
}

// lost reports whether members hold nodes that a composite group above the gang cannot use any more.
func (g *Gang) lost() bool {
	return g.inHierarchy() && !g.quorumCommitted() && g.count[memberWaiting]+g.preparing() > 0 && !g.allowed((*Gang).possible)
}

// Standing is what other gangs of a hierarchy depend on; the zero value for a gang that is part of none.
type Standing struct{ possible, placed, released, prepared bool }

// Standing returns the gang's, as of the last input. When it changes, its relatives may have to act.
func (g *Gang) Standing() Standing {
	if !g.inHierarchy() {
		return Standing{}
	}
	return Standing{g.possible(), g.placed(), g.quorumReleased(), g.quorumPrepared()}
}

// MissesGroups reports whether a composite group above the gang is not known, or has fewer groups than it asks for.
func (g *Gang) MissesGroups() bool {
	composites, ok := g.above()
	for _, c := range composites {
		ok = ok && len(c.gangs)+len(c.groups) >= c.spec.MinGroups
	}
	return !ok
}
