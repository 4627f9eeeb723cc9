package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ZoneRebalanceStatus has the plan and what has become of it. All that the controller decides by is in it, so that another replica goes on from
// there.
type ZoneRebalanceStatus struct {
	// ObservedGeneration is the generation of the spec that was looked at last. While the condition Ready is False the rest is of an earlier one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// PlannedAt is the time at which the cluster was read from which the plan was made.
	// +optional
	PlannedAt metav1.Time `json:"plannedAt,omitzero"`

	// Cluster says which cluster the plan is for.
	// +optional
	Cluster RebalanceCluster `json:"cluster,omitzero"`

	// Before is how the pods stand to their rules as the plan begins, and After how they would with all moves made.
	// +optional
	Before RebalanceStanding `json:"before"`
	// +optional
	After RebalanceStanding `json:"after"`

	// Complete is true if a search on a copy of the cluster with all moves made has found no further one, and the plan is listed as a whole.
	// +optional
	Complete bool `json:"complete,omitempty"`

	// Planned is how many moves of the plan have not begun.
	// +optional
	Planned int64 `json:"planned"`

	// Round counts the plans that were begun. One that is made again because nodes have changed meanwhile belongs to the same round.
	// +optional
	Round int64 `json:"round,omitempty"`

	// Moves are those of the plan, in the order in which they are made, after those of the last hour and the last one of each workload. The last
	// ones of a gang stay for a day.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=600
	Moves []RebalanceMove `json:"moves,omitempty"`

	// Stays are pods that are too many in their zone and are not moved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Stays []RebalanceStay `json:"stays,omitempty"`

	// PartlyBound are the gangs with selected pods that stay bound in part and whose PodGroups ask for the eviction of the bound members then, by
	// the annotation zonewise.dev/recovery-policy: Evict. The first to be so is the first to be evicted.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=100
	PartlyBound []RebalanceGang `json:"partlyBound,omitempty"`

	// Stop is what has stopped the last plan; absent if that has ended as planned.
	// +optional
	Stop *RebalanceStop `json:"stop,omitempty"`

	// GangStop is what has stopped the evictions of gangs that are bound in part, while other moves go on; absent if none has failed that
	// is still bound in part.
	// +optional
	GangStop *RebalanceStop `json:"gangStop,omitempty"`

	// Conditions has Ready, Balanced and Stopped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RebalanceCluster says which cluster a plan is for.
type RebalanceCluster struct {
	// Nodes and Pods count what was read.
	// +optional
	Nodes int64 `json:"nodes"`
	// +optional
	Pods int64 `json:"pods"`
	// Hash is a digest of the nodes, of the policies and of the reservations. When it changes, what is left of the plan is made anew.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`
	// Zones is a digest of which zones have a usable node and which policies there are, and Since the time from which on it is the same.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Zones string `json:"zones,omitempty"`
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// RebalanceStanding is how the pods stand to the rules that selected pods carry.
type RebalanceStanding struct {
	// Excess is how many pods are more than a rule allows in their zone, added over all rules. Every move lowers it.
	// +optional
	Excess int64 `json:"excess"`
	// LeastMoves is a lower bound: with fewer moves, at least one pod that may be moved stays in a zone with too many.
	// +optional
	LeastMoves int64 `json:"leastMoves"`
}

// RebalanceMoveState is how far a move has come.
//
// +kubebuilder:validation:Enum=Planned;Evicting;Evicted;Moved;Refused;Failed
type RebalanceMoveState string

const (
	// MovePlanned says that the move has not begun.
	MovePlanned RebalanceMoveState = "Planned"
	// MoveEvicting says that the pod is about to be evicted, or has been already. The state is written before the eviction, which asks for the pod by its UID.
	MoveEvicting RebalanceMoveState = "Evicting"
	// MoveEvicted says that the pod is evicted, and another one in its place is to run.
	MoveEvicted RebalanceMoveState = "Evicted"
	// MoveMoved says that the pod in its place is ready in a zone of the plan. Of a gang that was bound in part: it is whole, or waits as a whole.
	MoveMoved RebalanceMoveState = "Moved"
	// MoveRefused says that the API server has not let the pod be evicted, or it was not asked for any more.
	MoveRefused RebalanceMoveState = "Refused"
	// MoveFailed says that the pod is evicted, and what came of it is not as planned.
	MoveFailed RebalanceMoveState = "Failed"
)

// RebalanceMove is the eviction of one pod.
type RebalanceMove struct {
	// Namespace, Name and UID are those of the pod to evict.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// Workload is what controls the pod, such as "Deployment shop/web".
	// +optional
	// +kubebuilder:validation:MaxLength=384
	Workload string `json:"workload,omitempty"`
	// PodGroup is the UID of the PodGroup whose bound members are evicted together, because it stays bound in part; empty for a move to another
	// zone. Workload is then the PodGroup, such as "PodGroup shop/train".
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	PodGroup types.UID `json:"podGroup,omitempty"`
	// Controller is the UID of the object that makes the pod in its place.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Controller types.UID `json:"controller,omitempty"`
	// From is the zone of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	From string `json:"from"`
	// To is the zone of the pod in its place, or the zones, where that is left to chance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	To []string `json:"to,omitempty"`
	// Batch is the number of the step, from 1 on. The next step begins when all pods of the one before run.
	// +optional
	Batch int64 `json:"batch,omitempty"`
	// Round is that of the plan.
	// +optional
	Round int64 `json:"round,omitempty"`
	// Why names the rules that the zone breaks with the pod, or says what has become of the move.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Why string `json:"why,omitempty"`
	// State is how far the move has come, and At since when.
	// +required
	State RebalanceMoveState `json:"state"`
	// +optional
	At metav1.Time `json:"at,omitzero"`
	// Begun is since when the pod may have been evicted.
	// +optional
	Begun metav1.Time `json:"begun,omitzero"`
	// Due is until when the pod in its place is to have a node.
	// +optional
	Due metav1.Time `json:"due,omitzero"`
	// Excess is how many pods of its workload's rules were too many when the eviction began.
	// +optional
	Excess int64 `json:"excess,omitempty"`
	// ReplacedBy is the UID of the pod in its place.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	ReplacedBy types.UID `json:"replacedBy,omitempty"`
}

// RebalanceStay is why pods of a workload are not moved.
type RebalanceStay struct {
	// Workload is the one whose move was tried in vain; empty if the reason is the pods' own.
	// +optional
	// +kubebuilder:validation:MaxLength=384
	Workload string `json:"workload,omitempty"`
	// Zone is where they stay.
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

// RebalanceGang is a gang that stays bound in part.
type RebalanceGang struct {
	// Namespace, Name and UID are those of the PodGroup.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// Since is when the PodGroup was first seen to say so, or when it said so by its condition if that is later.
	// +required
	Since metav1.Time `json:"since"`
	// Bound is how many members are bound, and Missing how many more the gang needs.
	// +optional
	Bound int64 `json:"bound"`
	// +optional
	Missing int64 `json:"missing"`
	// Why says why the bound members are not evicted yet.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Why string `json:"why,omitempty"`
}

// RebalanceStop is what has stopped a plan, or the evictions of gangs.
type RebalanceStop struct {
	// Reason and Message say why.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// At is when, and ResumesAt when the next plan is made, or the next gang evicted. A change of the spec resumes at once.
	// +required
	At metav1.Time `json:"at"`
	// +required
	ResumesAt metav1.Time `json:"resumesAt"`
	// Generation is that of the spec.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Times is how many of them in a row were stopped.
	// +optional
	Times int64 `json:"times,omitempty"`
	// Resumed says that another plan has been made since.
	// +optional
	Resumed bool `json:"resumed,omitempty"`
}

// ConditionReady of a ZoneRebalance is True when the spec is valid and the cluster known, so that moves are planned. Its reasons are ReasonPlanning, ReasonSettling,
// ReasonInvalid, ReasonSnapshotIncomplete and ReasonReplayFailed.
const (
	// ReasonPlanning: Ready is True.
	ReasonPlanning = "Planning"
	// ReasonSettling: a zone or a policy has changed less than spec.after ago.
	ReasonSettling = "Settling"
)

// ConditionBalanced is True when no pod of a rule that selected pods carry is too many in its zone.
const ConditionBalanced = "Balanced"

// Reasons of the condition Balanced.
const (
	// ReasonBalanced: Balanced is True.
	ReasonBalanced = "Balanced"
	// ReasonMovesPlanned: the plan has moves.
	ReasonMovesPlanned = "MovesPlanned"
	// ReasonMoving: moves are being made.
	ReasonMoving = "Moving"
	// ReasonStopped: the plan was stopped; the condition Stopped says why.
	ReasonStopped = "Stopped"
	// ReasonNothingToMove: no move would help; status.stays says why.
	ReasonNothingToMove = "NothingToMove"
	// ReasonNotPlannedYet: no plan has been made yet.
	ReasonNotPlannedYet = "NotPlannedYet"
)

// ConditionStopped is True while no plan is carried out, or no gang evicted, because the cluster did not follow the last one.
const ConditionStopped = "Stopped"

// Reasons of the condition Stopped.
const (
	// ReasonNotStopped: Stopped is False.
	ReasonNotStopped = "NotStopped"
	// ReasonOtherZone: a pod in place of an evicted one is in a zone that is not the plan's.
	ReasonOtherZone = "OtherZone"
	// ReasonNotBound: a pod in place of an evicted one had no node in time, or was not made.
	ReasonNotBound = "NotBound"
	// ReasonPodNotReady: a pod in place of an evicted one was not ready in time.
	ReasonPodNotReady = "PodNotReady"
	// ReasonNotBetter: after a move as many pods as before are too many.
	ReasonNotBetter = "NotBetter"
	// ReasonPreemption: a pod was preempted where a moved one went.
	ReasonPreemption = "Preemption"
	// ReasonEvictionRefused: the API server has not let a pod be evicted for long, or not at all.
	ReasonEvictionRefused = "EvictionRefused"
	// ReasonGangPartlyBound: a gang whose bound members were evicted is bound in part again.
	ReasonGangPartlyBound = "GangPartlyBound"
	// ReasonCertificateBroken: with the moves a ZoneSurvival would hold no longer.
	ReasonCertificateBroken = "CertificateBroken"
)
