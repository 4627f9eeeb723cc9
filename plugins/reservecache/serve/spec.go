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

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/feature"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// maxSlots bounds the slots of one reservation: its status names all nodes and consumers, and has to fit into etcd.
const maxSlots = 5000

// spec is a ZoneReservation that can be applied. It does not change.
type spec struct {
	name    string
	uid     types.UID
	created time.Time
	owners  []owner
	// slot is the size of one slot, its one pod included.
	slot    ledger.Resources
	fit     *placement.Fit
	use     holds.Use
	perNode int
	// priority is nil when it is that of pods without a priority class.
	priority *int32
	// deadline is when the reservation expires; zero when it does not.
	deadline time.Time
	// zones are the slots by zone; nil if slots are spread over all zones.
	zones []v1alpha1.ReservationZone
	// slots is the total number.
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

// claimName is the name of the reservation's claim in messages.
func (s *spec) claimName() string { return "ZoneReservation " + s.name }

// compile reads a reservation. The CustomResourceDefinition refuses nearly all that is refused here, but one that was
// installed by hand, or is older, may not.
func compile(obj *v1alpha1.ZoneReservation) (*spec, field.ErrorList) {
	root := field.NewPath("spec")
	s := &spec{
		name:     obj.Name,
		uid:      obj.UID,
		created:  obj.CreationTimestamp.Time,
		fit:      placement.NewFit(obj.Spec.Slot.NodeSelector, obj.Spec.Slot.Tolerations, feature.TolerationOperators()),
		priority: obj.Spec.Priority,
		shift:    obj.Spec.OnZoneLoss != v1alpha1.ZoneLossKeep,
	}
	var errs field.ErrorList
	errs = append(errs, s.readOwners(obj.Spec.Owners, root.Child("owners"))...)
	errs = append(errs, s.readSlot(&obj.Spec.Slot, root.Child("slot"))...)
	errs = append(errs, s.readModes(obj, root)...)
	errs = append(errs, s.readZones(obj, root)...)
	if n := obj.Spec.SlotsPerNode; n != nil {
		if s.perNode = int(*n); s.perNode < 1 {
			errs = append(errs, field.Invalid(root.Child("slotsPerNode"), s.perNode, "must be at least 1"))
		}
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
		case quantity.IsZero(): // as if it were not there
		case quantity.Sign() < 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), quantity.String(), "must not be below 0"))
		case !ledger.Accounted(name):
			errs = append(errs, field.Invalid(requests.Key(string(name)), quantity.String(), "is not a resource that nodes offer to pods: extended resources have a domain, as in example.com/gpu"))
		}
	}
	s.slot = ledger.ResourcesOf(slot.Requests)
	s.slot.Pods = 1
	return errs
}

func (s *spec) readModes(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch mode := cmp.Or(obj.Spec.Mode, v1alpha1.ModeHeadroom); mode {
	case v1alpha1.ModeHeadroom:
		s.use = holds.UseLast
	case v1alpha1.ModeGuarantee:
		s.use = holds.UseFirst
	default:
		errs = append(errs, field.NotSupported(root.Child("mode"), mode, []v1alpha1.ReservationMode{v1alpha1.ModeHeadroom, v1alpha1.ModeGuarantee}))
	}
	switch policy := cmp.Or(obj.Spec.OwnerPolicy, v1alpha1.OwnerPreferred); policy {
	case v1alpha1.OwnerPreferred:
	case v1alpha1.OwnerRequired:
		// The slots are all that the owners have: one that is used is not replaced by another.
		s.use = holds.UseOnly
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
	if s.slots > maxSlots {
		errs = append(errs, field.Invalid(root, s.slots, fmt.Sprintf("a reservation has at most %d slots in all", maxSlots)))
	}
	return errs
}

// demand is what the planner is to place. fallback is the priority of pods without a priority class.
func (s *spec) demand(fallback int32) placement.Demand {
	d := placement.Demand{
		Claim: holds.Claim{
			UID: s.uid, Name: s.claimName(), Priority: fallback, Use: s.use, Since: s.created, Slot: s.slot,
		},
		PerNode: s.perNode,
		Fit:     s.fit,
	}
	if s.priority != nil {
		d.Claim.Priority = *s.priority
	}
	if !s.shift {
		d.OnZoneLoss = placement.Keep
	}
	for _, z := range s.zones {
		d.Zones = append(d.Zones, placement.Zone{Name: z.Name, Slots: int(z.Slots)})
	}
	if len(d.Zones) == 0 {
		d.Slots = s.slots
	}
	return d
}

// before reports whether a pod that both reservations select belongs to s: the older one wins, then the smaller name.
func (s *spec) before(other *spec) bool {
	if d := s.created.Compare(other.created); d != 0 {
		return d < 0
	}
	return s.name < other.name
}

// expired reports whether the reservation is over at that time.
func (s *spec) expired(now time.Time) bool { return !s.deadline.IsZero() && !s.deadline.After(now) }
