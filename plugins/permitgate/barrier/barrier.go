// Package barrier has the members of a gang wait in PreBind until a quorum has been prepared and nothing can stop their
// binds any more.
//
// # Contract
//
// A [Barrier] belongs to a gang and has no lock: the gang's lock is held when its methods are called. [Wait] is called
// without it.
//
// PermitGate must be the last at PreBind, or a plugin behind it could still fail.
//
// # Non-goals
//
// The package decides nothing: package gang says who passes.
package barrier

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// Barrier has the members of a gang that wait in PreBind.
type Barrier struct {
	gang     *gang.Gang
	waiting  map[types.UID]chan<- Answer
	answered int // the gang's departures at the last answers
}

// New returns the barrier of a gang.
func New(g *gang.Gang) Barrier {
	return Barrier{gang: g, waiting: map[types.UID]chan<- Answer{}}
}

// Answer is what the gang has decided about a member.
type Answer struct {
	arrival gang.Arrival
	detail  string
}

// Arrive records that a member has come to the barrier. If it was the last, those that wait are marked, after which no
// preemptor can stop their binding cycles. The member's answer comes from the channel, for Wait.
func (b *Barrier) Arrive(ctx context.Context, h fwk.Handle, pod *v1.Pod, now time.Time) <-chan Answer {
	answer := make(chan Answer, 1)
	if members := b.gang.Arrive(pod.UID, now); len(members) > 0 {
		ready := b.commit(h, members, now)
		klog.FromContext(ctx).V(3).Info("Gang at the barrier", "last", klog.KObj(pod), "ready", ready, "stopped", len(members)-ready)
	}
	if arrival, detail := b.gang.ArrivalOf(pod.UID); arrival != gang.ArrivalWait {
		answer <- Answer{arrival, detail}
	} else {
		b.waiting[pod.UID] = answer
	}
	return answer
}

// commit marks members, and returns of how many nothing can stop the binds. MarkPrebound fails for a pod that has
// already been stopped.
func (b *Barrier) commit(h fwk.Handle, members []types.UID, now time.Time) (ready int) {
	var sure, lost []types.UID
	for _, uid := range members {
		if preparing := h.GetPodInPreBind(uid); preparing != nil && preparing.MarkPrebound() {
			sure = append(sure, uid)
		} else {
			lost = append(lost, uid)
		}
	}
	b.gang.Commit(sure, lost, now)
	return len(sure)
}

// Answer answers the members for which the gang has decided; call it when the gang has changed. Each channel has room
// for its one answer.
func (b *Barrier) Answer() {
	departures := b.gang.Departures()
	if departures == b.answered {
		return
	}
	b.answered = departures
	for uid, answer := range b.waiting {
		if arrival, detail := b.gang.ArrivalOf(uid); arrival != gang.ArrivalWait {
			answer <- Answer{arrival, detail}
			delete(b.waiting, uid)
		}
	}
}

// Leave forgets a member that waits no longer.
func (b *Barrier) Leave(uid types.UID) { delete(b.waiting, uid) }

// Wait waits for the answer to a member of a PodGroup. It returns early when ctx ends, which is how a preemptor stops
// its victim; leave is called then, and is to call Leave.
func Wait(ctx context.Context, key types.NamespacedName, answer <-chan Answer, leave func()) *fwk.Status {
	select {
	case a := <-answer:
		return a.status(key)
	case <-ctx.Done():
	}
	leave()
	select {
	case a := <-answer:
		// The commit was faster. Since then only the end of the scheduler can have stopped the pod.
		return a.status(key)
	default:
	}
	// Unreserve tells the gang.
	return fwk.AsStatus(context.Cause(ctx))
}

func (a Answer) status(key types.NamespacedName) *fwk.Status {
	if a.arrival == gang.ArrivalPass {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "PodGroup "+key.String()+": "+a.detail)
}
