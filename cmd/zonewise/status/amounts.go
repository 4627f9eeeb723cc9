package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/show"
)

// SharesText puts what is used, held and desired into words: of slots "1/5/5", of amounts "cpu 500m/3/3, memory
// 0/6Gi/6Gi".
func SharesText(slots v1alpha1.SlotCounts, amounts v1alpha1.ReservationAmounts) string {
	if len(amounts.Desired) == 0 {
		return fmt.Sprintf("%d/%d/%d", slots.Used, slots.Held, slots.Desired)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(amounts.Desired)) {
		if used, held, desired := amounts.Used[name], amounts.Held[name], amounts.Desired[name]; name != corev1.ResourcePods {
			parts = append(parts, fmt.Sprintf("%s %s/%s/%s", name, used.String(), held.String(), desired.String()))
		}
	}
	return strings.Join(parts, ", ")
}

// HeldShare returns how much is held, in percent of what is desired, and puts what is missing into words, empty if
// nothing is. Of amounts, the resource counts of which the smallest part is held.
func HeldShare(slots v1alpha1.SlotCounts, amounts v1alpha1.ReservationAmounts) (percent int64, missing string) {
	if len(amounts.Desired) == 0 {
		if slots.Held < slots.Desired {
			missing = show.Plural(int(slots.Desired-slots.Held), "slot")
		}
		return 100 * slots.Held / max(1, slots.Desired), missing
	}
	percent = 100
	lacks := corev1.ResourceList{}
	for name, desired := range amounts.Desired {
		if held := amounts.Held[name]; name != corev1.ResourcePods && held.Cmp(desired) < 0 {
			percent = min(percent, int64(100*held.AsApproximateFloat64()/desired.AsApproximateFloat64()))
			lack := desired.DeepCopy()
			lack.Sub(held)
			lacks[name] = lack
		}
	}
	return percent, strings.Join(Quantities(lacks), ", ")
}
