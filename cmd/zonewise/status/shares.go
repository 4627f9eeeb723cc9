package status

import (
	"fmt"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/show"
)

// SharesText puts how many slots are used, held and desired into words, as in "1/5/5".
func SharesText(slots v1alpha1.SlotCounts) string {
	return fmt.Sprintf("%d/%d/%d", slots.Used, slots.Held, slots.Desired)
}

// HeldShare returns how much is held, in percent of what is desired, and puts what is missing into words, empty if
// nothing is.
func HeldShare(slots v1alpha1.SlotCounts) (percent int64, missing string) {
	if slots.Held < slots.Desired {
		missing = show.Plural(int(slots.Desired-slots.Held), "slot")
	}
	return 100 * slots.Held / max(1, slots.Desired), missing
}
