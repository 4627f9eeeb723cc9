package judge

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/chaos/history"
)

// WholeWithin is for how long a gang may be bound in part while there is no fault.
const WholeWithin = 30 * time.Second

// gang is what is known of one at a moment.
type gang struct {
	name      string
	minMember int // 0: there is no PodGroup
	live      map[types.UID]bool
	bound     map[types.UID]bool
	since     history.Moment // it is bound in part since; zero if it is not
	// changed is when it last lost a member, or its quorum was raised, or it was created again: others may have the
	// room that it needs now.
	changed time.Time
}

func (g *gang) partial() bool { return len(g.bound) > 0 && len(g.bound) < g.minMember }

// partialGangs: no gang stays bound in part, unless it lost members or needs more of them than when the first was
// bound. Times with a fault do not count.
func partialGangs(x *history.Index, v *Verdict) {
	gangs := map[string]*gang{}
	named := func(namespace, name string) *gang {
		key := namespace + "/" + name
		if gangs[key] == nil {
			gangs[key] = &gang{name: key, live: map[types.UID]bool{}, bound: map[types.UID]bool{}}
		}
		return gangs[key]
	}
	for i := range x.Changes {
		c := &x.Changes[i]
		var g *gang
		switch {
		case c.Group != nil:
			g = named(c.Group.Namespace, c.Group.Name)
			g.takeGroup(c)
		case c.Pod != nil && c.Pod.Labels[schedulingv1alpha1.PodGroupLabel] != "":
			g = named(c.Pod.Namespace, c.Pod.Labels[schedulingv1alpha1.PodGroupLabel])
			g.takePod(c)
		default:
			continue
		}
		at := history.Moment{Revision: c.Revision, Time: c.Time}
		switch partial := g.partial(); {
		case partial && len(g.live) < g.minMember:
			g.changed = at.Time
			fallthrough
		case partial:
			if g.since.Revision == 0 {
				g.since = at
			}
		case g.since.Revision != 0:
			g.end(x, c.Time, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(gangs)) {
		if g := gangs[key]; g.since.Revision != 0 {
			g.end(x, x.Judged, v)
		}
	}
}

func (g *gang) takeGroup(c *history.Change) {
	needs := int(c.Group.Spec.MinMember)
	if c.Deleted {
		needs = 0
	}
	if needs > g.minMember && (g.minMember > 0 || len(g.bound) > 0) {
		g.changed = c.Time
	}
	g.minMember = needs
}

func (g *gang) takePod(c *history.Change) {
	uid := c.Pod.UID
	if c.Deleted || c.Pod.DeletionTimestamp != nil || c.Pod.Status.Phase == v1.PodFailed {
		if g.live[uid] {
			g.changed = c.Time
		}
		delete(g.live, uid)
		delete(g.bound, uid)
		return
	}
	g.live[uid] = true
	if c.Pod.Spec.NodeName != "" {
		g.bound[uid] = true
	}
}

// end judges a time for which the gang was bound in part.
func (g *gang) end(x *history.Index, end time.Time, v *Verdict) {
	since := g.since
	g.since = history.Moment{}
	v.Judged++
	if g.changed.After(since.Time.Add(-Known)) {
		return
	}
	if quiet := longestQuiet(x, since.Time, end); quiet > WholeWithin {
		v.findf(since, "gang %s was bound in part for %s, %s of it without any fault", g.name, end.Sub(since.Time).Round(time.Millisecond), quiet.Round(time.Millisecond))
	}
}

// longestQuiet is the longest time without a fault between the two.
func longestQuiet(x *history.Index, from, to time.Time) (longest time.Duration) {
	faults := slices.SortedFunc(slices.Values(x.Faults), func(a, b history.Fault) int { return a.Began.Compare(b.Began) })
	for _, f := range faults {
		if f.Ended.Before(from) || f.Began.After(to) {
			continue
		}
		longest = max(longest, f.Began.Sub(from))
		from = f.Ended
	}
	return max(longest, to.Sub(from))
}
