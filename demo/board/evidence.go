package board

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Evidence is what the board is computed from. The lists must have been read
// from the API server at one moment at which nothing was in motion.
type Evidence struct {
	Nodes       []corev1.Node
	Pods        []corev1.Pod
	Deployments []appsv1.Deployment
	PodGroups   []schedv1alpha1.PodGroup
	// Metrics are the scheduler's.
	Metrics Metrics
	// Bindings are all that were seen, of pods that are gone as well.
	Bindings []Binding
	// MostBound is the most members of a gang, by its name, that were seen
	// bound at the same time.
	MostBound map[string]int
	// Phases are the parts of the run, in order.
	Phases []Phase
	// AppLabel is the label whose value joins Deployments into one service.
	AppLabel string
	// FitsAnnotation is "true" on a PodGroup of which it is known that the
	// cluster can hold it whole.
	FitsAnnotation string
	// Version is the API server's.
	Version string
}

// Binding says when a watcher first saw a pod and when it saw it bound.
type Binding struct {
	UID     types.UID
	Created time.Time
	Bound   time.Time
}

// Phase is a part of the run, with its bounds on the same clock as Bindings.
type Phase struct {
	Name  string
	Start time.Time
	End   time.Time
}
