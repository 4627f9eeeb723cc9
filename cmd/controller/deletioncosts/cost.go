package deletioncosts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldManager owns the annotation of the part's costs, see package snapshot: copies keep who does.
const fieldManager = "zonewise-deletion-costs"

// hasOwnCost reports whether the part alone has given a pod its cost.
func hasOwnCost(pod *v1.Pod) bool {
	_, has := pod.Annotations[v1.PodDeletionCost]
	return has && len(pod.ManagedFields) == 1 &&
		pod.ManagedFields[0].Manager == fieldManager && pod.ManagedFields[0].Operation == metav1.ManagedFieldsOperationApply
}

// currentCost returns the cost that the part has given a pod, 0 without one.
func currentCost(pod *v1.Pod) int32 {
	if !hasOwnCost(pod) {
		return 0
	}
	// The part writes numbers alone. What is malformed counts as 0, as to the controllers of ReplicaSets.
	cost, _ := strconv.ParseInt(pod.Annotations[v1.PodDeletionCost], 10, 32)
	return int32(cost)
}

// foreignCost says who else has given a pod a cost; empty if the pod has none, or ours.
func foreignCost(pod *v1.Pod) string {
	if _, has := pod.Annotations[v1.PodDeletionCost]; !has || hasOwnCost(pod) {
		return ""
	}
	var managers []string
	for _, f := range pod.ManagedFields {
		if f.Manager != fieldManager {
			managers = append(managers, f.Manager)
		}
	}
	writers := cmp.Or(strings.Join(managers, ", "), "another writer")
	return fmt.Sprintf("Pod %s has a deletion cost of %s", pod.Name, writers)
}

// assignCosts returns the costs of pods, given those of the ranks 0 to len(pods)-1. A pod keeps a cost that is among
// them, and of the others the oldest gets the highest that is free.
func assignCosts(pods []*v1.Pod, costs []int32) map[*v1.Pod]int32 {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	free, out := slices.Clone(costs), map[*v1.Pod]int32{}
	for _, pod := range pods {
		if i := slices.Index(free, currentCost(pod)); i >= 0 {
			out[pod] = free[i]
			free = slices.Delete(free, i, i+1)
		}
	}
	for _, pod := range pods {
		if _, kept := out[pod]; !kept {
			out[pod], free = free[0], free[1:]
		}
	}
	return out
}
