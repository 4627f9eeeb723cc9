package judge

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
)

// written is by when a leader has written into a status which slots it holds: within a second, and late when the API
// server is away.
const written = 10 * time.Second

// foreignSlots: no pod is bound into a slot that is held for others, unless its priority is higher. Slots are in the
// memory of the leader, and in the status soon after: a slot counts if the status had it unused for as long before and
// after the bind as it takes to write it, and no owner came to the node in between.
func foreignSlots(x *history.Index, v *Verdict) {
	for _, l := range x.Lives {
		if l.Bound == history.Never {
			continue
		}
		node, known := history.Throughout(x.Nodes[l.Node()], l.Bound.Time.Add(-written), l.Bound.Time.Add(written))
		if !known {
			continue
		}
		var held amount
		for _, spans := range x.Reservations {
			held = held.plus(heldFrom(x, spans, l))
		}
		if held == (amount{}) {
			continue
		}
		v.Judged++
		sum, has := taken(x, l.Node(), l.Bound.Revision), listed(node.Status.Allocatable)
		if sum.fits(has) && !sum.plus(held).fits(has) {
			v.findf(l.Bound, "pod %s takes node %s to %+v of %+v, of which %+v is held for others, bound by %q", l.Pod.Name, l.Node(), sum, has, held, l.Writer)
		}
	}
}

// heldFrom is what a reservation certainly held on the pod's node, and not for the pod.
func heldFrom(x *history.Index, spans []history.Span[*v1alpha1.ZoneReservation], l *history.Life) amount {
	from, to := l.Bound.Time.Add(-written), l.Bound.Time.Add(written)
	versions := history.During(spans, from, to)
	if len(versions) == 0 || versions[0].From.Time.After(from) || versions[len(versions)-1].To.Time.Before(to) {
		return amount{} // it was not there all the time
	}
	first := versions[0].Object
	if owns(first, l.Pod) || priority(l.Pod) > ptr.Deref(first.Spec.Priority, 0) {
		return amount{}
	}
	unused := int64(-1)
	for i, version := range versions {
		if version.Object.UID != first.UID || version.Object.Generation != first.Generation || i > 0 && versions[i-1].To != version.From {
			return amount{}
		}
		free := freeSlots(version.Object, l.Node())
		if unused < 0 || free < unused {
			unused = free
		}
	}
	for _, other := range x.OnNode[l.Node()] {
		if owns(first, other.Pod) && other.Bound.Time.After(from) && other.Bound.Time.Before(to) {
			unused--
		}
	}
	return slot(first).times(max(unused, 0))
}

// freeSlots are the unused slots of a reservation on a node, by its status.
func freeSlots(r *v1alpha1.ZoneReservation, node string) (free int64) {
	for _, zone := range r.Status.Zones {
		for _, n := range zone.Nodes {
			if n.Name == node {
				free += n.Slots - n.Used
			}
		}
	}
	return free
}

func slot(r *v1alpha1.ZoneReservation) amount {
	a := listed(r.Spec.Slot.Requests)
	a.pods = 1
	return a
}

func owns(r *v1alpha1.ZoneReservation, pod *v1.Pod) bool {
	return slices.ContainsFunc(r.Spec.Owners, func(o v1alpha1.ReservationOwner) bool {
		return o.Namespace == pod.Namespace && selects(&o.PodSelector, pod)
	})
}
