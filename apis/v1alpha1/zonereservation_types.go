package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneReservation holds capacity in zones for the pods of named owners, without placeholder pods. It holds a number
// of slots, each as large as one pod of the owners, beside the pods. Other pods of the same or a lower priority may not use their room. No pod is evicted, not even when the reservation expires or is deleted.
//
// A pod that several reservations select belongs to the oldest of them, by creationTimestamp and then by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=zonereservations,singular=zonereservation,scope=Cluster,shortName=zrsv,categories=zonewise
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.slots.desired`,description="Slots that the reservation asks for"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.slots.held`,description="Slots that have a place on a node"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.slots.used`,description="Held slots that owners use; 0 in Headroom mode"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Protected",type=string,JSONPath=`.status.conditions[?(@.type=="Protected")].status`,priority=1
// +kubebuilder:printcolumn:name="Expired",type=string,JSONPath=`.status.conditions[?(@.type=="Expired")].status`,priority=1
// +kubebuilder:printcolumn:name="Buying",type=string,JSONPath=`.status.conditions[?(@.type=="Buying")].status`,description="Whether an autoscaler is asked for the room, with spec.buy",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ZoneReservation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what to hold.
	// +required
	Spec ZoneReservationSpec `json:"spec"`

	// Status says what is held.
	// +optional
	Status ZoneReservationStatus `json:"status,omitzero"`
}

// ZoneReservationList is a list of ZoneReservation.
//
// +kubebuilder:object:root=true
type ZoneReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZoneReservation `json:"items"`
}

// ZoneReservationSpec says what to hold.
//
// +kubebuilder:validation:XValidation:rule="(has(self.zones) && size(self.zones) > 0) != has(self.slots)",message="spec: exactly one of zones and slots must be set",reason="FieldValueInvalid"
// +kubebuilder:validation:XValidation:rule="!has(self.zones) || self.zones.map(z, z.slots).sum() <= 5000",message="spec.zones: a reservation has at most 5000 slots in all",reason="FieldValueInvalid"
type ZoneReservationSpec struct {
	// Owners select the pods for which capacity is held. A pod that one entry selects is an owner.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Owners []ReservationOwner `json:"owners"`

	// Slot is the size of one slot, and the nodes on which it may be.
	// +required
	Slot ReservationSlot `json:"slot"`

	// Mode says whether the owners that run count as slots. Headroom, the default: they do not, so the slots are free
	// beside all pods, for times when capacity is short. Guarantee: they do, so the slots are capacity that belongs to the owners.
	// +optional
	// +kubebuilder:default=Headroom
	Mode ReservationMode `json:"mode,omitempty"`

	// OwnerPolicy says whether owners may run outside of slots. Preferred, the default: they may. Required: owners run
	// only in slots, and wait when all slots are used.
	// +optional
	// +kubebuilder:default=Preferred
	OwnerPolicy ReservationOwnerPolicy `json:"ownerPolicy,omitempty"`

	// Zones says how many slots are held in each of the listed zones. One of zones and slots must be set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Zones []ReservationZone `json:"zones,omitempty"`

	// Slots is how many slots are held in total, spread evenly over the zones that have a node which may have
	// them. One of zones and slots must be set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Slots *int32 `json:"slots,omitempty"`

	// SlotsPerNode is the most slots that a node may have; owners that run there outside of slots count, too. Set it to 1
	// if owners may not share a node. By default a node has as many as fit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	SlotsPerNode *int32 `json:"slotsPerNode,omitempty"`

	// Priority protects the slots: pods of a higher priority may use the room of unused slots as if it were free.
	// Other pods that are not owners may not. Defaults to
	// the highest priority among the owners that exist, and not below that of pods without a priority class: that of the
	// cluster's PriorityClass with globalDefault, else 0.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=1000000000
	Priority *int32 `json:"priority,omitempty"`

	// TTL is how long the reservation lasts from its creation. After that it holds nothing; pods in its slots keep
	// running. It may be changed, also to revive an expired reservation. Without it the reservation lasts until it is
	// deleted.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) > duration('0s')",message="spec.ttl: must be a duration above 0, such as 24h"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// Buy asks an autoscaler for the nodes of the slots. The controller does so, if its flag --buy is given.
	// +optional
	Buy *Buy `json:"buy,omitempty"`
}

// ReservationOwner selects pods of one namespace.
type ReservationOwner struct {
	// Namespace is the namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// PodSelector selects the pods by their labels. It must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="spec.owners[*].podSelector: must not be empty: set matchLabels or matchExpressions"
	PodSelector metav1.LabelSelector `json:"podSelector"`
}

// ReservationSlot is the size of one slot, and the nodes on which it may be.
type ReservationSlot struct {
	// Requests is what one slot holds: cpu, memory, ephemeral-storage, huge pages or extended resources. Quantities
	// of 0 are ignored. A slot also holds a place for one pod.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=12
	// +kubebuilder:validation:XValidation:rule="self.all(name, sign(quantity(string(self[name]))) >= 0)",message="spec.slot.requests: no quantity may be below 0"
	// +kubebuilder:validation:XValidation:rule="!('pods' in self)",message="spec.slot.requests: pods must not be set: a slot is a place for one pod"
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.startsWith('attachable-volumes-') || name.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?\\\\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="spec.slot.requests: a resource that nodes offer to pods is cpu, memory, ephemeral-storage, hugepages-SIZE, or an extended resource with a domain, as in example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.startsWith('requests.') && size(name) <= 253)",message="spec.slot.requests: no resource begins with requests., which is of quotas"
	Requests v1.ResourceList `json:"requests"`

	// NodeSelector restricts the nodes, as in a pod.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations allow slots on nodes with matching taints, as in a pod. The owners need them, too.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []v1.Toleration `json:"tolerations,omitempty"`
}

// ReservationZone is the number of slots of one zone.
type ReservationZone struct {
	// Name is the zone's name: the value of topology.kubernetes.io/zone on its nodes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Name string `json:"name"`

	// Slots is how many slots are held in the zone.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Slots int32 `json:"slots"`
}

// ReservationMode says when an owner uses a slot.
// +kubebuilder:validation:Enum=Headroom;Guarantee
type ReservationMode string

// The modes.
const (
	ModeHeadroom  ReservationMode = "Headroom"
	ModeGuarantee ReservationMode = "Guarantee"
)

// ReservationOwnerPolicy says whether owners may run outside of their slots.
// +kubebuilder:validation:Enum=Preferred;Required
type ReservationOwnerPolicy string

// The owner policies.
const (
	OwnerPreferred ReservationOwnerPolicy = "Preferred"
	OwnerRequired  ReservationOwnerPolicy = "Required"
)
