package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Words puts an amount into words: "2500m cpu, 4Gi memory, 3 places for pods".
func Words(r *ledger.Resources) string {
	var parts []string
	for name := range r.Named() {
		if name != v1.ResourcePods {
			parts = append(parts, fmt.Sprintf("%s %s", amount.Quantity(name, r.Amount(name)), name))
		}
	}
	slices.SortFunc(parts, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	switch r.Pods {
	case 0:
	case 1:
		parts = append(parts, "1 place for a pod")
	default:
		parts = append(parts, fmt.Sprintf("%d places for pods", r.Pods))
	}
	return strings.Join(parts, ", ")
}

// sentence puts numbers of nodes by reason into words, one group after the other.
func sentence(groups ...map[string]int) string {
	var parts []string
	for _, group := range groups {
		parts = append(parts, byNumber(group)...)
	}
	if len(parts) == 0 {
		return "no nodes"
	}
	// "41 nodes short of cpu, 3 tainted"
	number, rest, _ := strings.Cut(parts[0], " ")
	noun := "nodes"
	if number == "1" {
		noun = "node"
	}
	parts[0] = number + " " + noun + " " + rest
	return strings.Join(parts, ", ")
}

// byNumber puts counted reasons into words, the most frequent first.
func byNumber(reasons map[string]int) []string {
	parts := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	for i, reason := range parts {
		parts[i] = fmt.Sprintf("%d %s", reasons[reason], reason)
	}
	return parts
}

func resourceName(name v1.ResourceName) string {
	if name == v1.ResourcePods {
		return "room for pods"
	}
	return string(name)
}
