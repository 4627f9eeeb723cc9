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
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/feature"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// maxSlots bounds the slots of one reservation, and maxNodes the nodes with amounts: the object, whose status names
// nodes, has to fit into etcd.
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
	slot         ledger.Resources
	requirements *placement.NodeRequirements
	use          holds.Use
	perNode      int
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

// compile reads a reservation. It checks what the CustomResourceDefinition does not, and the size, on which the
// scheduler's memory depends.
func compile(obj *v1alpha1.ZoneReservation) (*spec, field.ErrorList) {
	root := field.NewPath("spec")
	s := &spec{
		name:         obj.Name,
		uid:          obj.UID,
		created:      obj.CreationTimestamp.Time,
		requirements: floor.NewNodeRequirements(obj.Spec.Slot.NodeSelector, obj.Spec.Slot.Tolerations, feature.TolerationOperators()),
		perNode:      int(ptr.Deref(obj.Spec.SlotsPerNode, 0)),
		priority:     obj.Spec.Priority,
		shift:        obj.Spec.OnZoneLoss != v1alpha1.ZoneLossKeep,
		named:        obj.Spec.Owners,
		zones:        obj.Spec.Zones,
	}
	errs := s.readOwners(obj.Spec.Owners, root.Child("owners"))
	if obj.Spec.Nodes != nil {
		errs = append(errs, s.readNodes(obj.Spec.Nodes, root.Child("nodes"))...)
	} else {
		errs = append(errs, s.readSlots(obj, root)...)
	}
	if ttl := obj.Spec.TTL; ttl != nil {
		s.deadline = s.created.Add(ttl.Duration)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

func (s *spec) readOwners(owners []v1alpha1.ReservationOwner, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range owners {
		o, at := &owners[i], path.Index(i).Child("podSelector")
		invalid := metav1validation.ValidateLabelSelector(&o.PodSelector, metav1validation.LabelSelectorValidationOptions{}, at)
		if len(invalid) > 0 {
			errs = append(errs, invalid...)
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector)
		if err != nil {
			errs = append(errs, field.Invalid(at, metav1.FormatLabelSelector(&o.PodSelector), err.Error()))
			continue
		}
		if selector.Empty() {
			errs = append(errs, field.Required(at, "must not be empty"))
		}
		s.owners = append(s.owners, owner{namespace: o.Namespace, selector: selector})
	}
	return errs
}

// readSlots reads a reservation of slots.
func (s *spec) readSlots(obj *v1alpha1.ZoneReservation, root *field.Path) field.ErrorList {
	s.slot = ledger.ResourcesOf(obj.Spec.Slot.Requests)
	s.slot.Pods = 1
	switch {
	case obj.Spec.OwnerPolicy == v1alpha1.OwnerRequired:
		s.use = holds.UseOnly // the slots are all that the owners have: one that is used is not replaced by another
	case obj.Spec.Mode == v1alpha1.ModeGuarantee:
		s.use = holds.UseFirst
	}
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

// everyNode fits all nodes that are ready: a reservation of amounts names those that it means.
var everyNode = floor.NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false)

// readNodes reads a reservation of amounts.
func (s *spec) readNodes(nodes []v1alpha1.ReservationNode, path *field.Path) field.ErrorList {
	if len(nodes) > maxNodes {
		return field.ErrorList{field.TooMany(path, len(nodes), maxNodes)}
	}
	var errs field.ErrorList
	s.requirements, s.nodes = everyNode, make(map[string]ledger.Resources, len(nodes))
	for i := range nodes {
		n, at := &nodes[i], path.Index(i)
		if _, twice := s.nodes[n.Name]; twice {
			errs = append(errs, field.Duplicate(at.Child("name"), n.Name))
		}
		errs = append(errs, checkAmount(n.Amount, at.Child("amount"))...)
		amount := ledger.ResourcesOf(n.Amount)
		amount.Pods = int64(max(1, n.Pods))
		s.nodes[n.Name] = amount
		s.slots += int(amount.Pods)
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

// target is what the planner is to place. fallback is the priority of pods without a priority class.
func (s *spec) target(fallback int32) placement.Target {
	d := placement.Target{
		Claim: holds.Claim{
			UID: s.uid, Name: s.claimName(), Priority: fallback, Use: s.use, Since: s.created, Slot: s.slot,
		},
		Nodes:        s.nodes,
		PerNode:      s.perNode,
		Requirements: s.requirements,
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

// compareAge orders reservations. A pod that several select belongs to the first one: the oldest, then that with the
// smallest name.
func compareAge(a, b *spec) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
}

// expired reports whether the reservation is over at that time.
func (s *spec) expired(now time.Time) bool { return !s.deadline.IsZero() && !s.deadline.After(now) }
