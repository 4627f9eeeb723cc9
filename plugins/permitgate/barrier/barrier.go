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
func (b *Barrier) Arrive(ctx context.Context, h fwk.Handle, key types.NamespacedName, uid types.UID, now time.Time) <-chan Answer {
	answer := make(chan Answer, 1)
	if members := b.gang.Arrive(uid, now); len(members) > 0 {
		b.commit(ctx, h, key, members, now)
	}
	if arrival, detail := b.gang.ArrivalOf(uid); arrival != gang.ArrivalWait {
		answer <- Answer{arrival, detail}
	} else {
		b.waiting[uid] = answer
	}
	return answer
}

// commit marks members. MarkPrebound fails for a pod that has already been stopped.
func (b *Barrier) commit(ctx context.Context, h fwk.Handle, key types.NamespacedName, members []types.UID, now time.Time) {
	var sure, lost []types.UID
	for _, uid := range members {
		if preparing := h.GetPodInPreBind(uid); preparing != nil && preparing.MarkPrebound() {
			sure = append(sure, uid)
		} else {
			lost = append(lost, uid)
		}
	}
	b.gang.Commit(sure, lost, now)
	klog.FromContext(ctx).V(3).Info("Gang at the barrier", "podGroup", key, "ready", len(sure), "stopped", len(lost))
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
