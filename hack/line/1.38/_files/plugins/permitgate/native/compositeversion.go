package native

import (
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/client-go/informers"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1beta1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
)

// CompositeGroup is a composite group in the version that kube-scheduler reads.
type CompositeGroup = scheduling.CompositePodGroup

type compositeLister = schedulinglisters.CompositePodGroupLister

func compositesOf(factory informers.SharedInformerFactory) schedulinginformers.CompositePodGroupInformer {
	return factory.Scheduling().V1beta1().CompositePodGroups()
}
