package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneReservationStatus says what is held, and where. A scheduler that takes over continues from it.
type ZoneReservationStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// LastUpdateTime is when the status was computed.
	// +optional
	LastUpdateTime metav1.MicroTime `json:"lastUpdateTime,omitzero"`

	// Scheduler is the lease of the scheduler that holds what the status says, as namespace/name. While that lease is renewed, other schedulers with
	// leases of their own hold nothing for the reservation; when it is not, one of them takes over.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Scheduler string `json:"scheduler,omitempty"`

	// Requests is the size of the slots that zones list.
	// +optional
	Requests v1.ResourceList `json:"requests,omitempty"`

	// Slots counts the slots of all zones together.
	// +optional
	Slots SlotCounts `json:"slots,omitzero"`

	// Former are slots from before an edit of the spec, which are held until there is room for others in their stead. They
	// do not count as held.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Former []ReservationFormerSlots `json:"former,omitempty"`

	// Zones are the zones in which slots are desired or held, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Zones []ReservationZoneStatus `json:"zones,omitempty"`

	// Buy is what an autoscaler is asked for, if spec.buy is set. The controller writes it, and the condition Buying.
	// +optional
	Buy *BuyStatus `json:"buy,omitempty"`

	// Conditions are Accepted, Ready, Expired and Protected, and with spec.buy Buying.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SlotCounts are numbers of slots.
type SlotCounts struct {
	// Desired is how many slots the reservation asks for.
	// +optional
	Desired int64 `json:"desired"`
	// Held is how many slots have a place on a node. In Headroom mode all of these are unused; otherwise the slots that owners
	// use are among them.
	// +optional
	Held int64 `json:"held"`
	// Used is how many of the held slots owners use; 0 in Headroom mode.
	// +optional
	Used int64 `json:"used"`
}

// ReservationFormerSlots are slots on one node.
type ReservationFormerSlots struct {
	// Node is the node's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Slots is how many there are.
	// +required
	Slots int64 `json:"slots"`
	// Requests is the size of one.
	// +required
	Requests v1.ResourceList `json:"requests"`
}

// ReservationZoneStatus is one zone.
type ReservationZoneStatus struct {
	// Name is the zone's name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	SlotCounts `json:",inline"`

	// Nodes are the nodes with slots, sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Nodes []ReservationNodeStatus `json:"nodes,omitempty"`
}

// ReservationNodeStatus is one node with slots.
type ReservationNodeStatus struct {
	// Name is the node's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Slots is how many slots are held on the node.
	// +optional
	Slots int64 `json:"slots,omitempty"`
	// Used is how many of them owners use; 0 in Headroom mode.
	// +optional
	Used int64 `json:"used,omitempty"`
}

// The conditions of a ZoneReservation; it has ConditionAccepted as well.
const (
	// ConditionReady is True when all desired slots are held. A ZoneSpreadPolicy has it, too: True when the scheduler applies the
	// latest spec, for tools that wait for that.
	ConditionReady = "Ready"
	// ConditionExpired is True when spec.ttl has passed. Nothing is held any more.
	ConditionExpired = "Expired"
	// ConditionProtected is False when pods that are no owners have a higher priority than the slots, whose room they may
	// take.
	ConditionProtected = "Protected"
)

// Reasons of the conditions of a ZoneReservation; ReasonAccepted, ReasonInvalid and ReasonZonesWithoutNodes serve it as
// well.
const (
	// ReasonOwnersOverlap: Accepted is True, but an older reservation selects the same pods, which then belong to it.
	ReasonOwnersOverlap = "OwnersOverlap"

	// ReasonAllHeld: Ready is True.
	ReasonAllHeld = "AllSlotsHeld"
	// ReasonFilling: slots lack room; freed capacity goes to this reservation.
	ReasonFilling = "Filling"
	// ReasonFitsNoNode: no node could hold a slot even if it were empty.
	ReasonFitsNoNode = "FitsNoNode"
	// ReasonZoneLost: a zone has no usable node, and its slots have no place elsewhere.
	ReasonZoneLost = "ZoneLost"
	// ReasonNotPlacedYet: the scheduler has not looked for nodes yet.
	ReasonNotPlacedYet = "NotPlacedYet"
	// ReasonExpired: spec.ttl has passed.
	ReasonExpired = "Expired"
	// ReasonNotExpired: spec.ttl has not passed, or there is none.
	ReasonNotExpired = "NotExpired"

	// ReasonHeldFractionReached: the scheduler's maxHeldFraction keeps slots from being placed.
	ReasonHeldFractionReached = "HeldFractionReached"

	// ReasonHeldByAnother is of an Event: another scheduler holds the reservation, and the one that says so holds nothing.
	ReasonHeldByAnother = "HeldByAnother"

	// ReasonProtected: Protected is True.
	ReasonProtected = "Protected"
	// ReasonOutranked: pods that are no owners have a higher priority.
	ReasonOutranked = "Outranked"
)
