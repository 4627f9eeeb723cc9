package counts

import "math"

// The formulas of topologySpreadConstraints: KEP-895 (Pod Topology Spread), with KEP-3022 for minDomains. The
// floating-point expressions keep PodTopologySpread's order of operations, so that rounded scores come out equal.

// GlobalMinimum is the number of matching pods that a domain is measured against: that of the domain
// with the fewest, or 0 while there are fewer eligible domains than minDomains asks for, so that pods
// wait for the missing domains (KEP-3022).
func GlobalMinimum(minimum, domains, minDomains int) int {
	if domains < minDomains {
		return 0
	}
	return minimum
}

// Fits reports whether one more pod may go to a domain that holds matching pods:
//
//	matching + self - minimum <= maxSkew
//
// where self reports whether the pod matches its own selector and will therefore count.
func Fits(matching int, self bool, minimum int, maxSkew int32) bool {
	if self {
		matching++
	}
	return matching-minimum <= int(maxSkew)
}

// Above is how many of a domain's matching pods are more than one could have put there, one after the other, given the
// minimum.
func Above(matching, minimum int, maxSkew int32) int {
	return max(0, matching-minimum-int(maxSkew))
}

// MaxNodeScore is the best normalized score, fwk.MaxNodeScore of the scheduler framework.
const MaxNodeScore = 100

// Weight is how much one pod in a domain counts in the raw score, for a topology of that many domains.
// It grows with the logarithm, so that the small counts of a topology of many domains, such as hosts,
// are not drowned by the large counts of one of few, such as zones.
func Weight(domains int) float64 {
	return math.Log(float64(domains + 2))
}

// Contribution is what one constraint adds to a node's raw score, where less is better: the matching
// pods in the node's domain by the topology's weight. maxSkew-1 is added so that a constraint that
// tolerates more skew distinguishes the domains less.
func Contribution(matching int, maxSkew int32, weight float64) float64 {
	return float64(matching)*weight + float64(maxSkew-1)
}

// Raw rounds the sum of a node's contributions to its raw score.
func Raw(sum float64) int64 { return int64(math.Round(sum)) }

// Range is the range of the raw scores of the nodes that are scored. Start with NewRange.
type Range struct{ low, high int64 }

// NewRange returns a range that nothing was added to.
func NewRange() Range { return Range{low: math.MaxInt64} }

// Add widens the range to hold a raw score.
func (r *Range) Add(raw int64) {
	r.low = min(r.low, raw)
	r.high = max(r.high, raw)
}

// Normalize maps a raw score of the range, where less is better, to 0..MaxNodeScore, where more is
// better: the node with the fewest matching pods gets MaxNodeScore, and a node gets less in proportion
// to how far it is from that, seen relative to the worst one.
func (r Range) Normalize(raw int64) int64 {
	if r.high == 0 {
		return MaxNodeScore
	}
	return MaxNodeScore * (r.high + r.low - raw) / r.high
}
