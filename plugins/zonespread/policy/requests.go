package policy

import (
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// Requests are what a pod asks for, by resource: thousandths of a core for cpu, units for all others. What is not asked for
// is absent.
type Requests map[v1.ResourceName]int64

// RequestsOf returns the requests of a pod, init containers and overhead included.
func RequestsOf(pod *v1.Pod) Requests {
	return requestsFrom(resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

func requestsFrom(list v1.ResourceList) Requests {
	r := make(Requests, len(list))
	for name, quantity := range list {
		amount := quantity.Value()
		if name == v1.ResourceCPU {
			amount = quantity.MilliValue()
		}
		if amount > 0 {
			r[name] = amount
		}
	}
	return r
}

// list is what requestsFrom reads.
func (r Requests) list() v1.ResourceList {
	list := make(v1.ResourceList, len(r))
	for name, amount := range r {
		switch name {
		case v1.ResourceCPU:
			list[name] = *apiresource.NewMilliQuantity(amount, apiresource.DecimalSI)
		case v1.ResourceMemory, v1.ResourceEphemeralStorage:
			list[name] = *apiresource.NewQuantity(amount, apiresource.BinarySI)
		default:
			list[name] = *apiresource.NewQuantity(amount, apiresource.DecimalSI)
		}
	}
	return list
}

// Within tells whether a pod that asks for r asks for no more than one that asks for o, of any resource.
func (r Requests) Within(o Requests) bool {
	for name, amount := range r {
		if amount > o[name] {
			return false
		}
	}
	return true
}
