package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Pods that need one piece of room starve a gang that needs many at once. After it has been refused for long, such a gang
// collects room: its members are booked on nodes as room appears there, until the quorum has enough. One gang at a time does
// so, for a limited time, and only if it would fit beside the pods that it cannot displace.

// reasonCollects is the reason of the event about a gang that begins to collect.
const reasonCollects = "GangCollectsRoom"

// collectAtLeast is the least time for which a gang may collect, and for which it then leaves the room to others.
const collectAtLeast = time.Minute

// collector lets gangs collect room; only scheduling cycles use it.
type collector struct {
	gangs    *gangs
	proposer *proposer
	after    time.Duration // how long a gang is refused before
	seen     []int64       // the nodes' generations, as of the last look
	// event sends an event about a PodGroup.
	event func(ctx context.Context, key types.NamespacedName, pod *v1.Pod, reason, note string)
}

// limit is how long a gang may collect.
func (c *collector) limit() time.Duration { return max(c.after, collectAtLeast) }

// starved lets a gang collect that has been refused for lack of room for long enough. A gang that already collects looks at
// all nodes again.
func (c *collector) starved(ctx context.Context, state fwk.CycleState, pl *plan, o *outcome) {
	if o.refusal.Cause != gang.CauseNoRoom || o.view == nil || len(pl.wants.minResources) > 0 {
		return
	}
	began, may, running := time.Time{}, false, false
	c.gangs.look(pl.key, func(e *entry, now time.Time) {
		other := c.gangs.collects
		began = now
		running = e.gang.Placed() // it has waited before, and the nodes of its members may come back
		waited := running || now.Sub(e.gang.ReadySince()) >= c.after
		may = other == e || e.preempting == nil && waited && !now.Before(e.collecting.rest) &&
			(other == nil || e.rank().Compare(other.rank()) < 0)
	})
	if !may {
		return
	}
	alone := pl.request
	alone.Cluster = &yielding{view: o.view, plan: pl}
	r := proposal.Make(alone)
	possible, begun := running || r.Verdict == proposal.Proposed || r.Verdict == proposal.Unproven, false
	c.gangs.look(pl.key, func(e *entry, now time.Time) {
		switch is := c.gangs.collects == e; {
		case !possible:
			if is {
				c.gangs.stopCollectingLocked()
			}
			e.collecting.rest = now.Add(max(collectAtLeast, searchShare*now.Sub(began)))
		case !is:
			if c.gangs.collects != nil {
				c.gangs.stopCollectingLocked()
			}
			c.gangs.collects, begun = e, true
			c.gangs.collecting.Store(true)
			e.collecting = collecting{until: now.Add(c.limit()), rest: now.Add(2 * c.limit()), domain: r.Domain}
			c.gangs.agenda.AddAt(e.key, e.collecting.until)
		default:
			// Its bookings may be lost by now.
			e.books.endAll(bookedByCollecting)
		}
	})
	if begun {
		since := "has been refused for " + c.after.String()
		if running {
			since = "lacks members of its quorum"
		}
		c.event(ctx, pl.key, nil, reasonCollects, "the gang "+since+" and now collects room that becomes free, for at most "+c.limit().String())
	}
	if possible {
		c.take(ctx, state, o.view.nodes)
	}
}

// replaces lets a running gang collect whose quorum lacks one member, which has just found no node: so that no pod of the same priority takes
// the room that comes back.
func (c *collector) replaces(key types.NamespacedName) {
	c.gangs.look(key, func(e *entry, now time.Time) {
		other := c.gangs.collects
		if !e.replaces() || other != nil && e.rank().Compare(other.rank()) >= 0 {
			return
		}
		if other != nil {
			c.gangs.stopCollectingLocked()
		}
		c.gangs.collects = e
		c.gangs.collecting.Store(true)
		e.collecting = collecting{until: now.Add(c.limit()), rest: now.Add(c.limit())}
		c.gangs.agenda.AddAt(e.key, e.collecting.until)
	})
}

// watch lets the collecting gang take room on nodes that changed since the last cycle, before the pod of this cycle, which
// the same change may have woken. It costs nothing while no gang collects.
func (c *collector) watch(ctx context.Context, state fwk.CycleState) {
	if !c.gangs.collecting.Load() {
		return
	}
	list, _ := c.proposer.handle.SnapshotSharedLister().NodeInfos().List() // a snapshot has no error to return
	var changed []fwk.NodeInfo
	for i, info := range list {
		if i == len(c.seen) {
			c.seen = append(c.seen, -1)
		}
		if generation := info.GetGeneration(); generation != c.seen[i] {
			c.seen[i] = generation
			changed = append(changed, info)
		}
	}
	c.seen = c.seen[:len(list)]
	var gains func(node string) int
	c.gangs.mu.Lock()
	if e := c.gangs.collects; e != nil {
		gains = e.refusal.gains
	}
	c.gangs.mu.Unlock()
	if gains != nil {
		changed = slices.DeleteFunc(changed, func(info fwk.NodeInfo) bool { return gains(info.Node().Name) == 0 })
	}
	if len(changed) > 0 {
		c.take(ctx, state, changed)
	}
}

// take books room on nodes for members of the collecting gang, and wakes the gang when the quorum has enough.
func (c *collector) take(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo) {
	var key types.NamespacedName
	booked, domain := map[types.UID]bool{}, ""
	c.gangs.mu.Lock()
	if e := c.gangs.collects; e != nil {
		key, domain = e.key, e.collecting.domain
		for uid, b := range e.books.of {
			booked[uid] = b.kind == bookedByCollecting
		}
	}
	c.gangs.mu.Unlock()
	pl := c.proposer.plan(key, nil)
	if len(pl.pods) == 0 {
		return
	}
	for i := range pl.request.Classes {
		of := &pl.request.Classes[i]
		var members []types.UID
		for _, uid := range of.Members {
			if !booked[uid] {
				members = append(members, uid)
			}
		}
		of.Members = members
	}
	r := &pl.request
	c.proposer.prepare(ctx, state, pl, nodes)
	v := c.proposer.view(none, pl.priority, nodes) // its own bookings count, too
	need := r.Need
	r.Cluster, r.Need = v, need-len(booked)
	if domain != "" {
		r.Topology.Domain = domain
	}
	result := proposal.Collect(*r)
	c.gangs.look(key, func(e *entry, now time.Time) {
		if c.gangs.collects != e {
			return
		}
		for _, slot := range result.Slots {
			m := e.pods[slot.Member]
			if m == nil || e.books.of[slot.Member] != nil || e.books.kinds[bookedByCollecting] >= need {
				continue
			}
			e.books.book(slot.Member, booking{pod: m.pod, amounts: m.amounts, node: v.Node(slot.At).Name, kind: bookedByCollecting})
		}
		klog.FromContext(ctx).V(3).Info("A gang collects room", "podGroup", key, "has", e.books.kinds[bookedByCollecting], "needs", need)
		if e.books.kinds[bookedByCollecting] >= need {
			c.gangs.mayHelpLocked(e, true, now)
		}
	})
}

// yielding is a cluster without the pods that may leave some day: those of the same or a lower priority, except for those of
// DaemonSets. It implements proposal.Cluster.
type yielding struct {
	*view
	plan *plan
}

// Free implements proposal.Cluster.
func (y *yielding) Free(i int, names []v1.ResourceName, into []int64) {
	y.view.Free(i, names, into)
	for _, info := range y.nodes[i].GetPods() {
		pod := info.GetPod()
		if corev1.PodPriority(pod) > y.plan.priority || ofDaemonSet(pod) || y.plan.members[pod.UID] {
			continue
		}
		proposal.Add(into, names, proposal.Requests(pod))
	}
}

// Kept implements proposal.Cluster. It leaves out nominations, which end.
func (y *yielding) Kept(i int, pod *v1.Pod, names []v1.ResourceName, into []int64) {
	if y.holds != nil {
		y.holds.Kept(pod, y.nodes[i], names, into)
	}
}
