// Package amount converts between quantities of a resource and the whole numbers that the scheduler computes with:
// thousandths of a core for cpu, units for all others.
package amount

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Of returns a quantity of a resource as a number, rounded up.
func Of(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Quantity is the inverse of Of: it returns n as a quantity, in the usual format of that resource.
func Quantity(name v1.ResourceName, n int64) *resource.Quantity {
	switch name {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI)
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI)
	}
	return resource.NewQuantity(n, resource.DecimalSI)
}
