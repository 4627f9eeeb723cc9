package v1alpha1

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneSurvivalStatus is a certificate: what each loss would do to the protected pods, as of the time at which the cluster
// was read.
type ZoneSurvivalStatus struct {
	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ComputedAt is the time at which the cluster was read from which the status was computed.
	// +optional
	ComputedAt metav1.Time `json:"computedAt,omitzero"`

	// ReplayedAt is the time at which the cluster was read in which all losses were last replayed from the beginning. Where it is before
	// computedAt, the answer has followed changes of pods since.
	// +optional
	ReplayedAt metav1.Time `json:"replayedAt,omitzero"`

	// Snapshot says which cluster was read.
	// +optional
	Snapshot SurvivalSnapshot `json:"snapshot,omitzero"`

	// Pods is how many protected pods run.
	// +optional
	Pods int64 `json:"pods"`

	// Waiting is how many protected pods have no node already, before any loss. They do not break the certificate.
	// +optional
	Waiting int64 `json:"waiting"`

	// Replayed is how many losses were replayed, each in both forms (the Node objects are deleted, or they stay) and several orders.
	// +optional
	Replayed int64 `json:"replayed"`

	// Losses are the replayed losses: of zones all, sorted by name; of nodes the ten worst, those with most waiting pods first, then those that
	// displace most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Losses []SurvivalLoss `json:"losses,omitempty"`

	// Impaired has, for each zone of spec.survive, of all zones if that is about nodes, the workload of which the smallest share is left if the
	// zone is cut off but not gone: one below spec.impaired.leastServing if there is one. It follows from the pods that are ready now.
	// +optional
	// +listType=map
	// +listMapKey=zone
	// +kubebuilder:validation:MaxItems=1000
	Impaired []SurvivalServing `json:"impaired,omitempty"`

	// Reservations are the ZoneReservations that hold the room, if spec.hold is set: one for each protected workload, the first thousand by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Reservations []SurvivalReservation `json:"reservations,omitempty"`

	// Held is what the reservations hold and no pod uses, in all, places for pods among it as the resource "pods".
	// +optional
	Held v1.ResourceList `json:"held,omitempty"`

	// Missing is what the reservations ask for and do not hold yet, by zone and size.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Missing []SurvivalMissing `json:"missing,omitempty"`

	// Buy is what an autoscaler is asked for, if spec.buy is set.
	// +optional
	Buy *BuyStatus `json:"buy,omitempty"`

	// Conditions has Survives; if spec.hold is set, Held; if spec.impaired is set, Serves; if spec.buy is set, Buying.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SurvivalSnapshot says which cluster was read.
type SurvivalSnapshot struct {
	// Nodes and Pods count what was read.
	// +optional
	Nodes int64 `json:"nodes"`
	// +optional
	Pods int64 `json:"pods"`
	// Hash is a digest of what of the cluster decides the answer. While it and Scheduler stay the same, so does the answer.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`
	// Scheduler is a digest of what else decides it: the scheduler's configuration, its feature gates, the flags that say how losses are replayed,
	// and the version of the controller.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Scheduler string `json:"scheduler,omitempty"`
}

// SurvivalLoss is what the loss of a zone, or of a node, would do. If replays differ, it is the worst.
type SurvivalLoss struct {
	// Zone is the lost zone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Node is the lost node, if not a whole zone is lost.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// Nodes is how many nodes are lost.
	// +optional
	Nodes int64 `json:"nodes"`
	// Displaced is how many protected pods lose their place: with the lost nodes, or to pods of a higher priority that
	// need room. Of these, Placed find a node again and Waiting do not.
	// +optional
	Displaced int64 `json:"displaced"`
	// +optional
	Placed int64 `json:"placed"`
	// +optional
	Waiting int64 `json:"waiting"`
	// NodesStay is true if pods wait while the lost nodes' objects still exist, not ready and with the taint node.kubernetes.io/unreachable, and
	// none waits once these are deleted.
	// +optional
	NodesStay bool `json:"nodesStay,omitempty"`
	// Witnesses are the first of the waiting pods, by namespace and name: at most ten, and at most 100 of all losses together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Witnesses []SurvivalWitness `json:"witnesses,omitempty"`
	// Margin is what is free in the remaining zones after the loss, sorted by zone. Of more than 45 zones, each loss has those with least free.
	// +optional
	// +listType=map
	// +listMapKey=zone
	// +kubebuilder:validation:MaxItems=1000
	Margin []SurvivalMargin `json:"margin,omitempty"`
}

// What names what is lost.
func (l *SurvivalLoss) What() string { return cmp.Or(l.Node, l.Zone) }

// SurvivalWitness is a protected pod that would not run after a loss.
type SurvivalWitness struct {
	// Namespace and Name are those of the pod that runs now.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Why is what the scheduler says about the pod in its place.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
}

// SurvivalServing is what is left of a workload without the pods of a zone.
type SurvivalServing struct {
	// Zone is the zone that is cut off.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone"`
	// Namespace is that of the workload.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Workload is the kind and the name of what controls the pods, such as Deployment/web.
	// +required
	// +kubebuilder:validation:MaxLength=320
	Workload string `json:"workload"`
	// Ready is how many of its pods are ready in other zones.
	// +required
	Ready int64 `json:"ready"`
	// Replicas is how many pods it is to have.
	// +required
	Replicas int64 `json:"replicas"`
	// Wanted is how many have to be ready by spec.impaired.leastServing.
	// +optional
	Wanted int64 `json:"wanted,omitempty"`
}

// SurvivalMargin is what is free in a zone after a loss.
type SurvivalMargin struct {
	// Zone is the zone.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone"`
	// Free is what no pod asks for on the nodes of the zone that are ready and not cordoned: of CPU, memory, and whatever
	// else protected pods ask for. What reservations hold is part of it. If replays differ, it is the least.
	// +optional
	Free v1.ResourceList `json:"free,omitempty"`
	// Allocatable is what these nodes have in all.
	// +optional
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
}

// SurvivalReservation is a ZoneReservation of a ZoneSurvival.
type SurvivalReservation struct {
	// Name is that of the ZoneReservation.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	SlotCounts `json:",inline"`
}

// SurvivalMissing is room that reservations ask for and do not hold.
type SurvivalMissing struct {
	// Zone is where the room is missing.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Pods is how many pods of this size lack room.
	// +required
	Pods int64 `json:"pods"`
	// Requests is what each of them asks for.
	// +optional
	Requests v1.ResourceList `json:"requests,omitempty"`
}

// ConditionSurvives is True when in every replay of every loss each protected pod that runs now runs again, False when one
// does not, and Unknown when this cannot be said.
const ConditionSurvives = "Survives"

// Reasons of the condition Survives; ReasonInvalid and ReasonNoZones (no node is in a zone that may be lost) serve it as well.
const (
	// ReasonAllPlaced: Survives is True.
	ReasonAllPlaced = "AllPlaced"
	// ReasonPodsWait: Survives is False; the message has the first witness.
	ReasonPodsWait = "PodsWait"
	// ReasonNoPods: the workloads select no running pod.
	ReasonNoPods = "NoPods"
	// ReasonSnapshotIncomplete: the controller may not read everything.
	ReasonSnapshotIncomplete = "SnapshotIncomplete"
	// ReasonReplayFailed: a replay did not come to an end.
	ReasonReplayFailed = "ReplayFailed"
	// ReasonClusterChanged: Survives was True of another state of the cluster, and the next full round has not answered yet.
	ReasonClusterChanged = "ClusterChanged"
)

// ConditionServes is there if spec.impaired is set. It is True when without the pods of any one zone enough of each protected workload are
// ready, and Unknown when this cannot be said.
const ConditionServes = "Serves"

// Reasons of the condition Serves; ReasonInvalid and ReasonNoPods serve it as well.
const (
	// ReasonEnoughServing: Serves is True.
	ReasonEnoughServing = "EnoughServing"
	// ReasonTooFewServing: Serves is False; the message names the first zone and workload.
	ReasonTooFewServing = "TooFewServing"
)

// ConditionHeld is there if spec.hold is set. It is True when the ZoneReservations hold all their slots, and Unknown when this cannot be said.
const ConditionHeld = "Held"

// Reasons of the condition Held; ReasonHeldFractionReached and ReasonFilling serve it as well.
const (
	// ReasonRoomHeld: Held is True.
	ReasonRoomHeld = "RoomHeld"
	// ReasonRoomMissing: slots lack room; status.missing has it.
	ReasonRoomMissing = "RoomMissing"
	// ReasonReservationNotOwned: there is a ZoneReservation of that name already, which belongs to something else. It is left alone.
	ReasonReservationNotOwned = "ReservationNotOwned"
	// ReasonReservationNotWritten: the API server has refused the ZoneReservation.
	ReasonReservationNotWritten = "ReservationNotWritten"
)
