package policy

import (
	"cmp"
	"slices"

	"zonewise.dev/apis/v1alpha1"
)

// NamespaceLimit is how many policies apply in one namespace: its oldest. Younger ones are rejected until an older one
// is gone. All of them may select the same pod, and a scheduling cycle pays for each, so without a limit a tenant could
// delay the pods of all others.
const NamespaceLimit = 100

// Older orders policies by age. Policies of one second have the order of their UIDs, which is the same after a restart.
func Older(a, b *v1alpha1.ZoneSpreadPolicy) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

// WithinLimit returns those policies that are within NamespaceLimit, given all that exist, in the same order. The
// others do not apply. It does not compile them.
func WithinLimit(all []*v1alpha1.ZoneSpreadPolicy) []*v1alpha1.ZoneSpreadPolicy {
	byNamespace := map[string][]*v1alpha1.ZoneSpreadPolicy{}
	for _, p := range all {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	beyond := map[*v1alpha1.ZoneSpreadPolicy]bool{}
	for _, those := range byNamespace {
		if len(those) > NamespaceLimit {
			slices.SortFunc(those, Older)
			for _, p := range those[NamespaceLimit:] {
				beyond[p] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *v1alpha1.ZoneSpreadPolicy) bool { return beyond[p] })
}
