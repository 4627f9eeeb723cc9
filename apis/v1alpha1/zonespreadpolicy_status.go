package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneSpreadPolicyStatus has what the scheduler's decisions rest on besides the spec (zones[].since, full and
// recoveringSince), which is written at once, and a report, which may be some seconds old.
type ZoneSpreadPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Replicas is how many pods are wanted: the sum over the workloads with Owner. Gangs with unit PodGroup, as in
	// all numbers below.
	// +optional
	Replicas int64 `json:"replicas"`

	// Pods is how many selected pods are placed in a zone; terminating and finished pods do not count.
	// +optional
	Pods int64 `json:"pods"`

	// Skew is by how many pods the zone that is furthest ahead exceeds its share, rounded up; compare it with
	// spec.maxSkew. During a rollout it is the largest over the revisions.
	// +optional
	Skew int64 `json:"skew"`

	// Zones are the zones of the cluster and the declared zones, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Zones []ZoneStatus `json:"zones,omitempty"`

	// Conditions are Accepted, Satisfied and Infeasible.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a ZoneSpreadPolicy.
const (
	// ConditionAccepted is True when the scheduler applies the policy. A policy that is not accepted is not
	// applied at all; the message names the field.
	ConditionAccepted = "Accepted"
	// ConditionSatisfied is True when the pods that are placed obey the policy and none waits because of it.
	ConditionSatisfied = "Satisfied"
	// ConditionInfeasible is True when no placement of all replicas over the zones that exist obeys the policy.
	// Nothing is loosened: pods beyond what is possible wait.
	ConditionInfeasible = "Infeasible"
)

// Reasons of the conditions.
const (
	ReasonAccepted          = "Accepted"
	ReasonInvalid           = "Invalid"
	ReasonZonesWithoutNodes = "ZonesWithoutNodes"
	// ReasonReplicasUnknown: percentages or quorumSafe are not applied to some pods, because how many pods their
	// workload wants is not known.
	ReasonReplicasUnknown = "ReplicasUnknown"

	ReasonSatisfied    = "Satisfied"
	ReasonSkewExceeded = "SkewExceeded"
	ReasonCapExceeded  = "CapExceeded"
	ReasonForbidden    = "PodsInForbiddenZone"
	ReasonPodsWaiting  = "PodsWaiting"

	ReasonFeasible               = "Feasible"
	ReasonNoZones                = "NoZones"
	ReasonMinZonesAboveZones     = "MinZonesAboveZones"
	ReasonQuorumNeedsReplicas    = "QuorumNeedsThreeReplicas"
	ReasonCapsBelowReplicas      = "CapsBelowReplicas"
	ReasonSkewBelowReplicas      = "SkewBelowReplicas"
	ReasonRolloutExceedsAllCaps  = "RolloutExceedsCaps"
	ReasonReplicasNotYetObserved = "NoReplicas"
)

// ZoneState is how a zone takes part.
// +kubebuilder:validation:Enum=Available;Empty;Closed;Full;Recovering
type ZoneState string

// The states of a zone.
const (
	// ZoneAvailable: the zone takes part. So does one without an open node until downAfter is over, see since.
	ZoneAvailable ZoneState = "Available"
	// ZoneEmpty: the zone is declared and never had a node; it takes part, with no pods.
	ZoneEmpty ZoneState = "Empty"
	// ZoneClosed: no node has been ready and open to the policy's pods for downAfter.
	ZoneClosed ZoneState = "Closed"
	// ZoneFull: pods of at least some size have been refused by every node for fullAfter.
	ZoneFull ZoneState = "Full"
	// ZoneRecovering: the zone is back and does not hold the others back yet.
	ZoneRecovering ZoneState = "Recovering"
)

// ZoneStatus is one zone.
type ZoneStatus struct {
	// Name is the zone's name: the value of the topology key on its nodes.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Pods is how many selected pods are placed in the zone.
	// +optional
	Pods int64 `json:"pods"`

	// Desired is how many pods the zone should hold: its part of the replicas by weight, within the caps,
	// with the parts of unavailable zones handed to the others.
	// +optional
	Desired int64 `json:"desired"`

	// State is how the zone takes part.
	// +optional
	State ZoneState `json:"state,omitempty"`

	// Since is since when the zone has no node that is ready and open to the policy's pods; it is closed when
	// downAfter has passed. Absent while it has one.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Full has the sizes of pods that all nodes of the zone refuse, and since when.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Full []RefusedSize `json:"full,omitempty"`

	// RecoveringSince is when the zone came back from being closed or full. Absent with recovery Immediate, and once
	// the zone has caught up or recoveryWindow has passed.
	// +optional
	RecoveringSince *metav1.Time `json:"recoveringSince,omitempty"`
}

// RefusedSize is a size of pods that a zone refuses.
type RefusedSize struct {
	// Since is when all nodes that a pod of this size could use began to refuse it.
	// +required
	Since metav1.Time `json:"since"`

	// Last is when that was seen last, to 5 minutes. The zone is full for such pods, and for pods that ask for more, when
	// there is fullAfter between since and last. An entry is void when last is 15 minutes old.
	// +required
	Last metav1.Time `json:"last"`

	// AtLeast is what the pod requested.
	// +optional
	AtLeast v1.ResourceList `json:"atLeast,omitempty"`

	// Resources is true when no node had what the pod requested, so that room that appears ends the entry. Otherwise
	// nodes refused the pod for another reason, and a pod that fits there ends it.
	// +optional
	Resources bool `json:"resources,omitempty"`
}
