package workload

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// Resources are what an instance requests or a node offers, by the constants below.
type Resources [5]int64

// The resources and their units.
const (
	CPU    = iota // thousandths of a core
	Memory        // MiB
	GPU           // whole devices
	RDMA          // hundredths of one network card
	Disk          // GiB
)

// described has the names of the resources and the suffixes of their units.
var described = [len(Resources{})]struct {
	name corev1.ResourceName
	unit string
}{
	CPU:    {corev1.ResourceCPU, "m"},
	Memory: {corev1.ResourceMemory, "Mi"},
	GPU:    {"nvidia.com/gpu", ""},
	RDMA:   {"rdma.zonewise.dev/percent", ""},
	Disk:   {corev1.ResourceEphemeralStorage, "Gi"},
}

// HasGPU reports whether there are devices.
func (r Resources) HasGPU() bool { return r[GPU] > 0 }

// plus returns r plus n times o.
func (r Resources) plus(o Resources, n int64) Resources {
	for i := range r {
		r[i] += n * o[i]
	}
	return r
}

// fits reports whether o fits into r in every dimension.
func (r Resources) fits(o Resources) bool {
	for i := range r {
		if o[i] > r[i] {
			return false
		}
	}
	return true
}

// countOf returns how many of o fit into r.
func (r Resources) countOf(o Resources) int {
	n := 0
	for ; r.fits(o); r = r.plus(o, -1) {
		n++
	}
	return n
}

// List returns the amounts above zero.
func (r Resources) List() corev1.ResourceList {
	list := corev1.ResourceList{}
	for i, d := range described {
		if r[i] > 0 {
			list[d.name] = resource.MustParse(fmt.Sprint(r[i]) + d.unit)
		}
	}
	return list
}

// Requirements are those of a container. Limits and requests of extended resources must be equal.
func (r Resources) Requirements() corev1.ResourceRequirements {
	limits := r.List()
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool { return !helper.IsExtendedResourceName(name) })
	return corev1.ResourceRequirements{Requests: r.List(), Limits: limits}
}
