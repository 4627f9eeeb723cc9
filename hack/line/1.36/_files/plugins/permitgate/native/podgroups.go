package native

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// Feature is kube-scheduler's gate for pod groups of the API that this package knows, which 1.36 does not have.
const Feature = "GenericWorkloadV1beta1"

// PodGroups are those that the scheduler's informer shows: none.
type PodGroups struct{}

// Watch is not called without the gate.
func Watch(informers.SharedInformerFactory, bool, func(*podgroup.Group), func(*podgroup.Group)) (*PodGroups, toolscache.InformerSynced, error) {
	return nil, nil, errors.New("native gangs are guarded from Kubernetes 1.37 on")
}

// Get returns nil.
func (*PodGroups) Get(types.NamespacedName) *podgroup.Group { return nil }

// PartsOf returns none.
func (*PodGroups) PartsOf(string) []*podgroup.Group { return nil }

// Conditions returns none.
func Conditions(*podgroup.Group) []metav1.Condition { return nil }

// PatchConditions does nothing.
func PatchConditions(context.Context, clientset.Interface, *podgroup.Group, []metav1.Condition) error {
	return nil
}
