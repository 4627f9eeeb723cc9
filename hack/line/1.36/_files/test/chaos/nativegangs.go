package chaos

import (
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Kubernetes 1.36 has native gangs in another API, and they are not guarded.
const (
	hasNativeGangs = false
	nativeGates    = ""
)

var (
	nativeFlags map[string]string
	nativeKinds []client.Object
)

func nativeObjects([]*gang) []wantedObjects { return nil }

func updateNativeGroup(client.Object, client.Object) bool { return false }

func joinNativeGang(*v1.Pod, string) {}

func nativeGroupOf(string, []byte) (*schedulingv1alpha1.PodGroup, error) { return nil, nil }
