package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// described has the names of the resources, the suffixes of their units, and whether they are extended resources.
var described = [len(Resources{})]struct {
	name     corev1.ResourceName
	unit     string
	extended bool
}{
	CPU:    {corev1.ResourceCPU, "m", false},
	Memory: {corev1.ResourceMemory, "Mi", false},
	GPU:    {"nvidia.com/gpu", "", true},
	RDMA:   {"rdma.zonewise.dev/percent", "", true},
	Disk:   {corev1.ResourceEphemeralStorage, "Gi", false},
}

// HasGPU reports whether there are devices.
func (r Resources) HasGPU() bool { return r[GPU] > 0 }

// add returns r plus n times o.
func (r Resources) add(o Resources, n int64) Resources {
	for i := range r {
		r[i] += n * o[i]
	}
	return r
}

// holds reports whether o fits into r in every dimension.
func (r Resources) holds(o Resources) bool {
	for i := range r {
		if o[i] > r[i] {
			return false
		}
	}
	return true
}

// times returns how many of o fit into r.
func (r Resources) times(o Resources) int {
	n := 0
	for ; r.holds(o); r = r.add(o, -1) {
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
	out := corev1.ResourceRequirements{Requests: r.List(), Limits: corev1.ResourceList{}}
	for _, d := range described {
		if amount, ok := out.Requests[d.name]; ok && d.extended {
			out.Limits[d.name] = amount
		}
	}
	return out
}
