package buy

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/message"
)

// answerWithin is how long an autoscaler may take to say anything about a CapacityBuffer.
const answerWithin = 5 * time.Minute

// buyer is an object that has spec.buy, or had it when its status was written.
type buyer struct {
	object client.Object
	// demand is nil if nothing is to be asked for any more.
	demand *buy.Demand
	// status and conditions are those of a copy of the object.
	status     **v1alpha1.BuyStatus
	conditions *[]metav1.Condition
	// expired says that nothing is held any more although the spec has buy.
	expired bool
}

func (b *buyer) uid() types.UID { return b.object.GetUID() }

// buyersOf returns the objects that want something, or whose status still says so.
func buyersOf(cluster *snapshot.Snapshot, now time.Time) []*buyer {
	view := &buy.Cluster{Now: now, Nodes: snapshot.List[*v1.Node](cluster), Pods: snapshot.List[*v1.Pod](cluster)}
	var out []*buyer
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](cluster) {
		if r.DeletionTimestamp != nil ||
			r.Spec.Buy == nil && meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBuying) == nil {
			continue // the API server deletes what a deleted object owns
		}
		r = r.DeepCopy()
		b := &buyer{
			object: r, status: &r.Status.Buy, conditions: &r.Status.Conditions,
			expired: r.Spec.Buy != nil && meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionExpired),
		}
		if r.Spec.Buy != nil && !b.expired {
			b.demand = buy.ReservationDemand(r, view)
		}
		out = append(out, b)
	}
	for _, s := range snapshot.List[*v1alpha1.ZoneSurvival](cluster) {
		if s.DeletionTimestamp != nil ||
			s.Spec.Buy == nil && meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionBuying) == nil {
			continue
		}
		s = s.DeepCopy()
		b := &buyer{object: s, status: &s.Status.Buy, conditions: &s.Status.Conditions}
		if s.Spec.Buy != nil {
			b.demand = buy.SurvivalDemand(s, reservationsOf(cluster, s), view)
		}
		out = append(out, b)
	}
	return out
}

// reservationsOf returns the reservations of a ZoneSurvival, by name.
func reservationsOf(cluster *snapshot.Snapshot, s *v1alpha1.ZoneSurvival) []*v1alpha1.ZoneReservation {
	return slices.DeleteFunc(snapshot.Sorted[*v1alpha1.ZoneReservation](cluster, ""), func(r *v1alpha1.ZoneReservation) bool {
		return !metav1.IsControlledBy(r, s)
	})
}

// withdraw says in the status that nothing is asked for any more.
func (b *buyer) withdraw(now time.Time) {
	*b.status = nil
	if b.expired {
		b.setCondition(
			metav1.ConditionFalse, v1alpha1.ReasonExpired, "nothing is held any more", now,
		)
	} else {
		meta.RemoveStatusCondition(b.conditions, v1alpha1.ConditionBuying)
	}
}

// reportAsked puts into the status what is asked for, and what the autoscaler says of it. failed is why not all of it
// could be asked for; nil if it could.
func (b *buyer) reportAsked(planned *planned, failed error, now time.Time) {
	before := map[string]*v1alpha1.BuyBuffer{}
	if *b.status != nil {
		for i := range (*b.status).Buffers {
			before[(*b.status).Buffers[i].Name] = &(*b.status).Buffers[i]
		}
	}
	status := &v1alpha1.BuyStatus{}
	oldest, answered := now, false
	for i := range planned.buffers {
		plan := &planned.buffers[i]
		conditions := planned.answers[plan.Name]
		buffer := v1alpha1.BuyBuffer{
			Name: plan.Name, Zone: plan.Zone, Requests: plan.Requests, Wanted: int64(plan.Wanted),
			Asked:  int64(plan.Asked),
			Answer: crd.Shortened(buy.Answer(conditions)),
		}
		if last := before[plan.Name]; plan.Asked > 0 && last != nil && last.Asked == buffer.Asked &&
			!last.AskedSince.IsZero() {
			buffer.AskedSince = last.AskedSince
		} else if plan.Asked > 0 {
			buffer.AskedSince = metav1.NewTime(now).Rfc3339Copy()
		}
		if plan.Asked > 0 && buffer.AskedSince.Time.Before(oldest) {
			oldest = buffer.AskedSince.Time
		}
		answered = answered || len(conditions) > 0
		status.Wanted, status.Asked = status.Wanted+buffer.Wanted, status.Asked+buffer.Asked
		if len(status.Buffers) < maxReported {
			status.Buffers = append(status.Buffers, buffer)
		}
	}
	*b.status = status
	about := fmt.Sprintf("room for %d pods is asked for, of %d wanted", status.Asked, status.Wanted)
	switch silent := now.Sub(oldest) >= answerWithin && !answered; {
	case failed != nil:
		b.setCondition(
			metav1.ConditionFalse, v1alpha1.ReasonNotWritten, message.OneLine(failed), now,
		)
	case b.demand.Frozen != "":
		b.setCondition(
			metav1.ConditionTrue, v1alpha1.ReasonFrozen,
			about+"; it does not rise: "+b.demand.Frozen, now,
		)
	case planned.atMax:
		b.setCondition(
			metav1.ConditionFalse, v1alpha1.ReasonMaxReached,
			about+": spec.buy.max is in the way", now,
		)
	case silent:
		b.setCondition(metav1.ConditionUnknown, v1alpha1.ReasonNotAnswered,
			about+"; no autoscaler has said anything about the CapacityBuffers: it may have to be told to read them",
			now)
	case status.Wanted == 0 && status.Asked == 0:
		b.setCondition(metav1.ConditionTrue, v1alpha1.ReasonNothingWanted, "nothing is held and unused, or missing", now)
	default:
		b.setCondition(metav1.ConditionTrue, v1alpha1.ReasonAsked, about, now)
	}
}

// maxReported is how many buffers a status has.
const maxReported = 100

// setCondition sets the condition Buying.
func (b *buyer) setCondition(status metav1.ConditionStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(b.conditions, metav1.Condition{
		Type: v1alpha1.ConditionBuying, Status: status, Reason: reason, Message: crd.Shortened(message),
		ObservedGeneration: b.object.GetGeneration(),
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	})
}
