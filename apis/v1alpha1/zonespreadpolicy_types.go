package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ZoneSpreadPolicy says how the pods that it selects are spread over the zones of the cluster, beyond what a pod's
// topologySpreadConstraints can say: weights, caps, quorum safety, and what happens when a zone is
// dead or full. It applies to pods of its own namespace that the Zonewise scheduler places, and evicts none.
// If several policies select a pod, the pod goes to zones that all of them allow, and their scores are averaged.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=zonespreadpolicies,singular=zonespreadpolicy,scope=Namespaced,shortName=zsp,categories=zonewise
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`,description="Pods that are placed"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`,description="Pods that are desired"
// +kubebuilder:printcolumn:name="Skew",type=integer,JSONPath=`.status.skew`,description="Weighted skew, to be compared with spec.maxSkew"
// +kubebuilder:printcolumn:name="Satisfied",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfied")].status`
// +kubebuilder:printcolumn:name="Infeasible",type=string,JSONPath=`.status.conditions[?(@.type=="Infeasible")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ZoneSpreadPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how to spread.
	// +required
	Spec ZoneSpreadPolicySpec `json:"spec"`

	// Status has what decisions about unavailable zones depend on, and a report.
	// +optional
	Status ZoneSpreadPolicyStatus `json:"status,omitzero"`
}

// ZoneSpreadPolicyList is a list of ZoneSpreadPolicy.
//
// +kubebuilder:object:root=true
type ZoneSpreadPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZoneSpreadPolicy `json:"items"`
}

// Defaults of the spec. The CustomResourceDefinition carries the same values; the constants serve objects that
// never passed through an API server, and fields whose default depends on another field.
const (
	DefaultTopologyKey     = "topology.kubernetes.io/zone"
	DefaultZoneWeight      = int32(1)
	DefaultMaxSkew         = int32(1)
	DefaultDownAfter       = "2m"
	DefaultFullAfter       = "5m"
	DefaultRecoveryWindow  = "10m"
	DefaultPodTemplateHash = "pod-template-hash"
	// RolloutsPodTemplateHash is what Argo Rollouts gives the pods of a revision.
	RolloutsPodTemplateHash = "rollouts-pod-template-hash"
)

// ZoneSpreadPolicySpec says how to spread.
//
// +kubebuilder:validation:XValidation:rule="self.defaultWeight > 0 || (has(self.zones) && self.zones.exists(z, z.weight > 0))",message="spec.zones: at least one weight must be above 0 when spec.defaultWeight is 0: no zone would be allowed",fieldPath=".zones",reason="FieldValueInvalid"
// +kubebuilder:validation:XValidation:rule="self.unit != 'PodGroup' || !has(self.replicas) || type(self.replicas) == int || self.replicas != 'Owner'",message="spec.replicas: must be Matching or a number when spec.unit is PodGroup: the replicas of workloads are pods, not gangs",fieldPath=".replicas",reason="FieldValueInvalid"
// +kubebuilder:validation:XValidation:rule="!has(self.minZones) || self.defaultWeight > 0 || !has(self.zones) || self.minZones <= self.zones.filter(z, z.weight > 0).size()",message="spec.minZones: must not be above the number of zones with a weight above 0 when spec.defaultWeight is 0",fieldPath=".minZones",reason="FieldValueInvalid"
// +kubebuilder:validation:XValidation:rule="self.unit != 'PodGroup' || self.scaleDownPolicy != 'KeepSpread'",message="spec.scaleDownPolicy: must be Ignore when spec.unit is PodGroup: a gang is not made smaller",fieldPath=".scaleDownPolicy",reason="FieldValueInvalid"
type ZoneSpreadPolicySpec struct {
	// PodSelector selects the pods of this namespace that the policy spreads. It must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="spec.podSelector: must not be empty: set matchLabels or matchExpressions"
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// MatchLabelKeys are label keys: only pods that have the incoming pod's values of these labels are counted for it.
	// A key that the incoming pod lacks is ignored. Skew and caps then apply to one revision at a time, so that a
	// rollout's surge is not refused because of the pods that it replaces. Defaults to [pod-template-hash,
	// rollouts-pod-template-hash], which only the pods of a Deployment or of a Rollout have. Set it to [] to count all revisions together. A
	// Deployment with maxUnavailable 0 whose replicas fill the caps exactly then cannot roll out.
	// +optional
	// +listType=set
	// +kubebuilder:default={"pod-template-hash","rollouts-pod-template-hash"}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	MatchLabelKeys []string `json:"matchLabelKeys,omitzero"`

	// Unit is what the policy counts: Pod, the default, or PodGroup. With PodGroup a gang, which is all pods with the same
	// value of the label scheduling.x-k8s.io/pod-group, counts as one in each zone that has one of them. The gang of the
	// incoming pod does not count, so that all its members are treated alike. Caps, quorumSafe and replicas are then
	// numbers of gangs. Pods without the label count one by one.
	// +optional
	// +kubebuilder:default=Pod
	Unit Unit `json:"unit,omitempty"`

	// TopologyKey is the node label whose value is the zone of a node. It cannot be changed later, since the
	// status has zones by name. A node without the label is refused under DoNotSchedule. kubernetes.io/hostname is
	// not allowed, since a policy keeps state for each zone: use topologySpreadConstraints to spread over hosts.
	// +optional
	// +kubebuilder:default="topology.kubernetes.io/zone"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.topologyKey: cannot be changed: delete the policy and create it again"
	// +kubebuilder:validation:XValidation:rule="self != 'kubernetes.io/hostname'",message="spec.topologyKey: must not be kubernetes.io/hostname: use topologySpreadConstraints to spread over hosts"
	TopologyKey string `json:"topologyKey,omitempty"`

	// Zones declares zones with their weights and caps. A declared zone exists even while it has no node: it
	// counts as a zone with no pods, so pods wait for it rather than crowd the other zones. A zone that is not listed
	// has defaultWeight and no maxPods.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Zones []ZoneSpreadZone `json:"zones,omitempty"`

	// DefaultWeight is the weight of a zone that is not listed in zones. 0 forbids such zones. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	DefaultWeight *int32 `json:"defaultWeight,omitempty"`

	// MaxSkew is by how many pods a zone may be ahead of its share, measured against the zone with the
	// smallest pods/weight: pods in the zone - weight of the zone * (smallest pods/weight) <= maxSkew. With equal
	// weights this is the maxSkew of topologySpreadConstraints. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxSkew int32 `json:"maxSkew,omitempty"`

	// MaxPerZone is the most pods that a zone may hold: a number, or a percentage of the desired replicas such as
	// "40%" (more than 0%, at most 100%). A percentage is never less than 1 pod. The limit also applies while zones are
	// unavailable. See replicas for which pods count. Without it there is no such limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 1 && int(self) <= 1000000 : string(self).matches('^([1-9][0-9]?|100)%$')",message="spec.maxPerZone: must be a number of pods from 1 to 1000000, or a percentage from \"1%\" to \"100%\""
	MaxPerZone *intstr.IntOrString `json:"maxPerZone,omitempty"`

	// PercentRounding says how a percentage in maxPerZone is rounded to a number of pods. Down is stricter; Up, the
	// default, allows small replica counts to be placed.
	// +optional
	// +kubebuilder:default=Up
	PercentRounding PercentRounding `json:"percentRounding,omitempty"`

	// QuorumSafe keeps every zone below half of the desired replicas, so that a majority remains after the
	// loss of any one zone. It needs at least 3 replicas and at least 3 zones (4 zones for 4 replicas). If that is
	// impossible, the condition Infeasible is True.
	// +optional
	// +kubebuilder:default=false
	QuorumSafe bool `json:"quorumSafe,omitempty"`

	// MinZones is how many zones must be available. With fewer, the emptiest zone counts as holding no pods, so no zone
	// takes more than maxSkew pods, as with minDomains of topologySpreadConstraints.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MinZones *int32 `json:"minZones,omitempty"`

	// WhenUnsatisfiable says what happens to a pod that the policy allows no zone. DoNotSchedule, the default: it
	// waits. ScheduleAnyway: the policy (skew, caps and forbidden zones alike) refuses no node and only prefers zones,
	// those within the caps before all others.
	// +optional
	// +kubebuilder:default=DoNotSchedule
	WhenUnsatisfiable UnsatisfiableAction `json:"whenUnsatisfiable,omitempty"`

	// NodeAffinityPolicy says whether nodes that the pod's node selector or required node affinity excludes
	// are left out of the zones (Honor, the default) or counted (Ignore).
	// +optional
	// +kubebuilder:default=Honor
	NodeAffinityPolicy InclusionPolicy `json:"nodeAffinityPolicy,omitempty"`

	// NodeTaintsPolicy says whether nodes with a taint that the pod does not tolerate are left out of the
	// zones (Honor, the default) or counted (Ignore).
	// +optional
	// +kubebuilder:default=Honor
	NodeTaintsPolicy InclusionPolicy `json:"nodeTaintsPolicy,omitempty"`

	// Replicas is the number that percentages and quorumSafe refer to. It also says which pods the caps count.
	//
	// Owner, the default: the desired replicas of the incoming pod's own workload, which is its Deployment,
	// StatefulSet, Job, or a ReplicaSet or ReplicationController without a controller. The caps apply to each workload
	// separately. For a pod without such a workload, percentages and quorumSafe refuse nothing.
	// Matching: the live pods that the policy selects, waiting ones too. The caps apply to all of them together.
	// A positive number: that number. The caps apply to all selected pods together.
	//
	// With unit PodGroup the default is Matching, and Owner is not allowed.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 1 && int(self) <= 1000000 : string(self) in ['Owner', 'Matching']",message="spec.replicas: must be Owner, Matching or a number from 1 to 1000000"
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`

	// UnavailableZones says when a zone counts as unavailable, and how it comes back. The others may take the
	// share of an unavailable zone, up to the caps. No pod is evicted. A very long duration turns that kind of
	// fail-over off.
	// +optional
	// +kubebuilder:default={}
	UnavailableZones UnavailableZones `json:"unavailableZones,omitzero"`

	// ScaleDownPolicy says which pods leave when a workload is made smaller. Ignore, the default: those that its controller
	// chooses, which knows no zones. KeepSpread: those of the fullest zone first, by the weights. The
	// controller that runs with --deletion-costs tells this to the controllers of ReplicaSets and ReplicationControllers, by the
	// annotation controller.kubernetes.io/pod-deletion-cost of the pods; other controllers do not look at it. Costs of anybody
	// else stay. See the condition ScaleDownOrdered.
	// +optional
	// +kubebuilder:default=Ignore
	ScaleDownPolicy ScaleDownPolicy `json:"scaleDownPolicy,omitempty"`
}

// ZoneSpreadZone is one declared zone.
type ZoneSpreadZone struct {
	// Name is the zone's name: the value of the topology key on its nodes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Name string `json:"name"`

	// Weight is the zone's share of the pods, relative to the weights of the other zones. 0 forbids the zone.
	// Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Weight *int32 `json:"weight,omitempty"`

	// MaxPods is the most pods that the zone may hold. Without it only maxPerZone and quorumSafe limit the zone.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxPods *int32 `json:"maxPods,omitempty"`
}

// UnavailableZones says when a zone counts as unavailable, and how it comes back.
//
// +kubebuilder:validation:XValidation:rule="self.recovery == 'Gradual' || !has(self.recoveryWindow)",message="spec.unavailableZones.recoveryWindow: may only be set when recovery is Gradual",fieldPath=".recoveryWindow",reason="FieldValueForbidden"
type UnavailableZones struct {
	// DownAfter is how long a zone that has had an open node, one that is Ready and not cordoned, must have had none before
	// it is closed. Pods make no difference to that. Defaults to 2m.
	// +optional
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) > duration('0s')",message="spec.unavailableZones.downAfter: must be a duration above 0, such as 2m"
	DownAfter *metav1.Duration `json:"downAfter,omitempty"`

	// FullAfter is how long all eligible nodes of a zone must have refused the pods of a workload, for reasons other than
	// spreading over the zones, before the zone is full for that workload. Defaults to 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) > duration('0s')",message="spec.unavailableZones.fullAfter: must be a duration above 0, such as 5m"
	FullAfter *metav1.Duration `json:"fullAfter,omitempty"`

	// Recovery says how a zone comes back. Gradual, the default: new pods prefer the zone, but it does not hold the other
	// zones back until it has caught up with them or recoveryWindow has passed. Immediate: it counts at once, so pods
	// wait for it as long as it is behind.
	// +optional
	// +kubebuilder:default=Gradual
	Recovery RecoveryMode `json:"recovery,omitempty"`

	// RecoveryWindow is the longest that Gradual lasts. Defaults to 10m; may only be set with Gradual.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) > duration('0s')",message="spec.unavailableZones.recoveryWindow: must be a duration above 0, such as 10m"
	RecoveryWindow *metav1.Duration `json:"recoveryWindow,omitempty"`
}

// Unit is what a policy counts.
// +kubebuilder:validation:Enum=Pod;PodGroup
type Unit string

// The units.
const (
	UnitPod      Unit = "Pod"
	UnitPodGroup Unit = "PodGroup"
)

// PodGroupLabel is the label of a pod that names its gang, see UnitPodGroup. It is the label of scheduler-plugins'
// PodGroup.
const PodGroupLabel = "scheduling.x-k8s.io/pod-group"

// ShownToAutoscalersAnnotation is a topology key: the pod's ScheduleAnyway constraint over it only shows a policy to autoscalers, which know constraints
// and no policies. The policy decides, and the scheduler does not count the constraint as well.
const ShownToAutoscalersAnnotation = "zonewise.dev/shown-to-autoscalers"

// PercentRounding is a direction of rounding.
// +kubebuilder:validation:Enum=Up;Down
type PercentRounding string

// The directions of rounding.
const (
	RoundUp   PercentRounding = "Up"
	RoundDown PercentRounding = "Down"
)

// UnsatisfiableAction says what happens to a pod that the policy allows no zone.
// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
type UnsatisfiableAction string

// The actions; the names are those of topologySpreadConstraints.
const (
	DoNotSchedule  UnsatisfiableAction = "DoNotSchedule"
	ScheduleAnyway UnsatisfiableAction = "ScheduleAnyway"
)

// InclusionPolicy says whether a node that a pod may not use is also left out of the zones.
// +kubebuilder:validation:Enum=Honor;Ignore
type InclusionPolicy string

// The inclusion policies; the names are those of topologySpreadConstraints.
const (
	Honor  InclusionPolicy = "Honor"
	Ignore InclusionPolicy = "Ignore"
)

// RecoveryMode says how an unavailable zone comes back.
// +kubebuilder:validation:Enum=Gradual;Immediate
type RecoveryMode string

// The recovery modes.
const (
	RecoveryGradual   RecoveryMode = "Gradual"
	RecoveryImmediate RecoveryMode = "Immediate"
)

// ScaleDownPolicy says which pods leave when a workload is made smaller.
// +kubebuilder:validation:Enum=Ignore;KeepSpread
type ScaleDownPolicy string

// The scale-down policies.
const (
	ScaleDownIgnore     ScaleDownPolicy = "Ignore"
	ScaleDownKeepSpread ScaleDownPolicy = "KeepSpread"
)

// The words of spec.replicas.
const (
	ReplicasOwner    = "Owner"
	ReplicasMatching = "Matching"
)
