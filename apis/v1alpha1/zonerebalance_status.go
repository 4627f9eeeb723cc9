package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ZoneRebalanceStatus says what is out of balance and what was moved. The controller remembers nothing else: another replica goes on from here.
type ZoneRebalanceStatus struct {
	// ObservedGeneration is the generation of the spec that was looked at last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SearchedAt is when the cluster was read in which moves were searched last. Of several ZoneRebalances the one with the oldest is next.
	// +optional
	SearchedAt metav1.Time `json:"searchedAt,omitzero"`
	// Excess is how many pods are more than a rule allows in their zone, added over the rules that selected pods carry.
	// +optional
	Excess int64 `json:"excess"`
	// Zones is a digest of how many nodes of each zone are usable (none, less than 45 %, more) and of the policies that select selected pods, and
	// ZonesSince the time from which on it is the same.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Zones string `json:"zones,omitempty"`
	// +optional
	ZonesSince metav1.Time `json:"zonesSince,omitzero"`
	// Planned is how many moves the plan has, and Plan the first of them, in the order in which they would be made: with mode Plan.
	// +optional
	Planned int64 `json:"planned"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Plan []PlannedMove `json:"plan,omitempty"`
	// Moves are the last moves, the oldest first: those that have begun within the hour, and the last one of each workload within two days.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=400
	Moves []RebalanceMove `json:"moves,omitempty"`
	// Stays are pods that are too many in their zone and are not moved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Stays []RebalanceStay `json:"stays,omitempty"`
	// Conditions has Ready, Balanced and Stopped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MovedPod is the pod of a move, and its way.
type MovedPod struct {
	// Namespace and Name are those of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Workload is what controls the pod, such as "Deployment shop/web".
	// +optional
	// +kubebuilder:validation:MaxLength=384
	Workload string `json:"workload,omitempty"`
	// From is the zone of the pod, and To that of the pod in its place, or the zones, where that is left to chance.
	// +required
	// +kubebuilder:validation:MaxLength=63
	From string `json:"from"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	To []string `json:"to,omitempty"`
}

// PlannedMove is a move of a plan.
type PlannedMove struct {
	MovedPod `json:",inline"`
	// Batch is the number of the step in which it would be made, from 1 on.
	// +optional
	Batch int64 `json:"batch,omitempty"`
	// Rules are those that the zone breaks with the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Rules string `json:"rules,omitempty"`
}

// RebalanceMoveState is how far a move has come.
//
// +kubebuilder:validation:Enum=Evicting;Evicted;Moved;NotNeeded;NotEvicted;BudgetExhausted;Refused;NotBound;NotReady;NotBetter;Undone
type RebalanceMoveState string

// The states of a move. NotNeeded, NotEvicted and BudgetExhausted are no failures, and those after them are failures of the workload.
const (
	MoveEvicting        RebalanceMoveState = "Evicting"        // about to be evicted, or evicted already: written before the eviction
	MoveEvicted         RebalanceMoveState = "Evicted"         // evicted, and another pod in its place is to run
	MoveMoved           RebalanceMoveState = "Moved"           // all pods of the controller are ready, and fewer are too many
	MoveNotNeeded       RebalanceMoveState = "NotNeeded"       // the controller is gone, or wants another number of pods since
	MoveNotEvicted      RebalanceMoveState = "NotEvicted"      // not evicted, for a reason that is none of the workload's
	MoveBudgetExhausted RebalanceMoveState = "BudgetExhausted" // a PodDisruptionBudget does not allow the eviction now
	MoveRefused         RebalanceMoveState = "Refused"         // the API server refused the eviction for another reason, such as a webhook's
	MoveNotBound        RebalanceMoveState = "NotBound"        // a pod in its place had no node in time, or was not made
	MoveNotReady        RebalanceMoveState = "NotReady"        // a pod in its place was not ready in time
	MoveNotBetter       RebalanceMoveState = "NotBetter"       // all pods are ready, and as many as before are too many
	MoveUndone          RebalanceMoveState = "Undone"          // more are too many within half a day after it had succeeded
)

// RebalanceMove is a move that has begun.
type RebalanceMove struct {
	MovedPod `json:",inline"`
	// UID is that of the pod, Controller that of the object that makes the pod in its place, and Replicas how many pods that wanted then.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Controller types.UID `json:"controller,omitempty"`
	// +optional
	Replicas int64 `json:"replicas,omitempty"`
	// State is how far the move has come, At since when, Begun since when the pod may have been evicted, Due until when the pod in its place is to
	// have a node, and Generation that of the spec.
	// +required
	State RebalanceMoveState `json:"state"`
	// +optional
	At metav1.Time `json:"at,omitzero"`
	// +optional
	Begun metav1.Time `json:"begun,omitzero"`
	// +optional
	Due metav1.Time `json:"due,omitzero"`
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Excess is how many pods of its workload's rules were too many as the move began, and once it is over as it ended.
	// +optional
	Excess int64 `json:"excess,omitempty"`
	// Failures is how many moves of the workload failed or were undone, since one has lasted for half a day. Its rest doubles with each.
	// +optional
	Failures int64 `json:"failures,omitempty"`
	// Why says what has become of the move.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Why string `json:"why,omitempty"`
}

// RebalanceStay is why pods of a workload are not moved.
type RebalanceStay struct {
	// Workload and Zone are those of a move that was tried and refused; empty if the reason is the pods' own.
	// +optional
	// +kubebuilder:validation:MaxLength=384
	Workload string `json:"workload,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Pods is how many there are, if they have a reason in common.
	// +optional
	Pods int64 `json:"pods,omitempty"`
	// Why is the reason.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Why string `json:"why"`
}

// Conditions of a ZoneRebalance, beside Ready. Ready is True while moves are planned or made.
const (
	ConditionBalanced = "Balanced" // True: no pod of a rule that selected pods carry is too many in its zone
	ConditionStopped  = "Stopped"  // True: moves of three workloads in a row have failed, and none begins for a while
)

// Reasons of the conditions of a ZoneRebalance, beside ReasonInvalid, ReasonSnapshotIncomplete and ReasonReplayFailed of Ready.
const (
	ReasonPlanning          = "Planning"      // Ready is True
	ReasonSettling          = "Settling"      // zones or policies have changed less than spec.after ago
	ReasonEvictionForbidden = "Forbidden"     // Ready is False: the controller may not create evictions
	ReasonBalanced          = "Balanced"      // Balanced is True
	ReasonMovesPlanned      = "MovesPlanned"  // status.plan has what would be moved
	ReasonMoving            = "Moving"        // moves are being made
	ReasonNothingToMove     = "NothingToMove" // no move would help; status.stays says why
	ReasonNotPlannedYet     = "NotPlannedYet" // no moves have been searched yet
	ReasonStopped           = "Stopped"       // the condition Stopped is True
	ReasonMovesFailed       = "MovesFailed"   // Stopped is True
	ReasonNotStopped        = "NotStopped"    // Stopped is False
)
