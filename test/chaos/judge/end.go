package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
)

// BoundWithin is by when all that fits is bound after the last fault.
const BoundWithin = 60 * time.Second

// unbound: when faults and changes have stopped, all that fits is bound in time, and stays.
func unbound(x *history.Index, v *Verdict) {
	revision := int64(0)
	for i := range x.Changes {
		if !x.Changes[i].Time.After(x.Judged) {
			revision = x.Changes[i].Revision
		}
	}
	at := history.Moment{Revision: revision, Time: x.Judged}
	for _, what := range Waiting(x, revision) {
		v.findf(at, "%s after %s", what, x.Judged.Sub(x.Quiet).Round(time.Second))
	}
	for _, l := range x.Lives {
		if l.BoundAt(revision) {
			v.Judged++
		}
	}
	if took := x.Settled.Sub(x.Quiet); !x.Settled.IsZero() && took > BoundWithin {
		v.findf(at, "all that fits was bound after %s", took.Round(time.Second))
	}
}

// cluster is what there is at a revision.
type cluster struct {
	*history.Index
	revision int64
	nodes    map[string]*v1.Node
	free     map[string]amount // of the nodes that take pods, less what is held
}

// Waiting returns the pods and gangs that wait at a revision although they fit for certain: on a node that takes pods,
// in a zone that no constraint and no policy can forbid, in room that is not held.
func Waiting(x *history.Index, revision int64) (out []string) {
	c := &cluster{Index: x, revision: revision, nodes: map[string]*v1.Node{}, free: map[string]amount{}}
	for name, spans := range x.Nodes {
		span, there := history.At(spans, revision)
		if !there {
			continue
		}
		c.nodes[name] = span.Object
		if history.Ready(span.Object) && !span.Object.Spec.Unschedulable && len(span.Object.Spec.Taints) == 0 {
			room := listed(span.Object.Status.Allocatable).minus(taken(x, name, revision))
			c.free[name] = room.minus(c.held(name))
		}
	}
	members := map[string][]*history.Life{}
	for _, l := range x.Lives {
		if l.Created.Revision > revision || l.Ended.Revision <= revision {
			continue
		}
		if name := l.Pod.Labels[schedulingv1alpha1.PodGroupLabel]; name != "" {
			members[l.Pod.Namespace+"/"+name] = append(members[l.Pod.Namespace+"/"+name], l)
		} else if l.Bound.Revision > revision && c.fits(l.Pod) {
			out = append(out, fmt.Sprintf("pod %s (%+v) waits although it fits", l.Pod.Name, requests(l.Pod)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		group, there := history.At(x.Groups[name], revision)
		if !there {
			continue
		}
		var waiting []*history.Life
		for _, l := range members[name] {
			if l.Bound.Revision > revision {
				waiting = append(waiting, l)
			}
		}
		bound, needs := len(members[name])-len(waiting), int(group.Object.Spec.MinMember)
		if len(members[name]) < needs || len(waiting) == 0 {
			continue
		}
		missing := int64(max(needs-bound, 1))
		var places int64
		for _, room := range c.free {
			places += requests(waiting[0].Pod).into(room)
		}
		if places >= missing {
			out = append(out, fmt.Sprintf("gang %s has %d of %d members bound, and there is room for the %d that it lacks", name, bound, needs, missing))
		}
	}
	return out
}

// held is what reservations hold on a node, by their statuses.
func (c *cluster) held(node string) (held amount) {
	for _, spans := range c.Reservations {
		if r, there := history.At(spans, c.revision); there {
			held = held.plus(slot(r.Object).times(max(freeSlots(r.Object, node), 0)))
		}
	}
	return held
}

// fits reports whether a pod fits for certain.
func (c *cluster) fits(pod *v1.Pod) bool {
	for name, room := range c.free {
		if requests(pod).fits(room) && c.allowed(pod, history.Zone(c.nodes[name])) {
			return true
		}
	}
	return false
}

// allowed reports whether neither constraints nor policies can keep a pod out of a zone: none has fewer pods for its
// weight, and it is below its cap.
func (c *cluster) allowed(pod *v1.Pod, zone string) bool {
	for _, constraint := range hard(pod) {
		s := newSpread(c.Index, &history.Life{Pod: pod}, constraint.LabelSelector)
		if !emptiest(c.count(s), zone, func(string) int64 { return 1 }) {
			return false
		}
	}
	for _, spans := range c.Policies {
		policy, there := history.At(spans, c.revision)
		if !there || policy.Object.Namespace != pod.Namespace || !selects(&policy.Object.Spec.PodSelector, pod) {
			continue
		}
		counts := c.count(newSpread(c.Index, &history.Life{Pod: pod}, &policy.Object.Spec.PodSelector))
		if limit, capped := capOf(policy.Object, zone); capped && counts[zone] >= int64(limit) {
			return false
		}
		if !emptiest(counts, zone, func(z string) int64 { return weight(policy.Object, z) }) {
			return false
		}
	}
	return true
}

// count counts the pods by zone, for all zones that have a node.
func (c *cluster) count(s *spread) map[string]int64 {
	counts := map[string]int64{}
	for _, node := range c.nodes {
		counts[history.Zone(node)] += 0
	}
	for _, l := range s.lives {
		if node := c.nodes[l.Node()]; node != nil && l.Bound.Revision <= c.revision && c.revision < l.Ended.Revision {
			counts[history.Zone(node)]++
		}
	}
	return counts
}

func emptiest(counts map[string]int64, zone string, weight func(zone string) int64) bool {
	own := weight(zone)
	if own == 0 {
		return false
	}
	for other, n := range counts {
		if w := weight(other); w > 0 && counts[zone]*w > n*own {
			return false
		}
	}
	return true
}

func weight(policy *v1alpha1.ZoneSpreadPolicy, zone string) int64 {
	for _, z := range policy.Spec.Zones {
		if z.Name == zone && z.Weight != nil {
			return int64(*z.Weight)
		}
	}
	if policy.Spec.DefaultWeight != nil {
		return int64(*policy.Spec.DefaultWeight)
	}
	return 1
}

// moreGoroutines is by how many the leader may have more at the end than the first one had before the first pod:
// connections and their readers come and go.
const moreGoroutines = 120

// nothing are the metrics of which nothing remains when all is deleted.
var nothing = []string{
	"zonewise_reservecache_assumed_pods", "zonewise_reservecache_pods", "zonewise_reservecache_ghost_nodes",
	"zonewise_reservecache_held_cpu_cores", "zonewise_permitgate_gangs", "zonewise_permitgate_waiting_members", "zonewise_permitgate_partly_bound_gangs",
}

// OfNothing picks those metrics.
func OfNothing(metrics map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for _, name := range nothing {
		if value, there := metrics[name]; there {
			out[name] = value
		}
	}
	return out
}

// Remains reports whether a leader has more than nothing, by its metrics.
func Remains(r *history.Record) bool {
	return slices.ContainsFunc(nothing, func(name string) bool { return r.Remains[name] != 0 }) || r.Goroutines[1] > r.Goroutines[0]+moreGoroutines
}

// leftovers: after all has been deleted, the leader has nothing of it any more; and no pod that waits at the end has
// kept a nomination.
func leftovers(x *history.Index, v *Verdict) {
	if _, asked := x.Remains[nothing[0]]; asked {
		for _, name := range nothing {
			v.Judged++
			if value := x.Remains[name]; value != 0 { // one with labels is not there when it has none
				v.Found = append(v.Found, fmt.Sprintf("%s is %v after all was deleted", name, value))
			}
		}
		v.Judged++
		if x.Goroutines[1] > x.Goroutines[0]+moreGoroutines {
			v.Found = append(v.Found, fmt.Sprintf("%v goroutines, %v before the first pod", x.Goroutines[1], x.Goroutines[0]))
		}
	} else {
		v.Found = append(v.Found, "no leader could be asked what remains")
	}
	last := map[string]*history.Change{}
	for i := range x.Changes {
		if c := &x.Changes[i]; c.Pod != nil && !c.Time.After(x.Judged) {
			last[string(c.Pod.UID)] = c
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(last)) {
		if c := last[uid]; !c.Deleted && c.Pod.Spec.NodeName == "" && c.Pod.DeletionTimestamp == nil {
			v.Judged++
			if c.Pod.Status.NominatedNodeName != "" {
				v.Found = append(v.Found, fmt.Sprintf("pod %s waits and is nominated to %s", c.Pod.Name, c.Pod.Status.NominatedNodeName))
			}
		}
	}
}
