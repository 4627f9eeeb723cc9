package policy

import "math"

// MaxScore is the best score that a zone can get, as in the framework.
const MaxScore = int64(100)

// tierStep is what lies between two tiers of zones, in units of score.
const tierStep = 20

// Scores returns a score from 0 to MaxScore for each of the zones, which are those of the nodes that passed all
// filters, each once. More is better.
//
// The projected share of a zone is (c + 1) / w, as it would be with the pod; the smallest gets the
// most. Shares are normalized over largest - smallest, so that one pod more or less counts as much among
// thousands of replicas as among three: that is what lets ScheduleAnyway hold its own beside other scores.
//
// Two kinds of zones stand apart from the rest: a recovering zone that has not caught up with the emptiest other
// zone comes before all others by a wide margin, and a zone that a soft policy would refuse if it were
// hard for its caps or its weight of 0 comes last, with score 0. Scores of several policies are added by the
// caller and divided by their number.
func (t *Table) Scores(zones []string) []int64 {
	scores := make([]int64, len(zones))
	tiers := make([]tier, len(zones))
	shares := make([]float64, len(zones))
	var spans [3]span
	for i, name := range zones {
		z := t.lookup(name)
		tiers[i] = t.tierOf(z)
		if tiers[i] == last {
			spans[last].used = true
			continue
		}
		shares[i] = float64(z.pods+1) / float64(z.weight)
		spans[tiers[i]].include(shares[i])
	}
	for i := range zones {
		if tiers[i] == last {
			continue // 0
		}
		low, high := bounds(tiers[i], &spans)
		scores[i] = int64(math.Round(low + (high-low)*spans[tiers[i]].goodness(shares[i])))
	}
	return scores
}

// tier is a group of zones that comes before or after other groups whatever the shares.
type tier uint8

const (
	last  tier = iota // over a cap, or forbidden
	usual             // compared by share
	first             // recovering and behind
)

func (t *Table) tierOf(z *zoneRow) tier {
	switch {
	case z.rule == Forbidden || z.rule.capped():
		return last
	case z.availability == Recovering && t.behind(z):
		return first
	}
	return usual
}

// behind reports whether a recovering zone has a smaller share than every zone that it is compared with.
func (t *Table) behind(z *zoneRow) bool {
	if t.smallest < 0 {
		return false
	}
	m := &t.zones[t.smallest]
	return m.availability != Recovering && z.pods*m.weight < m.pods*z.weight
}

// span is the range of shares in one tier.
type span struct {
	used     bool
	min, max float64
}

func (s *span) include(share float64) {
	if !s.used {
		*s = span{used: true, min: share, max: share}
		return
	}
	s.min, s.max = min(s.min, share), max(s.max, share)
}

// goodness is 1 for the smallest share and 0 for the largest; 1 when all are equal.
func (s *span) goodness(share float64) float64 {
	if s.max == s.min {
		return 1
	}
	return (s.max - share) / (s.max - s.min)
}

// bounds is the range of scores that a tier has, given which tiers are there: a tier alone has all of it.
func bounds(t tier, spans *[3]span) (low, high float64) {
	low, high = 0, float64(MaxScore)
	if spans[last].used {
		low = tierStep / 2
	}
	switch {
	case t == usual && spans[first].used:
		high = tierStep
	case t == first && spans[usual].used:
		low = high - tierStep
	}
	return low, high
}
