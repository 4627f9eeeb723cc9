package native

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/plugins/permitgate/gang"
)

// CompositeFeature is kube-scheduler's gate for composite groups, which 1.36 does not have.
const CompositeFeature = "CompositePodGroup"

// Composites are the composite groups that the scheduler's informer shows: none.
type Composites struct{}

// WatchComposites is not called without the gate.
func WatchComposites(
	informers.SharedInformerFactory, func(types.NamespacedName, gang.Composite), func(types.NamespacedName),
) (*Composites, toolscache.InformerSynced, error) {
	return nil, nil, errors.New("composite groups are guarded from Kubernetes 1.37 on")
}

// Of returns none.
func (*Composites) Of(string) map[types.NamespacedName]gang.Composite { return nil }
