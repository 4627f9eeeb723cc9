package permitgate

import (
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/permitgate/plan"
)

// minResources is what a PodGroup says that its members take together.
type minResources v1.ResourceList

// lacking says in words of what the cluster has too little for the gang, empty when it has enough. What the gang's
// own members take counts as free.
func (m minResources) lacking(cluster *view) string {
	return plan.Shortage(v1.ResourceList(m), cluster, func(names []v1.ResourceName, total []int64) {
		for _, info := range cluster.nodes {
			for _, one := range info.GetPods() {
				if !cluster.member(one.GetPod().UID) {
					continue
				}
				for j, amount := range gainOf(one, names) {
					total[j] += amount
				}
			}
		}
	})
}
