package world

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// systemCritical is the priority from which on pods ignore holds: that of system-cluster-critical.
const systemCritical = 2_000_000_000

// Hold is a ZoneReservation and the unused slots that its status shows.
type Hold struct {
	Object *v1alpha1.ZoneReservation
	claim  *holds.Claim
	owners []owner
	// Lost is how many unused slots were on nodes that are lost.
	Lost int
}

type owner struct {
	namespace string
	selector  labels.Selector
}

// slot is the unused slots of one reservation on one node.
type slot struct {
	hold  *Hold
	count int
}

// buildHolds puts unused slots where the status of the reservations has them.
func (w *World) buildHolds() {
	for i := range w.Snapshot.Reservations {
		object := &w.Snapshot.Reservations[i]
		if object.DeletionTimestamp != nil || meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionExpired) ||
			meta.IsStatusConditionFalse(object.Status.Conditions, v1alpha1.ConditionAccepted) {
			continue
		}
		h := &Hold{Object: object, claim: &holds.Claim{
			UID: object.UID, Name: "ZoneReservation " + object.Name,
			Priority: ptr.Deref(object.Spec.Priority, 0), Since: object.CreationTimestamp.Time, Slot: ledger.ResourcesOf(object.Spec.Slot.Requests),
		}}
		h.claim.Slot.Pods = 1
		switch {
		case object.Spec.OwnerPolicy == v1alpha1.OwnerRequired:
			h.claim.Use = holds.UseOnly
		case object.Spec.Mode == v1alpha1.ModeGuarantee:
			h.claim.Use = holds.UseFirst
		}
		for j := range object.Spec.Owners {
			o := &object.Spec.Owners[j]
			if selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector); err == nil {
				h.owners = append(h.owners, owner{o.Namespace, selector})
				w.mention(&o.PodSelector)
			}
		}
		w.holds = append(w.holds, h)
		for _, zone := range object.Status.Zones {
			for _, on := range zone.Nodes {
				if n := w.byName[on.Name]; n != nil && on.Slots > on.Used {
					n.holds = append(n.holds, &slot{hold: h, count: int(on.Slots - on.Used)})
				}
			}
		}
	}
	// The oldest first: a pod that several name belongs to it.
	slices.SortFunc(w.holds, func(a, b *Hold) int {
		return cmp.Or(a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time), cmp.Compare(a.Object.Name, b.Object.Name))
	})
}

// Holds returns the reservations that hold something, the oldest first.
func (w *World) Holds() []*Hold { return w.holds }

// Owner returns the reservation that a pod belongs to, nil when there is none.
func (w *World) Owner(pod *corev1.Pod) *Hold {
	for _, h := range w.holds {
		for _, o := range h.owners {
			if o.namespace == pod.Namespace && o.selector.Matches(labels.Set(pod.Labels)) {
				return h
			}
		}
	}
	return nil
}

// Unused returns how many unused slots a reservation has on nodes that are not lost, by zone.
func (w *World) Unused(h *Hold) map[string]int {
	out := map[string]int{}
	for _, n := range w.Nodes {
		for _, s := range n.holds {
			if s.hold == h && !n.Lost {
				out[n.Zone] += s.count
			}
		}
	}
	return out
}

// UnusedSlots is Unused of all reservations, for the cost of one.
func (w *World) UnusedSlots() map[*Hold]map[string]int {
	out := map[*Hold]map[string]int{}
	for _, n := range w.Nodes {
		if n.Lost {
			continue
		}
		for _, s := range n.holds {
			if out[s.hold] == nil {
				out[s.hold] = map[string]int{}
			}
			out[s.hold][n.Zone] += s.count
		}
	}
	return out
}

// loseHolds drops the slots on lost nodes.
func (w *World) loseHolds() {
	for _, n := range w.Nodes {
		if !n.Lost {
			continue
		}
		for _, s := range n.holds {
			s.hold.Lost += s.count
		}
		n.holds = nil
	}
}

// ShiftHolds places the slots that were lost on other nodes, as far as there is room, for the reservations
// that ask for it. It returns how many slots of each have a place again.
func (w *World) ShiftHolds() map[*Hold]int {
	out := map[*Hold]int{}
	for _, h := range w.holds {
		if h.Lost == 0 || h.Object.Spec.OnZoneLoss == v1alpha1.ZoneLossKeep {
			continue
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: h.Object.Name},
			Spec: corev1.PodSpec{
				NodeSelector: h.Object.Spec.Slot.NodeSelector, Tolerations: h.Object.Spec.Slot.Tolerations, Priority: ptr.To(h.claim.Priority),
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: h.Object.Spec.Slot.Requests}}},
			},
		}
		c := w.newClass(pod)
		c.asker.Priority = min(h.claim.Priority, systemCritical-1)
		c.asker.IgnoreHolds = false
		for ; h.Lost > 0; h.Lost-- {
			n, _ := w.choose(c)
			if n == nil {
				break
			}
			w.hold(n, h, 1)
			out[h]++
		}
	}
	return out
}

// hold changes the number of unused slots of a reservation on a node.
func (w *World) hold(n *Node, h *Hold, delta int) {
	for i, s := range n.holds {
		if s.hold != h {
			continue
		}
		if s.count += delta; s.count == 0 {
			n.holds = slices.Delete(n.holds, i, i+1)
		}
		return
	}
	n.holds = append(n.holds, &slot{hold: h, count: delta})
}

// askerOf says how a pod stands to the holds.
func (w *World) askerOf(pod *corev1.Pod) (holds.Asker, *Hold) {
	asker := holds.Asker{Priority: ptr.Deref(pod.Spec.Priority, 0)}
	over := controllerOf(pod)
	asker.IgnoreHolds = asker.Priority >= systemCritical || over != nil && over.Kind == "DaemonSet"
	h := w.Owner(pod)
	if h != nil {
		asker.Claim, asker.Use = h.claim.UID, h.claim.Use
	}
	return asker, h
}

// nodeHolds returns the holds of a node in the form in which they are judged.
func (n *Node) nodeHolds() *holds.NodeHolds {
	if len(n.holds) == 0 {
		return nil
	}
	all := holds.New()
	for _, s := range n.holds {
		all.SetClaim(*s.hold.claim)
		all.Change(s.hold.claim.UID, []holds.Change{{Node: n.Object.Name, Zone: n.Zone, Add: s.count}})
	}
	return all.Node(n.Object.Name)
}
