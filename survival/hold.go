package survival

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	// maxMissing and maxListed bound the lists of a status.
	maxMissing = 100
	maxListed  = 1000
	// maxReservationName is how long the API server lets the name of a reservation be.
	maxReservationName = 253
)

// HoldOptions say for which cluster room is held.
type HoldOptions struct {
	// Now is when the cluster was read.
	Now metav1.Time
	// Missing says in a line each what of the cluster could not be read. If it is not empty, all stays as it is.
	Missing []string
	// Zones are, by the name of a reservation, those of its zones that count although no node there lets its pods run
	// now: the nodes of a failed zone were deleted, and come back in any order.
	Zones map[string][]string
}

// Room is the reservations of a ZoneSurvival.
type Room struct {
	// Unwanted are reservations of the ZoneSurvival that should not be there any more, and Changed those that should be
	// there and are not, or are not as they should be.
	Unwanted, Changed []*v1alpha1.ZoneReservation
	// Zones are, by the name of a reservation, those in which a node lets its pods run now.
	Zones map[string][]string
}

// Hold finds out which reservations a ZoneSurvival with spec.hold should have: one for each protected workload, of
// slots as large as its pods. In each zone there are as many slots as pods of the workload may be there after any one
// loss, those that run there now among them (mode Guarantee): what is unused of them is the room that a loss needs. So
// the slots stay the same while pods move, and those of a zone that is lost are there again as soon as it is back.
//
// Hold puts what there is to be said of the room into the status. The objects are not modified.
func Hold(
	objects []client.Object, asked *v1alpha1.ZoneSurvival, options HoldOptions, status *v1alpha1.ZoneSurvivalStatus,
) Room {
	status.Reservations, status.Held, status.Missing = nil, nil, nil
	own, foreign := reservationsOf(objects, asked)
	if !asked.Spec.Hold {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionHeld)
		return Room{Unwanted: slices.SortedFunc(maps.Values(own), compareReservations)}
	}
	h := &holding{asked: asked, own: own, foreign: foreign, room: Room{Zones: map[string][]string{}}}
	protects, invalid := Protected(asked)
	var condition metav1.Condition
	switch {
	case invalid != nil:
		condition = unknownCondition(v1alpha1.ReasonInvalid, invalid.Error())
	case len(options.Missing) > 0:
		condition = unknownCondition(v1alpha1.ReasonSnapshotIncomplete, strings.Join(options.Missing, "; "))
	default:
		h.planReservations(newSlotPlanner(objects, asked, protects, own, options.Zones))
		condition = h.condition()
	}
	h.describe(status)
	condition.Type, condition.ObservedGeneration = v1alpha1.ConditionHeld, asked.Generation
	condition.Message, condition.LastTransitionTime = crd.Shortened(condition.Message), options.Now
	meta.SetStatusCondition(&status.Conditions, condition)
	return h.room
}

// holding is what is found out about the reservations of one ZoneSurvival.
type holding struct {
	asked *v1alpha1.ZoneSurvival
	// own are the reservations that there are, by name, and foreign the names that belong to something else.
	own     map[string]*v1alpha1.ZoneReservation
	foreign map[string]bool
	room    Room
	// kept are those of own that should be there, as they are or with a change.
	kept []*v1alpha1.ZoneReservation
	// taken are names of wanted reservations that belong to something else.
	taken []string
	// wanted is how many reservations there should be.
	wanted int
	// nodes are those of the cluster, by name.
	nodes map[string]*v1.Node
	// capped: spec.maxHeldFraction, or how many slots a reservation may have, keeps slots from being asked for.
	capped bool
	// bound are pods that no other zone may have, in words.
	bound []string
}

// planReservations finds out which reservations should be there.
func (h *holding) planReservations(p *slotPlanner) {
	unwanted := maps.Clone(h.own)
	for _, w := range p.workloads {
		if text := w.boundText(); text != "" {
			h.bound = append(h.bound, text)
		}
		h.room.Zones[reservationName(h.asked.Name, w.controllerKey)] = w.present
		r := h.newReservation(w)
		if r == nil {
			continue
		}
		h.wanted++
		if h.foreign[r.Name] {
			h.taken = append(h.taken, r.Name)
			continue
		}
		present := h.own[r.Name]
		delete(unwanted, r.Name)
		if present == nil {
			h.room.Changed = append(h.room.Changed, r)
			continue
		}
		h.kept = append(h.kept, present)
		if !sameSpec(&present.Spec, &r.Spec) {
			r.UID = present.UID
			h.room.Changed = append(h.room.Changed, r)
		}
	}
	h.capped, h.nodes = p.capped, p.nodes
	h.room.Unwanted = slices.SortedFunc(maps.Values(unwanted), compareReservations)
}

// newReservation returns the reservation of a workload, nil for none.
func (h *holding) newReservation(w *heldWorkload) *v1alpha1.ZoneReservation {
	out := &v1alpha1.ZoneReservation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneReservation"},
		ObjectMeta: metav1.ObjectMeta{
			Name: reservationName(h.asked.Name, w.controllerKey), OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneSurvival", Name: h.asked.Name, UID: h.asked.UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: w.owners, Slot: w.slot, SlotsPerNode: w.slotsPerNode, Mode: v1alpha1.ModeGuarantee,
			OwnerPolicy: v1alpha1.OwnerPreferred, Priority: h.asked.Spec.Priority,
		},
	}
	for _, zone := range slices.Sorted(maps.Keys(w.slots)) {
		if n := w.slots[zone]; n > 0 {
			out.Spec.Zones = append(out.Spec.Zones, v1alpha1.ReservationZone{Name: zone, Slots: int32(n)}) //nolint:gosec // at most maxSlots
		}
	}
	if len(out.Spec.Zones) == 0 {
		return nil
	}
	return out
}

// condition says whether the room is held, and why not.
func (h *holding) condition() metav1.Condition {
	not := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	pods := int64(0)
	for _, r := range h.kept {
		pods += max(0, r.Status.Slots.Desired-r.Status.Slots.Held)
	}
	switch {
	case len(h.taken) > 0:
		return not(v1alpha1.ReasonReservationNotOwned,
			"ZoneReservation %s is not of this ZoneSurvival and is left alone; nothing is held for its pods", h.taken[0])
	case h.capped:
		return not(v1alpha1.ReasonHeldFractionReached, "spec.maxHeldFraction, or the most slots of a ZoneReservation, "+
			"keep room from being held for some of the pods that a loss displaces")
	case h.wanted == 0:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRoomHeld,
			Message: "no loss displaces a pod that could run in another zone" + h.boundText(),
		}
	case len(h.room.Changed) > 0:
		return not(v1alpha1.ReasonFilling,
			"ZoneReservation %s has changed, and the scheduler has not said yet what it holds", h.room.Changed[0].Name)
	}
	for _, r := range h.kept {
		if r.Status.ObservedGeneration != r.Generation {
			return not(v1alpha1.ReasonFilling,
				"ZoneReservation %s has changed, and the scheduler has not said yet what it holds", r.Name)
		}
		if node := h.missingNode(r); node != "" {
			return not(v1alpha1.ReasonFilling,
				"node %s is gone, and the scheduler has not said yet what ZoneReservation %s holds without it", node, r.Name)
		}
	}
	if pods > 0 {
		return not(v1alpha1.ReasonRoomMissing,
			"room is missing for %d pods, see status.missing; it is collected as other pods leave", pods)
	}
	for _, r := range h.kept {
		if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady); c != nil &&
			c.Status != metav1.ConditionTrue {
			return not(c.Reason, "ZoneReservation %s: %s", r.Name, c.Message)
		}
	}
	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRoomHeld,
		Message: fmt.Sprintf("%s hold what any one loss needs", plural(h.wanted, "ZoneReservation")) + h.boundText(),
	}
}

// missingNode returns a node on which a reservation is said to have slots and which is gone; empty if there is none.
func (h *holding) missingNode(r *v1alpha1.ZoneReservation) string {
	for i := range r.Status.Zones {
		for _, node := range r.Status.Zones[i].Nodes {
			if node.Slots > 0 && h.nodes[node.Name] == nil {
				return node.Name
			}
		}
	}
	return ""
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// boundText says for which pods nothing is held.
func (h *holding) boundText() string {
	if len(h.bound) == 0 {
		return ""
	}
	return "; nothing is held for " + strings.Join(h.bound, ", ")
}

// describe puts into a status what the reservations that there are hold.
func (h *holding) describe(status *v1alpha1.ZoneSurvivalStatus) {
	var held ledger.Resources
	missing := map[string]*v1alpha1.SurvivalMissing{}
	for _, r := range slices.SortedFunc(maps.Values(h.own), compareReservations) {
		slots := r.Status.Slots
		if len(status.Reservations) < maxListed {
			status.Reservations = append(status.Reservations, v1alpha1.SurvivalReservation{Name: r.Name, SlotCounts: slots})
		}
		slot := slotSize(r)
		unused := slot.Times(max(0, slots.Held-slots.Used))
		held.Add(&unused, 1)
		for i := range r.Status.Zones {
			z := &r.Status.Zones[i]
			if z.Desired <= z.Held {
				continue
			}
			key := z.Name + "\n" + requestsText(r.Spec.Slot.Requests)
			if missing[key] == nil {
				missing[key] = &v1alpha1.SurvivalMissing{Zone: z.Name, Requests: r.Spec.Slot.Requests.DeepCopy()}
			}
			missing[key].Pods += z.Desired - z.Held
		}
	}
	status.Held = held.List()
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		if len(status.Missing) < maxMissing {
			status.Missing = append(status.Missing, *missing[key])
		}
	}
}

// slotSize is what one slot of a reservation takes of a node.
func slotSize(r *v1alpha1.ZoneReservation) ledger.Resources {
	slot := ledger.ResourcesOf(r.Spec.Slot.Requests)
	slot.Pods = 1
	return slot
}

// reservationName is the name of the reservation of a workload that a ZoneSurvival protects.
func reservationName(survival string, workload controllerKey) string {
	h := fnv.New64a()
	writeWords(h, survival, workload.namespace, workload.kind, workload.name)
	name := survival + "-" + workload.name
	const sum = 17 // the digest, and the dash before it
	name = strings.TrimRight(name[:min(len(name), maxReservationName-sum)], "-.")
	return fmt.Sprintf("%s-%016x", name, h.Sum64())
}

// reservationsOf returns the reservations of a ZoneSurvival by name, and the names of all others.
func reservationsOf(
	objects []client.Object, asked *v1alpha1.ZoneSurvival,
) (own map[string]*v1alpha1.ZoneReservation, foreign map[string]bool) {
	own, foreign = map[string]*v1alpha1.ZoneReservation{}, map[string]bool{}
	for _, obj := range objects {
		if r, ok := obj.(*v1alpha1.ZoneReservation); ok {
			if metav1.IsControlledBy(r, asked) {
				own[r.Name] = r
			} else {
				foreign[r.Name] = true
			}
		}
	}
	return own, foreign
}

func compareReservations(a, b *v1alpha1.ZoneReservation) int { return cmp.Compare(a.Name, b.Name) }

// sameSpec compares what the controller sets.
func sameSpec(a, b *v1alpha1.ZoneReservationSpec) bool {
	return equality.Semantic.DeepEqual(a.Owners, b.Owners) && equality.Semantic.DeepEqual(a.Slot, b.Slot) &&
		equality.Semantic.DeepEqual(a.Zones, b.Zones) && ptr.Equal(a.SlotsPerNode, b.SlotsPerNode) &&
		a.Mode == b.Mode && a.OwnerPolicy == b.OwnerPolicy && ptr.Equal(a.Priority, b.Priority)
}

// requestsText puts requests into words.
func requestsText(list v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		out = append(out, string(name)+"="+quantity.String())
	}
	return strings.Join(out, ",")
}
