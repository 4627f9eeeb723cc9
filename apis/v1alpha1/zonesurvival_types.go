package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ZoneSurvival asks whether the pods of selected workloads would all run again after the loss of a zone, or of nodes. The status
// answers: each loss is replayed by the scheduler on a copy of the cluster. With hold, ZoneReservations keep the room that the losses
// need. No pod is moved or evicted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=zonesurvivals,singular=zonesurvival,scope=Cluster,shortName=zsv,categories=zonewise
// +kubebuilder:printcolumn:name="Survives",type=string,JSONPath=`.status.conditions[?(@.type=="Survives")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Survives")].reason`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`,description="Protected pods that run"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`,description="Protected pods that wait already, before any loss"
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.conditions[?(@.type=="Held")].status`,description="Whether the room for the losses is held",priority=1
// +kubebuilder:printcolumn:name="Buying",type=string,JSONPath=`.status.conditions[?(@.type=="Buying")].status`,description="Whether an autoscaler is asked for the room, with spec.buy",priority=1
// +kubebuilder:printcolumn:name="Serves",type=string,JSONPath=`.status.conditions[?(@.type=="Serves")].status`,description="Whether enough pods are ready outside of each zone",priority=1
// +kubebuilder:printcolumn:name="Computed",type=date,JSONPath=`.status.computedAt`,description="How old the answer is"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Survives")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ZoneSurvival struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which pods have to run after which losses.
	// +required
	Spec ZoneSurvivalSpec `json:"spec"`

	// Status is the certificate.
	// +optional
	Status ZoneSurvivalStatus `json:"status,omitzero"`
}

// ZoneSurvivalList is a list of ZoneSurvival.
//
// +kubebuilder:object:root=true
type ZoneSurvivalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZoneSurvival `json:"items"`
}

// ZoneSurvivalSpec says which pods have to run after which losses.
//
// +kubebuilder:validation:XValidation:rule="!has(self.buy) || (has(self.hold) && self.hold)",message="must not be set without hold, which finds out what is missing",reason="FieldValueForbidden",fieldPath=".buy"
type ZoneSurvivalSpec struct {
	// Workloads select the protected pods. A pod that one entry selects is protected, unless it belongs to its node, as
	// the pods of a DaemonSet do.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Workloads []SurvivalWorkload `json:"workloads"`

	// Survive says what may be lost.
	// +required
	Survive SurvivalLosses `json:"survive"`

	// Hold keeps the room that the losses need, in one ZoneReservation for each protected workload: of slots as large as its pods, in each zone as
	// many as pods of it may be there after any one loss. The pods of the workload are the owners; those that run use slots.
	// +optional
	// +kubebuilder:default=false
	Hold bool `json:"hold,omitempty"`

	// Priority protects what is held, as in a ZoneReservation: pods of a higher priority may use it as if it were free. Other pods that
	// are not protected may not. Defaults to
	// the priority of pods without a priority class: that of the cluster's PriorityClass with globalDefault, else 0.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=1000000000
	Priority *int32 `json:"priority,omitempty"`

	// MaxHeldFraction bounds what is held: at most this fraction of the CPU and of the memory that all nodes have, such as "0.25". The
	// scheduler's own maxHeldFraction bounds what all reservations hold together in each zone, and applies as well. Defaults to 1.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1'))",message="spec.maxHeldFraction: must be above 0 and at most 1"
	MaxHeldFraction *resource.Quantity `json:"maxHeldFraction,omitempty"`

	// Buy asks an autoscaler for the nodes that the losses need. It needs hold. The controller does so, if its flag --buy is given.
	// +optional
	Buy *Buy `json:"buy,omitempty"`

	// Impaired bounds what is left when a zone is cut off but not gone: its pods stay and get no traffic, so none is replaced.
	// +optional
	Impaired *SurvivalImpairment `json:"impaired,omitempty"`
}

// SurvivalImpairment bounds what is left without the pods of a zone.
type SurvivalImpairment struct {
	// LeastServing is how many pods of each protected workload have to be ready outside of each zone of spec.survive, of all zones if that is
	// about nodes: a number, or a percentage of the workload's replicas such as "50%", which is rounded up as that of a PodDisruptionBudget's
	// minAvailable.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 && int(self) <= 1000000 : string(self).matches('^([0-9]|[1-9][0-9]|100)%$')",message="spec.impaired.leastServing: must be a number of pods from 0 to 1000000, or a percentage from \"0%\" to \"100%\""
	LeastServing intstr.IntOrString `json:"leastServing"`
}

// SurvivalWorkload selects pods of one namespace.
type SurvivalWorkload struct {
	// Namespace is the namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// PodSelector selects the pods by their labels. It must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="spec.workloads[*].podSelector: must not be empty: set matchLabels or matchExpressions"
	PodSelector metav1.LabelSelector `json:"podSelector"`
}

// SurvivalLosses say what may be lost.
//
// +kubebuilder:validation:XValidation:rule="[has(self.zones), has(self.zoneNames) && size(self.zoneNames) > 0, has(self.nodes)].exists_one(set, set)",message="spec.survive: exactly one of zones, zoneNames and nodes must be set",reason="FieldValueInvalid"
type SurvivalLosses struct {
	// Zones is how many zones may be lost at once: 1, which is any one zone of the cluster.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1
	Zones *int32 `json:"zones,omitempty"`

	// ZoneNames are zones of which each may be lost, one at a time: values of topology.kubernetes.io/zone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	ZoneNames []string `json:"zoneNames,omitempty"`

	// Nodes is how many nodes may be lost at once: 1, which is any one node of the cluster.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1
	Nodes *int32 `json:"nodes,omitempty"`
}
