package deletioncosts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/internal/pods"
)

// fieldManager is who owns the annotation of the part's costs, see package snapshot: copies keep who does.
const fieldManager = "zonewise-deletion-costs"

// isOurs reports whether the part alone has given a pod its cost.
func isOurs(pod *v1.Pod) bool {
	_, has := pod.Annotations[v1.PodDeletionCost]
	return has && len(pod.ManagedFields) == 1 &&
		pod.ManagedFields[0].Manager == fieldManager && pod.ManagedFields[0].Operation == metav1.ManagedFieldsOperationApply
}

// costOf returns the cost that the part has given a pod, 0 without one; false if it has one of somebody else.
func costOf(pod *v1.Pod) (cost int32, ok bool) {
	text, has := pod.Annotations[v1.PodDeletionCost]
	if !has {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err == nil && isOurs(pod)
}

// foreignCost says who else has given a pod a cost; empty if nobody has.
func foreignCost(pod *v1.Pod) string {
	if _, has := pod.Annotations[v1.PodDeletionCost]; !has || isOurs(pod) {
		return ""
	}
	var managers []string
	for _, f := range pod.ManagedFields {
		if f.Manager != fieldManager {
			managers = append(managers, f.Manager)
		}
	}
	return fmt.Sprintf(
		"Pod %s has a deletion cost of %s", pod.Name, cmp.Or(strings.Join(managers, ", "), "somebody else"),
	)
}

const (
	// placeKept is how long a pod that has ceased to be ready keeps its place: most are ready again soon, and the costs
	// of others stay.
	placeKept = 5 * time.Minute
	// firstStart is within what time after its binding a pod that is not ready has not been ready yet.
	firstStart = 30 * time.Second
)

// keepsPlace reports whether a pod that is not ready was so a short time ago.
func keepsPlace(pod *v1.Pod, now time.Time) bool {
	ready, bound := pods.Condition(pod, v1.PodReady), pods.Condition(pod, v1.PodScheduled)
	return ready != nil && bound != nil && ready.LastTransitionTime.Sub(bound.LastTransitionTime.Time) > firstStart &&
		now.Sub(ready.LastTransitionTime.Time) < placeKept
}

// assign gives the pods of a zone its costs, the highest first. A pod keeps a cost that it has; the others get what is
// left, those that should stay longest the highest.
func assign(zone []*v1.Pod, costs []int32, out map[*v1.Pod]int32) {
	free := slices.Clone(costs)
	var without []*v1.Pod
	for _, pod := range stayOrder(zone) {
		current, _ := costOf(pod)
		if i := slices.Index(free, current); i >= 0 {
			free = slices.Delete(free, i, i+1)
			out[pod] = current
			continue
		}
		without = append(without, pod)
	}
	for i, pod := range without {
		out[pod] = free[i]
	}
}

// stayOrder returns the pods with those first that should stay longest: one of each node before a second one of any,
// the oldest first, as the controller of a ReplicaSet does that knows no costs.
func stayOrder(zone []*v1.Pod) []*v1.Pod {
	sorted := slices.SortedFunc(slices.Values(zone), func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	before, onNode := map[*v1.Pod]int{}, map[string]int{}
	for _, pod := range sorted {
		before[pod] = onNode[pod.Spec.NodeName]
		onNode[pod.Spec.NodeName]++
	}
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int { return cmp.Compare(before[a], before[b]) })
	return sorted
}
