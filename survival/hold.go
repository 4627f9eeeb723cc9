package survival

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/message"
	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	maxMissing     = 100
	maxReservation = 253
)

// Room is the reservation of a ZoneSurvival.
type Room struct {
	// Present is the one that there is, if it belongs to the ZoneSurvival, and Wanted the one that should be there.
	// Either may be nil.
	Present, Wanted *v1alpha1.ZoneReservation
	// Bound is how much CPU and memory has to be held at least, if every loss is to find enough.
	Bound v1.ResourceList
}

// Hold finds out what a ZoneSurvival with spec.hold should hold: on each node what the worst single loss needs there,
// where others leave room, so that all displaced pods that have a place find it although others take all other room.
// Room that there is not yet is asked for where other pods may leave it. The objects and the status are those of
// Certify; the status gets what is to be said of the room. An error is that of ctx; everything else that goes wrong is
// in the status, and Wanted is then what there is.
func Hold(
	ctx context.Context, objects []client.Object, asked *v1alpha1.ZoneSurvival, options Options,
	status *v1alpha1.ZoneSurvivalStatus,
) (Room, error) {
	present, taken := reservationOf(objects, asked)
	room := Room{Present: present, Wanted: present}
	status.Reservation, status.Held, status.Missing = "", nil, nil
	if !asked.Spec.Hold {
		room.Wanted = nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionHeld)
		return room, nil
	}
	if present != nil {
		status.Reservation, status.Held = present.Name, heldUnused(present)
	}
	var condition metav1.Condition
	var err error
	switch c := newCertificate(asked); {
	case c.invalid != nil:
		condition = unknownCondition(v1alpha1.ReasonInvalid, c.invalid.Error())
	case len(options.Missing) > 0:
		condition = unknownCondition(v1alpha1.ReasonSnapshotIncomplete, strings.Join(options.Missing, "; "))
	case taken:
		condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReservationNotOwned, Message: fmt.Sprintf(
			"ZoneReservation %s is not of this ZoneSurvival and is left alone; nothing is held", ReservationName(asked.Name))}
	default:
		condition, err = room.findRoom(ctx, objects, c, &options, status)
	}
	if err != nil {
		return Room{}, err
	}
	condition.Type, condition.ObservedGeneration, condition.Message = v1alpha1.ConditionHeld, asked.Generation, crd.Shortened(condition.Message)
	condition.LastTransitionTime.Time = options.Sim.Now
	meta.SetStatusCondition(&status.Conditions, condition)
	return room, nil
}

// findRoom finds out what to hold, and what to say of it.
func (r *Room) findRoom(
	ctx context.Context, objects []client.Object, c *certificate, options *Options, status *v1alpha1.ZoneSurvivalStatus,
) (metav1.Condition, error) {
	belongs := mayUseHeld(objects, r.Present)
	own := requestsByNode(objects, func(pod *v1.Pod) bool { return c.protects(pod) && belongs(pod) })
	held := unusedOf(specifiedAmounts(r.Present), own)
	p := newPlanner(objects, c, heldByOthers(objects, r.Present), belongs, options, held, status.Losses)
	p.own = own
	p.broken = slices.ContainsFunc(status.Losses, func(loss v1alpha1.SurvivalLoss) bool { return loss.Waiting > 0 })
	plan, err := p.computePlan(ctx, held)
	if ctx.Err() != nil {
		return metav1.Condition{}, context.Cause(ctx)
	}
	if err != nil {
		return unknownCondition(v1alpha1.ReasonReplayFailed, message.OneLine(err)), nil
	}
	r.Bound = p.least.List()
	r.Wanted = newReservation(c.asked, plan.held, own)
	status.Reservation = ""
	if r.Wanted != nil {
		status.Reservation = r.Wanted.Name
	}
	status.Missing = plan.missingByZone()
	return r.condition(plan), nil
}

// condition says whether the room is held, and why not.
func (r *Room) condition(plan *plan) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	pods := plan.missing.podCount()
	switch {
	case plan.capped:
		return not(
			v1alpha1.ReasonHeldFractionReached,
			fmt.Sprintf("spec.maxHeldFraction keeps room from being held for %d pods, see status.missing", pods),
		)
	case pods > 0:
		return not(v1alpha1.ReasonRoomMissing, fmt.Sprintf(
			"room is missing for %d pods, see status.missing; it is collected as other pods leave", pods))
	case r.Wanted == nil:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRoomHeld, Message: "no loss displaces a pod",
		}
	case r.Present == nil || !r.Same() || r.Present.Status.ObservedGeneration != r.Present.Generation:
		return not(v1alpha1.ReasonFilling, fmt.Sprintf(
			"ZoneReservation %s has changed, and the scheduler has not said yet what it holds", r.Wanted.Name))
	}
	for _, kind := range []string{v1alpha1.ConditionDegraded, v1alpha1.ConditionReady} {
		c := meta.FindStatusCondition(r.Present.Status.Conditions, kind)
		if c != nil && (c.Status == metav1.ConditionTrue) != (kind == v1alpha1.ConditionReady) {
			return not(c.Reason, fmt.Sprintf("ZoneReservation %s: %s", r.Present.Name, c.Message))
		}
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRoomHeld, Message: fmt.Sprintf(
		"ZoneReservation %s holds what any one loss needs", r.Present.Name)}
}

// Same reports whether the reservation is as it should be.
func (r *Room) Same() bool {
	if r.Present == nil || r.Wanted == nil {
		return r.Present == r.Wanted
	}
	return sameSpec(&r.Present.Spec, &r.Wanted.Spec)
}

// missingByZone lists what is missing, by zone.
func (pl *plan) missingByZone() []v1alpha1.SurvivalMissing {
	var out []v1alpha1.SurvivalMissing
	for _, lacking := range slices.SortedFunc(maps.Keys(pl.missing), func(a, b shape) int {
		return cmp.Or(strings.Compare(a.zone, b.zone), strings.Compare(a.requests, b.requests))
	}) {
		pods := pl.missing[lacking]
		requests := footprintOf(pods[0])
		m := v1alpha1.SurvivalMissing{Zone: lacking.zone, Pods: int64(len(pods)), Requests: requests.List()}
		delete(m.Requests, v1.ResourcePods)
		out = append(out, m)
	}
	return out[:min(len(out), maxMissing)]
}

// ReservationName is the name of the reservation of a ZoneSurvival.
func ReservationName(survival string) string {
	name := "survival-" + survival
	if len(name) <= maxReservation {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s-%08x", strings.TrimRight(name[:maxReservation-9], "-."), h.Sum32())
}

// reservationOf returns the reservation of a ZoneSurvival, or that another one has taken its name.
func reservationOf(
	objects []client.Object, asked *v1alpha1.ZoneSurvival,
) (present *v1alpha1.ZoneReservation, taken bool) {
	for _, obj := range objects {
		if r, ok := obj.(*v1alpha1.ZoneReservation); ok && r.Name == ReservationName(asked.Name) {
			if metav1.IsControlledBy(r, asked) {
				return r, false
			}
			return nil, true
		}
	}
	return nil, false
}

// newReservation returns the reservation that holds some amounts unused, nil for none. The amounts of a reservation
// include its owners on each node, which ask for own.
func newReservation(asked *v1alpha1.ZoneSurvival, unused, own amounts) *v1alpha1.ZoneReservation {
	out := &v1alpha1.ZoneReservation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneReservation"},
		ObjectMeta: metav1.ObjectMeta{Name: ReservationName(asked.Name), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneSurvival", Name: asked.Name, UID: asked.UID,
			Controller: ptr.To(true),
		}}},
		Spec: v1alpha1.ZoneReservationSpec{Priority: asked.Spec.Priority},
	}
	for _, w := range asked.Spec.Workloads {
		out.Spec.Owners = append(out.Spec.Owners, v1alpha1.ReservationOwner(w))
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		all, used := unused[name], own[name]
		if all.IsZero() {
			continue
		}
		all = all.Clone()
		all.Add(&used, 1)
		n := v1alpha1.ReservationNode{Name: name, Amount: all.List(), Pods: int32(max(1, all.Pods))} //nolint:gosec // as many as fit on a node
		if delete(n.Amount, v1.ResourcePods); len(n.Amount) == 0 {
			n.Amount[v1.ResourceCPU] = resource.Quantity{} // a place for a pod that asks for nothing
		}
		out.Spec.Nodes = append(out.Spec.Nodes, n)
	}
	if len(out.Spec.Nodes) == 0 {
		return nil
	}
	return out
}

// sameSpec compares what the controller sets.
func sameSpec(a, b *v1alpha1.ZoneReservationSpec) bool {
	return slices.EqualFunc(a.Nodes, b.Nodes, func(a, b v1alpha1.ReservationNode) bool {
		x, y := ledger.ResourcesOf(a.Amount), ledger.ResourcesOf(b.Amount)
		return a.Name == b.Name && a.Pods == b.Pods && x.Equal(&y)
	}) && ptr.Equal(a.Priority, b.Priority) && slices.EqualFunc(a.Owners, b.Owners, func(a, b v1alpha1.ReservationOwner) bool {
		return a.Namespace == b.Namespace &&
			metav1.FormatLabelSelector(&a.PodSelector) == metav1.FormatLabelSelector(&b.PodSelector)
	})
}

// specifiedAmounts returns the amounts that a reservation names, by node.
func specifiedAmounts(r *v1alpha1.ZoneReservation) amounts {
	out := amounts{}
	if r == nil {
		return out
	}
	for i := range r.Spec.Nodes {
		n := &r.Spec.Nodes[i]
		amount := ledger.ResourcesOf(n.Amount)
		amount.Pods = int64(max(1, n.Pods))
		out[n.Name] = amount
	}
	return out
}

// unusedOf returns what is left of held amounts beside what pods on the nodes ask for.
func unusedOf(held, own amounts) amounts {
	out := amounts{}
	for name, amount := range held {
		used := own[name]
		unused := amount.Minus(&used)
		out[name] = unused.Positive()
	}
	return out
}

// Unused returns what the reservation of a ZoneSurvival is to hold on each node beside what its owners ask for there,
// places for pods among it as the resource "pods". It is what the spec names, of which the scheduler may not have
// collected all yet.
func Unused(objects []client.Object, asked *v1alpha1.ZoneSurvival) map[string]v1.ResourceList {
	r, _ := reservationOf(objects, asked)
	if r == nil {
		return nil
	}
	out := map[string]v1.ResourceList{}
	for name, amount := range unusedOf(specifiedAmounts(r), requestsByNode(objects, ownersOf(objects, r))) {
		if !amount.IsZero() {
			out[name] = amount.List()
		}
	}
	return out
}

// requestsByNode returns what the selected pods ask for that have a node and have not ended.
func requestsByNode(objects []client.Object, selected func(*v1.Pod) bool) amounts {
	out := amounts{}
	for _, obj := range objects {
		if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" && !ended(pod) && selected(pod) {
			request := footprintOf(pod)
			out.add(pod.Spec.NodeName, &request, 1)
		}
	}
	return out
}

// heldUnused is what a reservation holds beside what pods use.
func heldUnused(r *v1alpha1.ZoneReservation) v1.ResourceList {
	held, used := ledger.ResourcesOf(r.Status.Amounts.Held), ledger.ResourcesOf(r.Status.Amounts.Used)
	held = held.Minus(&used)
	held = held.Positive()
	return held.List()
}

// heldByOthers is what other reservations hold unused, by node.
func heldByOthers(objects []client.Object, own *v1alpha1.ZoneReservation) amounts {
	out := amounts{}
	add := func(node string, unused ledger.Resources) {
		unused = unused.Positive()
		out.add(node, &unused, 1)
	}
	for _, r := range otherReservations(objects, own) {
		if len(r.Spec.Nodes) > 0 {
			for name, unused := range unusedOf(heldByNode(r), requestsByNode(objects, ownersOf(objects, r))) {
				add(name, unused)
			}
			continue
		}
		slot := ledger.ResourcesOf(r.Spec.Slot.Requests)
		slot.Pods = 1
		for i := range r.Status.Zones {
			for _, n := range r.Status.Zones[i].Nodes {
				add(n.Name, slot.Times(max(0, n.Slots-n.Used)))
			}
		}
	}
	return out
}

// heldByNode returns what a reservation of amounts holds, by node. Nodes that its status leaves out hold what the spec
// says.
func heldByNode(r *v1alpha1.ZoneReservation) amounts {
	out := amounts{}
	if r.Status.ObservedGeneration == r.Generation {
		out = specifiedAmounts(r)
	}
	for i := range r.Status.Zones {
		for _, n := range r.Status.Zones[i].Nodes {
			out[n.Name] = ledger.ResourcesOf(n.Amounts.Held)
		}
	}
	return out
}

// ownersOf reports which pods belong to a reservation.
func ownersOf(objects []client.Object, r *v1alpha1.ZoneReservation) func(pod *v1.Pod) bool {
	selected, belongs := selection{}, mayUseHeld(objects, r)
	for i := range r.Spec.Owners {
		_ = selected.addSelector(r.Spec.Owners[i].Namespace, &r.Spec.Owners[i].PodSelector) // an invalid one owns nothing
	}
	return func(pod *v1.Pod) bool { return selected.selects(pod) && belongs(pod) }
}

// otherReservations returns the other reservations that have not expired.
func otherReservations(objects []client.Object, own *v1alpha1.ZoneReservation) []*v1alpha1.ZoneReservation {
	var out []*v1alpha1.ZoneReservation
	for _, obj := range objects {
		r, ok := obj.(*v1alpha1.ZoneReservation)
		if ok && r != own && !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionExpired) {
			out = append(out, r)
		}
	}
	return out
}

// mayUseHeld reports which pods may use what the own reservation holds: not those that belong to an older one.
func mayUseHeld(objects []client.Object, own *v1alpha1.ZoneReservation) func(pod *v1.Pod) bool {
	older := selection{}
	for _, r := range otherReservations(objects, own) {
		if own != nil &&
			cmp.Or(own.CreationTimestamp.Compare(r.CreationTimestamp.Time), strings.Compare(own.Name, r.Name)) < 0 {
			continue
		}
		for i := range r.Spec.Owners {
			_ = older.addSelector(r.Spec.Owners[i].Namespace, &r.Spec.Owners[i].PodSelector) // an invalid one owns nothing
		}
	}
	return func(pod *v1.Pod) bool { return !older.selects(pod) }
}
