package plan

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Shortage says in words of what a cluster has too little for a PodGroup's minResources, empty when it has enough. What the
// gang's own members take counts as free: own adds it to the totals of the named resources, in the units of Cluster.Free.
func Shortage(minResources v1.ResourceList, cluster Cluster, own func(names []v1.ResourceName, total []int64)) string {
	if len(minResources) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(minResources))
	total, free := make([]int64, len(names)), make([]int64, len(names))
	for i := range cluster.Len() {
		cluster.Free(i, names, free)
		for j := range names {
			total[j] += max(0, free[j])
		}
	}
	own(names, total)
	for j, name := range names {
		quantity := minResources[name]
		want := quantity.Value()
		if name == v1.ResourceCPU {
			want = quantity.MilliValue()
		}
		if want > total[j] {
			return string(name) + ": " + quantity.String() + " wanted, " + Amount(name, total[j]) + " free in the cluster"
		}
	}
	return ""
}

// ShortageWords says why a gang is not planned that needs minMember members; short is what Shortage has said.
func ShortageWords(minMember int, short string) string {
	return fmt.Sprintf("needs %d, and spec.minResources are not there: %s", minMember, short)
}

// Amount writes an amount of a resource, in the unit of Cluster.Free, as people do.
func Amount(name v1.ResourceName, amount int64) string {
	switch name {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(amount, resource.DecimalSI).String()
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(amount, resource.BinarySI).String()
	}
	return resource.NewQuantity(amount, resource.DecimalSI).String()
}
