package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ZoneReservationStatus is what is held, and where, so that a scheduler that takes over holds the same slots.
type ZoneReservationStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Slots are the figures of all zones together.
	// +optional
	Slots SlotCounts `json:"slots,omitzero"`

	// Zones are the zones that slots are wanted or held in, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Zones []ReservationZoneStatus `json:"zones,omitempty"`

	// Conditions are Accepted, Ready, Degraded and Expired.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SlotCounts are numbers of slots.
type SlotCounts struct {
	// Desired is how many slots are wanted.
	// +optional
	Desired int64 `json:"desired"`
	// Held is how many slots have a place on a node, used or not.
	// +optional
	Held int64 `json:"held"`
	// Used is how many of the held slots have a pod of the owners in them.
	// +optional
	Used int64 `json:"used"`
}

// ReservationZoneStatus is one zone.
type ReservationZoneStatus struct {
	// Name is the zone's name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	SlotCounts `json:",inline"`

	// Nodes are the nodes on which the slots are, by name. Of more than 500 nodes in a zone, the rest is left out;
	// the figures cover all.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=500
	Nodes []ReservationNodeStatus `json:"nodes,omitempty"`
}

// ReservationNodeStatus is one node with slots.
type ReservationNodeStatus struct {
	// Name is the node's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Slots is how many slots are held on the node, used or not.
	// +optional
	Slots int64 `json:"slots"`
	// Used is how many of them have a pod of the owners in them.
	// +optional
	Used int64 `json:"used"`
}

// The conditions of a ZoneReservation; it has ConditionAccepted as well.
const (
	// ConditionReady is True when all slots that are wanted are held.
	ConditionReady = "Ready"
	// ConditionDegraded is True when slots that were held can not be relied on: a node was lost or is
	// overcommitted, and the slots have no other place yet.
	ConditionDegraded = "Degraded"
	// ConditionExpired is True when spec.ttl has passed. Nothing is held any more.
	ConditionExpired = "Expired"
)

// Reasons of the conditions of a ZoneReservation; ReasonAccepted, ReasonInvalid and ReasonZonesWithoutNodes serve it as
// well.
const (
	// ReasonOwnersOverlap: Accepted is True, but pods can belong to another, older reservation as well, and then do.
	ReasonOwnersOverlap = "OwnersOverlap"

	// ReasonAllHeld: Ready is True.
	ReasonAllHeld = "AllSlotsHeld"
	// ReasonFilling: slots lack room; capacity that becomes free goes to this reservation.
	ReasonFilling = "Filling"
	// ReasonWaiting: slots lack room, and an older claim is being filled.
	ReasonWaiting = "WaitingForOlderClaim"
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

	// ReasonAsDesired: Degraded is False.
	ReasonAsDesired = "AsDesired"
	// ReasonOvercommitted: pods that this scheduler did not place there take the space of slots.
	ReasonOvercommitted = "Overcommitted"
	// ReasonNodesLost: nodes with slots went away, and the slots have no other place yet.
	ReasonNodesLost = "NodesLost"
)
