// Package karpenter runs Karpenter, with its kwok provider, beside the shipped scheduler and controller: what it buys
// and what it removes. Each promise of docs/autoscalers.md has its control, which is the same without what Zonewise
// adds.
//
// That nothing is bought, or removed, is not concluded from time that passes but from what Karpenter itself says of a
// pod or a node.
package karpenter
