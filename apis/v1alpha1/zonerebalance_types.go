package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ZoneRebalance asks how the pods of selected workloads can be brought back to where their ZoneSpreadPolicies and topologySpreadConstraints want
// them, after a zone has come back, a scale-down or a rollout. With mode Plan the status has the moves: which pods to evict, and where the scheduler
// puts the pods in their place. With mode Evict the controller makes them, if it may: a few, and then it looks again.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=zonerebalances,singular=zonerebalance,scope=Cluster,shortName=zrb,categories=zonewise
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Balanced",type=string,JSONPath=`.status.conditions[?(@.type=="Balanced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Balanced")].reason`
// +kubebuilder:printcolumn:name="TooMany",type=integer,JSONPath=`.status.excess`,description="Pods that are more than a rule allows in their zone"
// +kubebuilder:printcolumn:name="Moves",type=integer,JSONPath=`.status.planned`,description="Moves of the plan, with mode Plan"
// +kubebuilder:printcolumn:name="Stopped",type=string,JSONPath=`.status.conditions[?(@.type=="Stopped")].status`
// +kubebuilder:printcolumn:name="Searched",type=date,JSONPath=`.status.searchedAt`,description="When moves were searched last"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Balanced")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ZoneRebalance struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which pods may be moved, and how fast.
	// +required
	Spec ZoneRebalanceSpec `json:"spec"`

	// Status says what is out of balance, and what was moved.
	// +optional
	Status ZoneRebalanceStatus `json:"status,omitzero"`
}

// ZoneRebalanceList is a list of ZoneRebalance.
//
// +kubebuilder:object:root=true
type ZoneRebalanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZoneRebalance `json:"items"`
}

// Defaults of the spec's fields, as the API server fills them in.
const (
	DefaultMaxAtOnce  int32 = 1
	DefaultMaxPerHour int32 = 20
	DefaultAfter            = "5m"
	DefaultCooldown         = "30m"
)

// RebalanceMode is what is done about pods that are too many.
//
// +kubebuilder:validation:Enum=Plan;Evict
type RebalanceMode string

const (
	// RebalancePlan shows what would be moved.
	RebalancePlan RebalanceMode = "Plan"
	// RebalanceEvict moves it.
	RebalanceEvict RebalanceMode = "Evict"
)

// ZoneRebalanceSpec says which pods may be moved, and how fast.
type ZoneRebalanceSpec struct {
	// Workloads select the pods that may be moved: those that one entry selects. Policies and constraints that none of them carries
	// are no reason for a move.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Workloads []SurvivalWorkload `json:"workloads"`

	// Mode is Plan, which shows what would be moved, or Evict, which moves it.
	// +optional
	// +kubebuilder:default=Plan
	Mode RebalanceMode `json:"mode,omitempty"`

	// MaxAtOnce is how many pods are moved together, of a workload never more than one.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MaxAtOnce *int32 `json:"maxAtOnce,omitempty"`

	// MaxPerHour is how many pods are evicted within any hour.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxPerHour *int32 `json:"maxPerHour,omitempty"`

	// After is how long no zone may have lost most of its usable nodes or got them back, and no policy that selects these pods may have changed,
	// before a pod is moved: at most a day.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="spec.after: must be a duration from 0s to 24h"
	After *metav1.Duration `json:"after,omitempty"`

	// Cooldown is how long a workload rests after a move of it has failed or was undone, twice as long after each further one, up to a day. From a
	// minute to a day.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="spec.cooldown: must be a duration from 1m to 24h"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// EvictLocalStorage is true to move pods with an emptyDir on disk, whose content they lose.
	// +optional
	EvictLocalStorage bool `json:"evictLocalStorage,omitempty"`
}
