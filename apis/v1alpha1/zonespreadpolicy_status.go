package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ZoneSpreadPolicyStatus has the fields that the scheduler's decisions depend on besides the spec (zones[].since, full
// and recoveringSince), which are written at once, and a report, which may be some seconds old.
type ZoneSpreadPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Scheduler is the Lease of the scheduler that writes the status, as namespace/name. Another scheduler with a Lease of its
	// own decides by what it knows, and writes no status as long as this Lease is renewed.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Scheduler string `json:"scheduler,omitempty"`

	// Replicas is how many pods are desired; with spec.replicas Owner, the sum over the workloads. With unit PodGroup
	// this and all numbers below count gangs.
	// +optional
	Replicas int64 `json:"replicas"`

	// Pods is how many selected pods are placed in zones; terminating and finished pods do not count.
	// +optional
	Pods int64 `json:"pods"`

	// Skew is by how many pods the zone that is furthest ahead exceeds its share, rounded up, to be compared with
	// spec.maxSkew. During a rollout it is the largest skew of any revision.
	// +optional
	Skew int64 `json:"skew"`

	// Zones are the zones of the cluster and the declared zones, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Zones []ZoneStatus `json:"zones,omitempty"`

	// Conditions are Accepted, Satisfied, Infeasible and Ready, and with spec.scaleDownPolicy KeepSpread also ScaleDownOrdered.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a ZoneSpreadPolicy.
const (
	// ConditionAccepted is True when the scheduler applies the policy. Otherwise the message names the field that is wrong,
	// and the policy has no effect.
	ConditionAccepted = "Accepted"
	// ConditionSatisfied is True when the placed pods obey the policy and no pod waits because of it.
	ConditionSatisfied = "Satisfied"
	// ConditionInfeasible is True when no placement of all replicas over the existing zones obeys the policy. No rule is
	// loosened: the pods that do not fit wait.
	ConditionInfeasible = "Infeasible"
	// ConditionScaleDownOrdered is True when all pods of ReplicaSets that the policy selects have the deletion costs that keep the
	// spread, as far as they are ready. The controller writes it, and it stays as the controller has left it; until one has looked it is Unknown.
	ConditionScaleDownOrdered = "ScaleDownOrdered"
)

// Reasons of the conditions.
const (
	ReasonAccepted          = "Accepted"
	ReasonInvalid           = "Invalid"
	ReasonZonesWithoutNodes = "ZonesWithoutNodes"
	// ReasonReplicasUnknown: percentages or quorumSafe are not applied to some pods, because the desired replicas of their
	// workload are unknown.
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
	ReasonReplicasNotYetObserved = "NoReplicas"

	ReasonOrdered = "Ordered"
	// ReasonNotObserved: no controller with --deletion-costs has looked at the policy.
	ReasonNotObserved = "NotObserved"
	// ReasonOtherManager: some pods have a cost of another field manager, which the message names. Their ReplicaSet is left alone.
	ReasonOtherManager = "OtherManager"
	// ReasonOtherPolicy: another policy with KeepSpread selects the same pods. The first by name decides.
	ReasonOtherPolicy = "OtherPolicy"
	// ReasonNothingToOrder: the policy selects no pods of a ReplicaSet or ReplicationController.
	ReasonNothingToOrder = "NothingToOrder"
)

// ZoneState says whether and how a zone counts.
// +kubebuilder:validation:Enum=Available;Empty;Closed;Full;Recovering
type ZoneState string

// The states of a zone.
const (
	// ZoneAvailable: the zone counts. So does a zone without an open node until downAfter has passed, see since.
	ZoneAvailable ZoneState = "Available"
	// ZoneEmpty: the zone is declared and never had an open node; it counts as a zone with no pods.
	ZoneEmpty ZoneState = "Empty"
	// ZoneClosed: no node has been Ready and not cordoned for downAfter.
	ZoneClosed ZoneState = "Closed"
	// ZoneFull: the pods of some workload have been refused by every node for fullAfter.
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

	// Desired is how many pods the zone should hold: its share of the replicas by weight, within the caps. The shares
	// of unavailable zones go to the others.
	// +optional
	Desired int64 `json:"desired"`

	// State says whether and how the zone counts.
	// +optional
	State ZoneState `json:"state,omitempty"`

	// Since is the time since which the zone has had no open node: one that is Ready and not cordoned. When downAfter has
	// passed, the zone is closed. Absent while it has such a node.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Full lists the workloads whose pods all nodes of the zone refuse, and since when. Of a policy there are at most 64, those
	// first that have not ended, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=workload
	// +kubebuilder:validation:MaxItems=64
	Full []FullRun `json:"full,omitempty"`

	// RecoveringSince is when the zone came back from being closed, or, unless it is declared, first had an open node after
	// the policy had seen others. Absent with recovery Immediate, and once recoveryWindow has passed.
	// +optional
	RecoveringSince *metav1.Time `json:"recoveringSince,omitempty"`
}

// FullRun is a run of attempts in which all nodes of a zone refused the pods of one workload, and the policy held them
// back from other zones.
type FullRun struct {
	// Workload is the UID of the workload: the Deployment, StatefulSet, Job or other controller of the pods. For pods without a
	// controller it is the UID of the policy.
	// +required
	Workload types.UID `json:"workload"`

	// Since is when all nodes that the pods could use began to refuse them. Absent when the run has ended.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Last is when a refusal was last seen, updated every 5 minutes. Once fullAfter lies between since and last, the zone is
	// full for the workload until one of its pods is bound there. A run that is not full yet ends when last is 15 minutes
	// old. Without since it is when the run of a zone that was full has ended, and the zone recovers until recoveryWindow
	// has passed.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
}
