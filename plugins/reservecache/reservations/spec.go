package reservations

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// spec is a ZoneReservation that can be applied. It does not change.
type spec struct {
	name    string
	id      ledger.ClaimID
	created time.Time
	owners  []owner
	// requests is the size of one slot, its one pod included.
	requests ledger.Resources
	fit      *placement.Fit
	mode     ledger.Mode
	use      ledger.Use
	priority int32
	// deadline is when the reservation expires; zero when it does not.
	deadline time.Time
	// zones are the slots by zone; nil when slots are to be spread over all zones.
	zones []v1alpha1.ReservationZone
	// slots is how many there are to be in all.
	slots int
	shift bool
}

// owner selects pods of a namespace.
type owner struct {
	namespace string
	selector  labels.Selector
	// requirements are those of selector, for finding overlaps.
	requirements labels.Requirements
}

// claimName is the name of a reservation's claim in messages.
func claimName(name string) string { return "ZoneReservation " + name }

// claimID identifies the claim of a reservation.
func claimID(obj *v1alpha1.ZoneReservation) ledger.ClaimID {
	return ledger.ClaimID{Kind: ledger.Reservation, UID: obj.UID}
}

// compile reads a reservation. The CustomResourceDefinition refuses nearly all that is refused here, but one that was
// installed by hand, or is older, may not.
//
// comparisonOperators tells whether tolerations may compare numbers.
func compile(obj *v1alpha1.ZoneReservation, comparisonOperators bool) (*spec, field.ErrorList) {
	root := field.NewPath("spec")
	s := &spec{
		name:    obj.Name,
		id:      claimID(obj),
		created: obj.CreationTimestamp.Time,
		fit:     placement.NewFit(obj.Spec.Slot.NodeSelector, obj.Spec.Slot.Tolerations, comparisonOperators),
		shift:   obj.Spec.OnZoneLoss != v1alpha1.ZoneLossKeep,
	}
	var errs field.ErrorList
	errs = append(errs, s.readOwners(obj.Spec.Owners, root.Child("owners"))...)
	errs = append(errs, s.readSlot(&obj.Spec.Slot, root.Child("slot"))...)
	errs = append(errs, s.readModes(obj, root)...)
	errs = append(errs, s.readZones(obj, root)...)
	if obj.Spec.Priority != nil {
		s.priority = *obj.Spec.Priority
	}
	if ttl := obj.Spec.TTL; ttl != nil {
		if ttl.Duration <= 0 {
			errs = append(errs, field.Invalid(root.Child("ttl"), ttl.Duration.String(), "must be above 0"))
		}
		s.deadline = s.created.Add(ttl.Duration)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

func (s *spec) readOwners(owners []v1alpha1.ReservationOwner, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(owners) == 0 {
		errs = append(errs, field.Required(path, "name at least one owner"))
	}
	for i := range owners {
		o, at := &owners[i], path.Index(i)
		if o.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
		if len(o.PodSelector.MatchLabels)+len(o.PodSelector.MatchExpressions) == 0 {
			errs = append(errs, field.Required(at.Child("podSelector"), "must not be empty"))
			continue
		}
		if invalid := metav1validation.ValidateLabelSelector(&o.PodSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("podSelector")); len(invalid) > 0 {
			errs = append(errs, invalid...)
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector)
		if err != nil {
			errs = append(errs, field.Invalid(at.Child("podSelector"), metav1.FormatLabelSelector(&o.PodSelector), err.Error()))
			continue
		}
		requirements, _ := selector.Requirements()
		s.owners = append(s.owners, owner{namespace: o.Namespace, selector: selector, requirements: requirements})
	}
	return errs
}

func (s *spec) readSlot(slot *v1alpha1.ReservationSlot, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	requests := path.Child("requests")
	if len(slot.Requests) == 0 {
		errs = append(errs, field.Required(requests, "name at least one resource"))
	}
	for name, quantity := range slot.Requests {
		switch {
		case name == v1.ResourcePods:
			errs = append(errs, field.Forbidden(requests.Key(string(name)), "a slot is a place for one pod"))
		case quantity.Sign() <= 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), quantity.String(), "must be above 0"))
		case !ledger.Accounted(name):
			errs = append(errs, field.Invalid(requests.Key(string(name)), quantity.String(), "is not a resource that nodes offer to pods: extended resources have a domain, as in example.com/gpu"))
		}
	}
	s.requests = ledger.ResourcesOf(slot.Requests)
	s.requests.Pods = 1
	return errs
}

func (s *spec) readModes(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch mode := cmp.Or(obj.Spec.Mode, v1alpha1.ModeHeadroom); mode {
	case v1alpha1.ModeHeadroom:
		s.mode, s.use = ledger.Headroom, ledger.UseLast
	case v1alpha1.ModeGuarantee:
		s.mode, s.use = ledger.Guarantee, ledger.UseFirst
	default:
		errs = append(errs, field.NotSupported(root.Child("mode"), mode, []v1alpha1.ReservationMode{v1alpha1.ModeHeadroom, v1alpha1.ModeGuarantee}))
	}
	switch policy := cmp.Or(obj.Spec.OwnerPolicy, v1alpha1.OwnerPreferred); policy {
	case v1alpha1.OwnerPreferred:
	case v1alpha1.OwnerRequired:
		// The slots are all that the owners have: one that is used is not replaced by another.
		s.mode, s.use = ledger.Guarantee, ledger.UseOnly
	default:
		errs = append(errs, field.NotSupported(root.Child("ownerPolicy"), policy, []v1alpha1.ReservationOwnerPolicy{v1alpha1.OwnerPreferred, v1alpha1.OwnerRequired}))
	}
	return errs
}

func (s *spec) readZones(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	zones := obj.Spec.Zones
	if (len(zones) > 0) == (obj.Spec.Slots != nil) {
		errs = append(errs, field.Forbidden(root, "exactly one of zones and slots must be set"))
	}
	seen := map[string]bool{}
	for i := range zones {
		z, at := &zones[i], root.Child("zones").Index(i)
		if z.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if seen[z.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), z.Name))
		}
		seen[z.Name] = true
		if z.Slots < 1 {
			errs = append(errs, field.Invalid(at.Child("slots"), z.Slots, "must be at least 1"))
		}
		s.slots += int(z.Slots)
	}
	s.zones = zones
	if obj.Spec.Slots != nil {
		if s.slots = int(*obj.Spec.Slots); s.slots < 1 {
			errs = append(errs, field.Invalid(root.Child("slots"), s.slots, "must be at least 1"))
		}
	}
	return errs
}

// before tells whether a pod that both reservations name belongs to s: the older one wins, and then the name.
func (s *spec) before(other *spec) bool {
	if d := s.created.Compare(other.created); d != 0 {
		return d < 0
	}
	return s.name < other.name
}

// expired tells whether the reservation is over at that time.
func (s *spec) expired(now time.Time) bool { return !s.deadline.IsZero() && !s.deadline.After(now) }

// oneLine joins errors for a condition.
func oneLine(errs field.ErrorList) string {
	const shown = 3
	line := ""
	for i, err := range errs {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", line, len(errs)-shown)
		}
		if i > 0 {
			line += "; "
		}
		line += err.Error()
	}
	return line
}
