package gang_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/gang"
)

// forest is composite groups and the gangs below them, with what a scheduler has done with their pods.
type forest struct {
	check     *rapid.T
	now       time.Time
	hierarchy gang.Hierarchy
	// composites and parents are what the hierarchy has been told; the root has no parent.
	composites map[string]gang.Composite
	gangs      map[string]*gang.Gang
	specs      map[string]gang.Spec
	pods       map[types.UID]*leafPod
}

// leafPod is a pod of a gang: where it is, and whether the scheduler holds something for it.
type leafPod struct {
	gang  string
	place leafPlace
}

type leafPlace int

const (
	leafIdle leafPlace = iota
	leafPermitted
	leafReleased
	leafArrived
	leafBinding
	leafBound
)

func compositeName(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func newForest(check *rapid.T) *forest {
	f := &forest{
		check: check, now: start, composites: map[string]gang.Composite{}, gangs: map[string]*gang.Gang{}, specs: map[string]gang.Spec{},
		pods: map[types.UID]*leafPod{},
	}
	minimum := func(groups int) int { return rapid.IntRange(1, groups).Draw(check, "minimum") }
	f.setComposite("root", "", minimum(3))
	f.setComposite("below", "root", minimum(2))
	for name, parent := range map[string]string{"a": "root", "b": "root", "c": "below", "d": "below"} {
		config := preparingConfig
		config.Native, config.Hierarchy, config.Rehearse = true, &f.hierarchy, false
		f.gangs[name] = gang.New(config)
		members := rapid.IntRange(1, 3).Draw(check, "members of "+name)
		f.setGroup(name, gang.Spec{UID: types.UID(name), MinMember: minimum(members), Parent: compositeName(parent)})
		for i := range members {
			f.createPod(name, i)
		}
	}
	return f
}

func (f *forest) setComposite(name, parent string, minGroups int) {
	spec := gang.Composite{MinGroups: minGroups}
	if parent != "" {
		spec.Parent = compositeName(parent)
	}
	f.composites[name] = spec
	f.hierarchy.Set(compositeName(name), spec)
}

func (f *forest) setGroup(name string, spec gang.Spec) {
	f.specs[name] = spec
	f.gangs[name].SetGroup(spec, f.now)
}

func (f *forest) createPod(name string, i int) {
	uid := types.UID(fmt.Sprint(name, i))
	f.pods[uid] = &leafPod{gang: name}
	f.gangs[name].SetPod(uid, gang.Pod{}, f.now)
}

// in returns the pods that are at a place.
func (f *forest) in(places ...leafPlace) (uids []types.UID) {
	for uid, p := range f.pods {
		if slices.Contains(places, p.place) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// pick returns a pod that is at one of the places, and its gang.
func (f *forest) pick(places ...leafPlace) (types.UID, *leafPod, *gang.Gang) {
	uids := f.in(places...)
	if len(uids) == 0 {
		f.check.Skip("no pod is there")
	}
	uid := rapid.SampledFrom(uids).Draw(f.check, "pod")
	return uid, f.pods[uid], f.gangs[f.pods[uid].gang]
}

// committed counts the members of a gang whose binds nothing stops.
func (f *forest) committed(name string) (n int) {
	for uid, p := range f.pods {
		if p.gang == name && f.gangs[name].Committed(uid) {
			n++
		}
	}
	return n
}

// whole reports whether a gang or a composite group has what it asks for, counted from its pods.
func (f *forest) whole(name string) bool {
	if spec, leaf := f.specs[name]; leaf {
		return f.committed(name) >= spec.MinMember
	}
	composite, exists := f.composites[name]
	groups := 0
	for below, spec := range f.composites {
		if spec.Parent.Name == name && f.whole(below) {
			groups++
		}
	}
	for below, spec := range f.specs {
		if spec.Parent.Name == name && f.whole(below) {
			groups++
		}
	}
	return exists && groups >= composite.MinGroups
}

// requireWholeAbove is the promise: when a member of a gang that was not bound yet may be bound, its gang and each
// composite group above it have what they ask for.
func (f *forest) requireWholeAbove(name string) {
	for level := name; level != ""; {
		require.True(f.check, f.whole(level), "a pod of %s is bound, and %s has not what it asks for", name, level)
		if spec, leaf := f.specs[level]; leaf {
			level = spec.Parent.Name
		} else {
			level = f.composites[level].Parent.Name
		}
	}
}

// act does for each gang what it asks for, until none asks for more.
func (f *forest) act() {
	for range 10 {
		for _, name := range slices.Sorted(maps.Keys(f.gangs)) {
			g := f.gangs[name]
			actions := g.Act(f.now)
			if len(actions.Probe) > 0 {
				ready := actions.Probe
				if rapid.IntRange(0, 3).Draw(f.check, "another plugin keeps one") == 0 {
					ready = ready[1:]
				}
				f.noteReleased(g.Release(ready, f.now))
			}
			for _, uid := range actions.Reject {
				if p := f.pods[uid]; p != nil && p.place != leafBound && p.place != leafBinding {
					p.place = leafIdle
				}
				g.Unreserved(uid, f.now)
			}
			for _, uid := range slices.Sorted(maps.Keys(f.pods)) { // kube-scheduler asks all members of the hierarchy
				f.gangs[f.pods[uid].gang].Enqueue(uid, f.now)
			}
		}
	}
	f.answer()
}

func (f *forest) noteReleased(uids []types.UID) {
	for _, uid := range uids {
		f.pods[uid].place = leafReleased
	}
}

// answer has the members leave the barrier for which their gangs have decided.
func (f *forest) answer() {
	for uid, p := range f.pods {
		if p.place != leafArrived {
			continue
		}
		switch arrival, _ := f.gangs[p.gang].ArrivalOf(uid); arrival {
		case gang.ArrivalPass:
			p.place = leafBinding
		case gang.ArrivalRefused:
			p.place = leafIdle
			f.gangs[p.gang].Unreserved(uid, f.now)
		case gang.ArrivalWait:
		}
	}
}

// permit has a pod come to Permit, if it may.
func (f *forest) permit(uid types.UID, p *leafPod, g *gang.Gang) {
	if reason, _, _ := g.Enqueue(uid, f.now); reason != gang.ReasonNone {
		return
	}
	g.Tried(uid)
	wait, reason, _ := g.Permit(uid, "node", f.now)
	switch {
	case reason != gang.ReasonNone:
		g.Unreserved(uid, f.now)
	case wait:
		p.place = leafPermitted
	default:
		p.place = leafReleased
	}
}

// arrive has a pod come to the barrier, and those stopped that are lost.
func (f *forest) arrive(uid types.UID, p *leafPod, g *gang.Gang, loses func(types.UID) bool) {
	whole := map[string]bool{}
	for name := range f.gangs {
		whole[name] = f.whole(name)
	}
	p.place = leafArrived
	if members := g.Arrive(uid, f.now); len(members) > 0 {
		var sure, lost []types.UID
		for _, member := range members {
			if loses(member) {
				lost = append(lost, member)
			} else {
				sure = append(sure, member)
			}
		}
		before := map[types.UID]bool{}
		for member, p := range f.pods {
			before[member] = f.gangs[p.gang].Committed(member)
		}
		g.Commit(sure, lost, f.now)
		for member, p := range f.pods {
			if f.gangs[p.gang].Committed(member) && !before[member] && !whole[p.gang] {
				f.requireWholeAbove(p.gang)
			}
		}
	}
	f.answer()
}

// TestHierarchyPromises: whatever fails, and in whatever order, no member of a gang is bound before each composite
// group above it has what it asks for, and what cannot be bound holds no node. When nothing fails any more, all is
// bound.
func TestHierarchyPromises(t *testing.T) {
	rapid.Check(t, func(check *rapid.T) {
		f := newForest(check)
		none := func(types.UID) bool { return false }
		check.Repeat(map[string]func(*rapid.T){
			"permit": func(*rapid.T) { f.permit(f.pick(leafIdle)) },
			"arrive": func(check *rapid.T) {
				uid, p, g := f.pick(leafReleased)
				f.arrive(uid, p, g, func(types.UID) bool { return rapid.IntRange(0, 5).Draw(check, "lost") == 0 })
			},
			"act": func(*rapid.T) { f.act() },
			"pass": func(*rapid.T) {
				f.now = f.now.Add(time.Duration(rapid.IntRange(1, 30_000).Draw(check, "ms")) * time.Millisecond)
				f.act()
			},
			"lose": func(*rapid.T) {
				uid, p, g := f.pick(leafIdle, leafPermitted, leafReleased, leafArrived)
				p.place = leafIdle
				g.Unreserved(uid, f.now)
			},
			"bind": func(check *rapid.T) {
				uid, p, g := f.pick(leafBinding)
				if p.place = leafBound; rapid.Bool().Draw(check, "fails") {
					p.place = leafIdle
					g.Unreserved(uid, f.now)
				} else {
					g.Bound(uid, f.now)
				}
			},
			"replace": func(*rapid.T) {
				uid, p, g := f.pick(leafIdle, leafBound)
				g.DeletePod(uid, f.now)
				g.SetPod(uid, gang.Pod{}, f.now)
				p.place = leafIdle
			},
			"composite": func(check *rapid.T) {
				name := rapid.SampledFrom([]string{"root", "below"}).Draw(check, "composite")
				if rapid.Bool().Draw(check, "delete") {
					f.hierarchy.Delete(compositeName(name))
					f.act()
				}
				f.setComposite(name, f.composites[name].Parent.Name, rapid.IntRange(1, 3-len(f.composites[name].Parent.Name)/4).Draw(check, "minimum"))
				f.act()
			},
			"group": func(check *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(check, "gang")
				spec := f.specs[name]
				f.gangs[name].DeleteGroup(f.now)
				f.act()
				spec.UID += "'"
				f.setGroup(name, spec)
			},
			"": func(*rapid.T) {
				f.act()
				for name, g := range f.gangs {
					if g.RolledBack() {
						require.Zero(check, g.Preparing(), "%s has been rolled back, and holds nodes", name)
					}
				}
			},
		})
		f.settleDown(none)
		for name := range f.specs {
			require.True(check, f.whole(name), "nothing fails any more, and %s is not bound", name)
		}
	})
}

// settleDown takes each pod all the way, again and again, with nothing that fails. Where none moves, all pauses pass:
// they are ten times as long as what was held for nothing before.
func (f *forest) settleDown(none func(types.UID) bool) {
	for range 50 {
		for _, uid := range f.in(leafIdle) {
			f.permit(uid, f.pods[uid], f.gangs[f.pods[uid].gang])
		}
		if len(f.in(leafPermitted, leafReleased, leafArrived, leafBinding)) == 0 {
			f.now = f.now.Add(24 * time.Hour)
		}
		f.act()
		for _, uid := range f.in(leafReleased) {
			f.arrive(uid, f.pods[uid], f.gangs[f.pods[uid].gang], none)
		}
		for _, uid := range f.in(leafBinding) {
			f.pods[uid].place = leafBound
			f.gangs[f.pods[uid].gang].Bound(uid, f.now)
		}
		f.now = f.now.Add(time.Second)
		f.act()
	}
}

// TestHierarchyThatIsARing: composite groups that name each other as parents hold their gangs, and end no process.
func TestHierarchyThatIsARing(t *testing.T) {
	hierarchy := gang.Hierarchy{}
	hierarchy.Set(compositeName("x"), gang.Composite{Parent: compositeName("y"), MinGroups: 1})
	hierarchy.Set(compositeName("y"), gang.Composite{Parent: compositeName("x"), MinGroups: 1})
	c := config
	c.Native, c.Hierarchy = true, &hierarchy
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 1, Parent: compositeName("x")}, start)
	g.SetPod("pod", gang.Pod{}, start)
	wait, _, _ := g.Permit("pod", "node", start)
	require.True(t, wait)
	require.Empty(t, g.Release([]types.UID{"pod"}, start))
	require.Equal(t, gang.Backoff, g.Phase(), "it gives back the node at once")
	require.Equal(t, []*gang.Gang{g}, g.Relatives())
}
