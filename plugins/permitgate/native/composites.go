package native

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// CompositeFeature is kube-scheduler's gate for composite groups.
const CompositeFeature = "CompositePodGroup"

// ReadComposite returns what a composite group asks for. kube-scheduler places one with a basic policy if it can place
// one of its groups.
func ReadComposite(group *CompositeGroup) gang.Composite {
	c := gang.Composite{Parent: parentOf(group.Namespace, group.Spec.ParentCompositePodGroupName), MinGroups: 1}
	if policy := group.Spec.SchedulingPolicy.Gang; policy != nil {
		c.MinGroups = int(policy.MinGroupCount)
	}
	return c
}

// Composites are the composite groups that the scheduler's informer shows. Make them with WatchComposites.
type Composites struct {
	lister compositeLister
}

// WatchComposites starts to pass on changes of composite groups, until the factory stops. synced reports whether the
// first list has been seen.
func WatchComposites(
	factory informers.SharedInformerFactory, seen func(types.NamespacedName, gang.Composite), gone func(types.NamespacedName),
) (c *Composites, synced toolscache.InformerSynced, err error) {
	composites := compositesOf(factory)
	handler, err := composites.Informer().AddEventHandler(informer.Latest(
		func(group *CompositeGroup) { seen(podgroup.Key(group), ReadComposite(group)) },
		func(group *CompositeGroup) { gone(podgroup.Key(group)) },
	))
	if err != nil {
		return nil, nil, fmt.Errorf("watching CompositePodGroups of scheduling.k8s.io: %w", err)
	}
	return &Composites{composites.Lister()}, handler.HasSynced, nil
}

// Of returns the composite groups of a namespace.
func (c *Composites) Of(namespace string) map[types.NamespacedName]gang.Composite {
	groups, _ := c.lister.CompositePodGroups(namespace).List(labels.Everything()) // a lister over memory does not fail
	all := make(map[types.NamespacedName]gang.Composite, len(groups))
	for _, group := range groups {
		all[podgroup.Key(group)] = ReadComposite(group)
	}
	return all
}
