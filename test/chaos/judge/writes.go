package judge

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/test/chaos/history"
)

// staleWrites: what is written by a scheduler is written by the one that holds the lease, in storage's own order. A process
// that is stopped in the middle of a request sends the rest of it when it goes on, which nothing can prevent: it has begun
// to write in time.
func staleWrites(x *history.Index, v *Verdict) {
	program := map[string]string{} // by identity
	for i := range x.Requests {
		if q := &x.Requests[i]; q.Holder != "" && q.Accepted() {
			if program[q.Holder] == "" {
				program[q.Holder] = q.Writer // the first that wrote it is the one that took it
			}
		}
	}
	holder, former, taken := "", "", time.Time{}
	for i := range x.Changes {
		c := &x.Changes[i]
		if c.Lease != nil {
			if h := ptr.Deref(c.Lease.Spec.HolderIdentity, ""); !c.Deleted && h != "" {
				// One that was given back still has no other holder.
				if now := cmp.Or(program[h], h); now != holder {
					holder, former, taken = now, holder, c.Time
				}
			}
			continue
		}
		if c.Writer == "" {
			continue
		}
		v.Judged++
		begun := c.Writer == former && !c.Received.IsZero() && c.Received.Before(taken)
		if c.Writer != holder && !begun {
			v.findf(history.Moment{Revision: c.Revision, Time: c.Time}, "%s was written by %s while %s led", describe(c), c.Writer, cmp.Or(holder, "none"))
		}
	}
}

func describe(c *history.Change) string {
	switch {
	case c.Pod != nil:
		return "pod " + c.Pod.Name
	case c.Node != nil:
		return "node " + c.Node.Name
	case c.Group != nil:
		return "PodGroup " + c.Group.Name
	case c.Policy != nil:
		return "ZoneSpreadPolicy " + c.Policy.Name
	case c.Reservation != nil:
		return "ZoneReservation " + c.Reservation.Name
	}
	return "a lease"
}

// stillWaiting is for how long after its bind a preemptor may have been one when it had a pod evicted: evictions go out
// in the background.
const stillWaiting = 10 * time.Second

// evictions: a scheduler deletes no pod but for one of a higher priority that waits.
func evictions(x *history.Index, v *Verdict) {
	for _, victim := range x.Lives {
		if victim.EndedBy == "" {
			continue
		}
		v.Judged++
		if !hasPreemptor(x, victim) {
			v.findf(victim.Ended, "pod %s of priority %d was deleted by %s, and no pod of a higher priority waited", victim.Pod.Name, priority(victim.Pod), victim.EndedBy)
		}
	}
}

func hasPreemptor(x *history.Index, victim *history.Life) bool {
	at := victim.Ended
	for _, l := range x.Lives {
		if priority(l.Pod) > priority(victim.Pod) && l.Created.Revision < at.Revision &&
			l.Bound.Time.After(at.Time.Add(-stillWaiting)) && l.Ended.Time.After(at.Time.Add(-stillWaiting)) {
			return true
		}
	}
	return false
}

func priority(pod *v1.Pod) int32 { return ptr.Deref(pod.Spec.Priority, 0) }

// repeatedWrites: no write of a status of ours leaves an object as it was. Those of pods and of one condition of native
// PodGroups are kube-scheduler's own: it compares with what its informer shows, and repeats a condition that still
// waits for its turn to be sent or to be seen.
func repeatedWrites(x *history.Index, v *Verdict) {
	first := map[int64]*history.Request{}
	for i := range x.Requests {
		q := &x.Requests[i]
		if q.Verb != "patch" && q.Verb != "update" || q.Resource == "pods" || q.Resource == "leases" || q.KubeSchedulers || !q.Accepted() || q.Revision == 0 {
			continue
		}
		v.Judged++
		before := first[q.Revision]
		if before == nil {
			first[q.Revision] = q
			continue
		}
		v.findf(history.Moment{Revision: q.Revision, Time: q.Answered}, "%s repeated a %s of %s/%s %s", q.Writer, q.Verb, q.Resource, q.Subresource, q.Name)
	}
}
