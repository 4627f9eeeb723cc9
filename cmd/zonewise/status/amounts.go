package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
)

// Amount says what a reservation has of a resource, as quantities.
type Amount struct {
	Used    string `json:"used"`
	Held    string `json:"held"`
	Desired string `json:"desired"`
	// missing is desired less held, and percent how much of it is held.
	missing resource.Quantity
	percent int64
}

// Amounts are by resource. Places for pods are not among them: the reservation's numbers count these.
type Amounts map[string]Amount

func amountsOf(a *v1alpha1.ReservationAmounts) Amounts {
	if len(a.Desired) == 0 {
		return nil
	}
	amounts := Amounts{}
	for name, desired := range a.Desired {
		if name == corev1.ResourcePods {
			continue
		}
		held, used := a.Held[name], a.Used[name]
		amount := Amount{Used: used.String(), Held: held.String(), Desired: desired.String(), percent: 100}
		if held.Cmp(desired) < 0 {
			amount.percent = int64(100 * held.AsApproximateFloat64() / desired.AsApproximateFloat64())
			amount.missing = desired.DeepCopy()
			amount.missing.Sub(held)
		}
		amounts[string(name)] = amount
	}
	return amounts
}

// words joins one text for each resource.
func (a Amounts) words(of func(name string, amount *Amount) string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		amount := a[name]
		if text := of(name, &amount); text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, ", ")
}

// Shares puts used, held and desired into words: of slots "1/5/5", of amounts "cpu 500m/3/3, memory 0/6Gi/6Gi".
func (a Amounts) Shares(used, held, desired int64) string {
	if len(a) == 0 {
		return fmt.Sprintf("%d/%d/%d", used, held, desired)
	}
	return a.words(func(name string, x *Amount) string {
		return fmt.Sprintf("%s %s/%s/%s", name, x.Used, x.Held, x.Desired)
	})
}

// Missing puts what is missing into words; it is empty if nothing is.
func (a Amounts) Missing() string {
	return a.words(func(name string, x *Amount) string {
		if x.missing.IsZero() {
			return ""
		}
		return x.missing.String() + " " + name
	})
}

// Percent is how much is held of the resource of which the smallest part is.
func (a Amounts) Percent() int64 {
	least := int64(100)
	for _, x := range a {
		least = min(least, x.percent)
	}
	return least
}
