package policy

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/internal/amount"
)

// Requests are what a pod asks for, by resource, in the units of package amount. What is not asked for
// is absent.
type Requests map[v1.ResourceName]int64

// RequestsOf returns the requests of a pod, init containers and overhead included.
func RequestsOf(pod *v1.Pod) Requests {
	return requestsFrom(resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

func requestsFrom(list v1.ResourceList) Requests {
	r := make(Requests, len(list))
	for name, quantity := range list {
		if n := amount.Of(name, quantity); n > 0 {
			r[name] = n
		}
	}
	return r
}

// list is what requestsFrom reads.
func (r Requests) list() v1.ResourceList {
	list := make(v1.ResourceList, len(r))
	for name, n := range r {
		list[name] = *amount.Quantity(name, n)
	}
	return list
}

// Within reports whether r requests no more than o of every resource.
func (r Requests) Within(o Requests) bool {
	for name, n := range r {
		if n > o[name] {
			return false
		}
	}
	return true
}
