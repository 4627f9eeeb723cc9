package native

import (
	scheduling "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/client-go/informers"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1alpha3"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1alpha3"
)

// CompositeGroup is a composite group in the version that kube-scheduler reads.
type CompositeGroup = scheduling.CompositePodGroup

type compositeLister = schedulinglisters.CompositePodGroupLister

func compositesOf(factory informers.SharedInformerFactory) schedulinginformers.CompositePodGroupInformer {
	return factory.Scheduling().V1alpha3().CompositePodGroups()
}
