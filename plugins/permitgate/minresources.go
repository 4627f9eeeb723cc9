package permitgate

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// minResources is what a PodGroup says that its members take together.
type minResources v1.ResourceList

// lacking says in words of what the cluster has too little for the gang, empty when it has enough. What the gang's
// own members take counts as free.
func (m minResources) lacking(cluster *view) string {
	if len(m) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(m))
	total, free := make([]int64, len(names)), make([]int64, len(names))
	for i, info := range cluster.nodes {
		cluster.Free(i, names, free)
		for j := range names {
			total[j] += max(0, free[j])
		}
		for _, one := range info.GetPods() {
			if !cluster.member(one.GetPod().UID) {
				continue
			}
			for j, amount := range gainOf(one, names) {
				total[j] += amount
			}
		}
	}
	for j, name := range names {
		quantity := m[name]
		want := quantity.Value()
		if name == v1.ResourceCPU {
			want = quantity.MilliValue()
		}
		if want > total[j] {
			return string(name) + ": " + quantity.String() + " wanted, " + amountWords(name, total[j]) + " free in the cluster"
		}
	}
	return ""
}

// amountWords writes an amount as a person would.
func amountWords(name v1.ResourceName, amount int64) string {
	if name == v1.ResourceCPU {
		return resource.NewMilliQuantity(amount, resource.DecimalSI).String()
	}
	format := resource.DecimalSI
	if name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
		format = resource.BinarySI
	}
	return resource.NewQuantity(amount, format).String()
}
