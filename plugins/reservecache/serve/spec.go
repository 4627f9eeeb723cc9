package serve

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
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

// maxSlots bounds the slots of one reservation, and maxNodes the nodes with amounts: the object, whose status names nodes,
// has to fit into etcd.
const (
	maxSlots = 5000
	maxNodes = 5000
)

// spec is a ZoneReservation that can be applied. It does not change.
type spec struct {
	name    string
	uid     types.UID
	created time.Time
	owners  []owner
	// named are the owners as the object has them.
	named []v1alpha1.ReservationOwner
	// slot is the size of one slot, its one pod included; empty for a reservation of amounts.
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
	// nodes are the amounts by node, places for pods included; nil for a reservation of slots.
	nodes map[string]ledger.Resources
	// slots is the total number, or that of places for pods.
	slots int
	shift bool
}

// owner selects pods of a namespace.
type owner struct {
	namespace string
	selector  labels.Selector
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
		named:    obj.Spec.Owners,
	}
	var errs field.ErrorList
	errs = append(errs, s.readOwners(obj.Spec.Owners, root.Child("owners"))...)
	if obj.Spec.Nodes != nil {
		errs = append(errs, s.readNodes(obj, root)...)
	} else {
		errs = append(errs, s.readSlot(&obj.Spec.Slot, root.Child("slot"))...)
	}
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
		s.owners = append(s.owners, owner{namespace: o.Namespace, selector: selector})
	}
	return errs
}

func (s *spec) readSlot(slot *v1alpha1.ReservationSlot, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	requests := path.Child("requests")
	if len(slot.Requests) == 0 {
		errs = append(errs, field.Required(requests, "name at least one resource"))
	}
	errs = append(errs, checkAmount(slot.Requests, requests, "a slot is a place for one pod")...)
	s.slot = ledger.ResourcesOf(slot.Requests)
	s.slot.Pods = 1
	return errs
}

// checkAmount finds what is wrong with an amount. places says why it must not name pods.
func checkAmount(list v1.ResourceList, path *field.Path, places string) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range list {
		switch {
		case name == v1.ResourcePods:
			errs = append(errs, field.Forbidden(path.Key(string(name)), places))
		case quantity.IsZero(): // as if it were not there
		case quantity.Sign() < 0:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must not be below 0"))
		case !ledger.Accounted(name):
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "is not a resource that nodes offer to pods: extended resources have a domain, as in example.com/gpu"))
		}
	}
	return errs
}

// everyNode fits all nodes that are ready: a reservation of amounts names those that it means.
var everyNode = placement.NewFit(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false)

// readNodes reads a reservation of amounts.
func (s *spec) readNodes(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(root.Child(name), "must not be set with nodes"))
		}
	}
	forbid("slot", len(obj.Spec.Slot.Requests)+len(obj.Spec.Slot.NodeSelector)+len(obj.Spec.Slot.Tolerations) > 0)
	forbid("slotsPerNode", obj.Spec.SlotsPerNode != nil)
	forbid("onZoneLoss", obj.Spec.OnZoneLoss == v1alpha1.ZoneLossKeep)
	forbid("mode", obj.Spec.Mode == v1alpha1.ModeGuarantee)
	forbid("ownerPolicy", obj.Spec.OwnerPolicy == v1alpha1.OwnerRequired)
	nodes := root.Child("nodes")
	if n := len(obj.Spec.Nodes); n > maxNodes {
		return append(errs, field.TooMany(nodes, n, maxNodes))
	}
	s.fit, s.nodes = everyNode, make(map[string]ledger.Resources, len(obj.Spec.Nodes))
	for i := range obj.Spec.Nodes {
		n, at := &obj.Spec.Nodes[i], nodes.Index(i)
		if n.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if _, twice := s.nodes[n.Name]; twice {
			errs = append(errs, field.Duplicate(at.Child("name"), n.Name))
		}
		if len(n.Amount) == 0 {
			errs = append(errs, field.Required(at.Child("amount"), "name at least one resource"))
		}
		errs = append(errs, checkAmount(n.Amount, at.Child("amount"), "places for pods are in "+at.Child("pods").String())...)
		if n.Pods < 0 {
			errs = append(errs, field.Invalid(at.Child("pods"), n.Pods, "must be at least 1"))
		}
		amount := ledger.ResourcesOf(n.Amount)
		amount.Pods = int64(max(1, n.Pods))
		s.nodes[n.Name] = amount
		s.slots += int(amount.Pods)
	}
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
	forms := 0
	for _, set := range []bool{len(zones) > 0, obj.Spec.Slots != nil, len(obj.Spec.Nodes) > 0} {
		if set {
			forms++
		}
	}
	if forms != 1 {
		errs = append(errs, field.Forbidden(root, "exactly one of zones, slots and nodes must be set"))
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
	if s.slots > maxSlots && s.nodes == nil {
		errs = append(errs, field.Invalid(root, s.slots, fmt.Sprintf("a reservation has at most %d slots in all", maxSlots)))
	}
	return errs
}

// target is what the planner is to place. fallback is the priority of pods without a priority class.
func (s *spec) target(fallback int32) placement.Target {
	d := placement.Target{
		Claim: holds.Claim{
			UID: s.uid, Name: s.claimName(), Priority: fallback, Use: s.use, Since: s.created, Slot: s.slot, Amounts: s.nodes != nil,
		},
		Nodes:   s.nodes,
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
	if len(d.Zones) == 0 && s.nodes == nil {
		d.Slots = s.slots
	}
	return d
}

// sameTerms reports whether the same pods may use what is held as with an older version, at the same priority.
func (s *spec) sameTerms(old *spec) bool {
	return old != nil && s.use == old.use && apiequality.Semantic.DeepEqual(s.named, old.named)
}

// compareAge orders reservations. A pod that several select belongs to the first one: the oldest, then that with the smallest name.
func compareAge(a, b *spec) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
}

// expired reports whether the reservation is over at that time.
func (s *spec) expired(now time.Time) bool { return !s.deadline.IsZero() && !s.deadline.After(now) }
