package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ZoneSpreadPolicyStatus is what the scheduler sees, and what it has to remember over a restart.
type ZoneSpreadPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Replicas is the desired number of pods that percentages and quorumSafe refer to.
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
// +kubebuilder:validation:Enum=Available;Empty;Down;Full;Recovering
type ZoneState string

// The states of a zone.
const (
	// ZoneAvailable: the zone takes part.
	ZoneAvailable ZoneState = "Available"
	// ZoneEmpty: the zone is declared and never had a node; it takes part, with no pods.
	ZoneEmpty ZoneState = "Empty"
	// ZoneDown: every node has been NotReady for downAfter, or the last node is gone.
	ZoneDown ZoneState = "Down"
	// ZoneFull: at least one kind of pod has been refused by every node for fullAfter.
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

	// Since is when the state began: for Down when the last ready node was lost, for Full when the nodes
	// began to refuse, for Recovering when the zone came back. Absent for Available and Empty.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Failover is what the scheduler has to remember about the zone, so that a restart changes nothing.
	// +optional
	Failover *ZoneFailover `json:"failover,omitempty"`
}

// ZoneFailover is the memory behind a zone's state. Times have a resolution of one second.
type ZoneFailover struct {
	// UnreadySince is since when the zone has no ready node. The zone is Down once downAfter has passed.
	// +optional
	UnreadySince *metav1.Time `json:"unreadySince,omitempty"`

	// LastNodeLost is true while a zone that once had nodes has none: it is Down without a grace period.
	// +optional
	LastNodeLost bool `json:"lastNodeLost,omitempty"`

	// RecoveringSince is when the zone came back from Down.
	// +optional
	RecoveringSince *metav1.Time `json:"recoveringSince,omitempty"`

	// Shapes are the kinds of pods that the zone refuses, or accepts again.
	// +optional
	// +listType=map
	// +listMapKey=shape
	// +kubebuilder:validation:MaxItems=16
	Shapes []ZoneShape `json:"shapes,omitempty"`
}

// ZoneShape is what is remembered about one kind of pod in one zone.
type ZoneShape struct {
	// Shape is a hash of what the scheduler's filters look at in a pod: requests, node selector, affinity,
	// tolerations, host ports, volume claims, resource claims.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Shape string `json:"shape"`

	// RefusedSince is since when every eligible node has refused such pods. The zone is Full for them once
	// fullAfter has passed.
	// +optional
	RefusedSince *metav1.Time `json:"refusedSince,omitempty"`

	// LastRefused is about when that was last seen (to the minute). Old observations are dropped.
	// +optional
	LastRefused *metav1.Time `json:"lastRefused,omitempty"`

	// RecoveringSince is when the zone, having been Full, took such a pod again.
	// +optional
	RecoveringSince *metav1.Time `json:"recoveringSince,omitempty"`
}
