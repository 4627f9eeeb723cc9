package zonespread

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// defaultSelectors derives the selector that default constraints use for a pod from the objects that
// the pod belongs to.
type defaultSelectors struct {
	services     corelisters.ServiceLister
	controllers  corelisters.ReplicationControllerLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
}

// newDefaultSelectors asks for the listers, which also makes the scheduler start their informers.
func newDefaultSelectors(factory informers.SharedInformerFactory) *defaultSelectors {
	return &defaultSelectors{
		services:     factory.Core().V1().Services().Lister(),
		controllers:  factory.Core().V1().ReplicationControllers().Lister(),
		replicaSets:  factory.Apps().V1().ReplicaSets().Lister(),
		statefulSets: factory.Apps().V1().StatefulSets().Lister(),
	}
}

// selectorFor returns the conjunction of the selectors of all services that select the pod and of its
// controller, if that is a ReplicationController, ReplicaSet or StatefulSet. It is empty when the pod
// belongs to none. Lister errors mean that the object is not there.
func (d *defaultSelectors) selectorFor(pod *v1.Pod) labels.Selector {
	required := d.serviceLabels(pod)

	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return required.AsSelector()
	}
	var ownerSelector *metav1.LabelSelector
	switch owner.APIVersion + "/" + owner.Kind {
	case "v1/ReplicationController":
		if rc, err := d.controllers.ReplicationControllers(pod.Namespace).Get(owner.Name); err == nil {
			required = labels.Merge(required, rc.Spec.Selector)
		}
	case "apps/v1/ReplicaSet":
		if rs, err := d.replicaSets.ReplicaSets(pod.Namespace).Get(owner.Name); err == nil {
			ownerSelector = rs.Spec.Selector
		}
	case "apps/v1/StatefulSet":
		if ss, err := d.statefulSets.StatefulSets(pod.Namespace).Get(owner.Name); err == nil {
			ownerSelector = ss.Spec.Selector
		}
	}
	selector := required.AsSelector()
	if ownerSelector != nil {
		if parsed, err := metav1.LabelSelectorAsSelector(ownerSelector); err == nil {
			if requirements, selectable := parsed.Requirements(); selectable {
				selector = selector.Add(requirements...)
			}
		}
	}
	return selector
}

// serviceLabels merges the selectors of the services that select the pod. They all match the pod, so
// they cannot contradict each other.
func (d *defaultSelectors) serviceLabels(pod *v1.Pod) labels.Set {
	merged := labels.Set{}
	services, err := d.services.Services(pod.Namespace).List(labels.Everything())
	if err != nil {
		return merged
	}
	podLabels := labels.Set(pod.Labels)
	for _, service := range services {
		// A service without a selector has its endpoints managed by hand and selects no pod.
		if service.Spec.Selector == nil || !labels.SelectorFromValidatedSet(service.Spec.Selector).Matches(podLabels) {
			continue
		}
		maps.Copy(merged, service.Spec.Selector)
	}
	return merged
}
