package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Buy asks an autoscaler for the room that is missing, and for that of what is held and unused: to an autoscaler held room is free, so
// it would remove nodes on which nothing else is. One part of the request is as large as one pod.
type Buy struct {
	// Autoscaler is the API by which autoscalers are asked. CapacityBuffer, the default: a CapacityBuffer of autoscaling.x-k8s.io for each zone
	// and size, and a PodTemplate of the same name.
	// +optional
	// +kubebuilder:default=CapacityBuffer
	Autoscaler AutoscalerAPI `json:"autoscaler,omitempty"`

	// Namespace is where these objects are.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// Max is how many pods' room is asked for at most, in all zones together.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Max int32 `json:"max"`

	// PriorityClassName is that of the PodTemplates. Cluster Autoscaler drops pods below its --expendable-pods-priority-cutoff, and
	// lets pods of a higher priority take free room first.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Labels are added to the CapacityBuffers, to the PodTemplates, and to the pods of these.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(name, name.startsWith('zonewise.dev/'))",message="spec.buy.labels: names that start with zonewise.dev/ are Zonewise's own"
	Labels map[string]string `json:"labels,omitempty"`
}

// AutoscalerAPI is an API by which autoscalers are asked.
// +kubebuilder:validation:Enum=CapacityBuffer
type AutoscalerAPI string

// AutoscalerCapacityBuffer is the API of CapacityBuffers.
const AutoscalerCapacityBuffer AutoscalerAPI = "CapacityBuffer"

// BuyStatus says what an autoscaler is asked for.
type BuyStatus struct {
	// Wanted is how many pods' room is held and unused, or missing.
	// +optional
	Wanted int64 `json:"wanted"`

	// Asked is how many pods' room is asked for: more than wanted for some minutes after less is wanted, and less if spec.buy.max,
	// the loss of a zone or owners that are about to be placed are in the way.
	// +optional
	Asked int64 `json:"asked"`

	// Buffers are the CapacityBuffers, the first 100 by zone and name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Buffers []BuyBuffer `json:"buffers,omitempty"`
}

// BuyBuffer is one CapacityBuffer.
type BuyBuffer struct {
	// Name is that of the CapacityBuffer and of its PodTemplate.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Zone is where the nodes are to be. It is empty if any zone will do.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Requests is what each pod asks for. It is left out where nothing is wanted any more.
	// +optional
	Requests v1.ResourceList `json:"requests,omitempty"`
	// Wanted and Asked are the zone's and the size's share of those in all.
	// +optional
	Wanted int64 `json:"wanted"`
	// +optional
	Asked int64 `json:"asked"`
	// AskedSince is when asked became what it is.
	// +optional
	AskedSince metav1.Time `json:"askedSince,omitzero"`
	// Answer is what the autoscaler says: the conditions of the CapacityBuffer.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Answer string `json:"answer,omitempty"`
}

// ConditionBuying is there if spec.buy is set. It is True when an autoscaler is asked for what is wanted, False when it is not, and Unknown
// when no autoscaler has answered.
const ConditionBuying = "Buying"

// Reasons of the condition Buying; ReasonExpired serves it as well.
const (
	// ReasonAsked: Buying is True.
	ReasonAsked = "Asked"
	// ReasonNothingWanted: Buying is True, and nothing is held and unused, or missing.
	ReasonNothingWanted = "NothingWanted"
	// ReasonFrozen: Buying is True, and no more is asked for until a zone has usable nodes again, or until it is known what is wanted.
	ReasonFrozen = "Frozen"
	// ReasonNotAnswered: Buying is Unknown, since no autoscaler has answered for minutes.
	ReasonNotAnswered = "NotAnswered"
	// ReasonMaxReached: Buying is False, spec.buy.max is in the way.
	ReasonMaxReached = "MaxReached"
	// ReasonNotInstalled: Buying is False, the cluster has no CapacityBuffers.
	ReasonNotInstalled = "NotInstalled"
	// ReasonNotWritten: Buying is False, the API server has refused an object; the message has its words.
	ReasonNotWritten = "NotWritten"
)
