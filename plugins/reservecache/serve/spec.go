package serve

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/feature"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// maxSlots bounds the slots of one reservation: the object, whose status names nodes, has to fit into etcd.
const maxSlots = 5000

// spec is a ZoneReservation that can be applied. It does not change.
type spec struct {
	name    string
	uid     types.UID
	created time.Time
	owners  []owner
	// slot is the size of one slot, its one pod included.
	slot  ledger.Resources
	nodes *floor.NodeRequirements
	// inclusive means that owners that run count as slots, and required that they run only in slots.
	inclusive, required bool
	perNode             int
	// priority is nil when it is that of pods without a priority class.
	priority *int32
	// deadline is when the reservation expires; zero when it does not.
	deadline time.Time
	// zones are the slots by zone; nil if slots are spread over all zones.
	zones []v1alpha1.ReservationZone
	// slots is the total number.
	slots int
	// unreadable says which selectors cannot be read.
	unreadable field.ErrorList
}

// owner selects pods of a namespace.
type owner struct {
	namespace string
	selector  labels.Selector
}

// claimName is the name of the reservation's claim in messages.
func (s *spec) claimName() string { return "ZoneReservation " + s.name }

// compile reads a reservation. It checks what the CustomResourceDefinition does not, and the size, on which the
// scheduler's memory depends.
func compile(obj *v1alpha1.ZoneReservation) (*spec, field.ErrorList) {
	root := field.NewPath("spec")
	s := &spec{
		name:     obj.Name,
		uid:      obj.UID,
		created:  obj.CreationTimestamp.Time,
		nodes:    floor.NewNodeRequirements(obj.Spec.Slot.NodeSelector, obj.Spec.Slot.Tolerations, feature.TolerationOperators()),
		perNode:  int(ptr.Deref(obj.Spec.SlotsPerNode, 0)),
		priority: obj.Spec.Priority,
		required: obj.Spec.OwnerPolicy == v1alpha1.OwnerRequired,
		zones:    obj.Spec.Zones,
	}
	s.inclusive = s.required || obj.Spec.Mode == v1alpha1.ModeGuarantee
	s.readOwners(obj.Spec.Owners, root.Child("owners"))
	errs := s.readSlots(obj, root)
	if ttl := obj.Spec.TTL; ttl != nil {
		s.deadline = s.created.Add(ttl.Duration)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

// readOwners reads the selectors. One that cannot be read, which the schema cannot refuse, selects no pods: what is
// held stays held.
func (s *spec) readOwners(owners []v1alpha1.ReservationOwner, path *field.Path) {
	for i := range owners {
		o, at := &owners[i], path.Index(i).Child("podSelector")
		selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector)
		invalid := metav1validation.ValidateLabelSelector(&o.PodSelector, metav1validation.LabelSelectorValidationOptions{}, at)
		switch {
		case len(invalid) > 0:
			s.unreadable = append(s.unreadable, invalid...)
			selector = labels.Nothing()
		case err != nil:
			s.unreadable = append(s.unreadable, field.Invalid(at, metav1.FormatLabelSelector(&o.PodSelector), err.Error()))
			selector = labels.Nothing()
		case selector.Empty():
			s.unreadable = append(s.unreadable, field.Required(at, "must not be empty"))
			selector = labels.Nothing()
		}
		s.owners = append(s.owners, owner{namespace: o.Namespace, selector: selector})
	}
}

// readSlots reads a reservation of slots.
func (s *spec) readSlots(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	s.slot = ledger.ResourcesOf(obj.Spec.Slot.Requests)
	s.slot.Pods = 1
	s.slots = int(ptr.Deref(obj.Spec.Slots, 0))
	for i := range s.zones {
		s.slots += int(s.zones[i].Slots)
	}
	errs := checkAmount(obj.Spec.Slot.Requests, root.Child("slot", "requests"))
	if s.slots < 1 || s.slots > maxSlots {
		detail := fmt.Sprintf("a reservation has at least one slot, and at most %d", maxSlots)
		errs = append(errs, field.Invalid(root, s.slots, detail))
	}
	return errs
}

// checkAmount finds what is wrong with an amount.
func checkAmount(list v1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range list {
		switch {
		case quantity.IsZero(): // as if it were not there
		case quantity.Sign() < 0:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must not be below 0"))
		case !ledger.Accounted(name):
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(),
				"is not a resource that nodes offer to pods: extended resources have a domain, as in example.com/gpu"))
		}
	}
	return errs
}

// counted reports whether it matters on which nodes the owners run.
func (s *spec) counted() bool { return s.inclusive || s.perNode > 0 }

// claim is what the floor is to hold, at a priority.
func (s *spec) claim(priority int32) floor.Claim {
	c := floor.Claim{
		UID: s.uid, Name: s.claimName(), Created: s.created, Priority: priority, Slot: s.slot, PerNode: s.perNode,
		Inclusive: s.inclusive, Required: s.required, Nodes: s.nodes, Slots: s.slots,
	}
	if len(s.zones) > 0 {
		c.Zones = make(map[string]int, len(s.zones))
		for _, z := range s.zones {
			c.Zones[z.Name] = int(z.Slots)
		}
	}
	return c
}

// compareAge orders reservations. A pod that several select belongs to the first one: the oldest, then that with the
// smallest name.
func compareAge(a, b *spec) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
}

// expired reports whether the reservation is over at that time.
func (s *spec) expired(now time.Time) bool { return !s.deadline.IsZero() && !s.deadline.After(now) }
