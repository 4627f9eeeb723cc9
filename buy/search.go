package buy

import (
	"maps"
	"slices"
)

// Search finds the least that has to be bought, as numbers of nodes like the models, by their names. enough says
// whether a purchase is enough; more must never be worse for it. most is how many of one model are tried.
//
// If one model is enough alone, the result has the least number of nodes with which one is, of the first such model:
// enough has said yes to it, and no to one node fewer. Else it takes as many of each, and then gives up what it can:
// enough has said yes to the result, and no to one node fewer like any of its models. It returns nil if that is not
// enough either.
func Search(models []Model, most int, enough func(bought map[string]int) (bool, error)) (map[string]int, error) {
	s := search{models: models, most: most, enough: enough}
	if bought, err := s.ofOneModel(); bought != nil || err != nil || len(models) < 2 {
		return bought, err
	}
	return s.ofSeveral()
}

type search struct {
	models []Model
	most   int
	enough func(bought map[string]int) (bool, error)
}

// ofOneModel returns the least number of nodes like one model, nil if none is enough alone.
func (s *search) ofOneModel() (map[string]int, error) {
	best, fewest := "", s.most+1
	for i, m := range s.models {
		if i == 1 && best == "" { // then it may be that none is
			yes, err := s.enough(s.ofEach(s.most))
			if err != nil || !yes {
				return nil, err
			}
		}
		alone := func(n int) (bool, error) { return s.enough(map[string]int{m.Node: n}) }
		find := least
		if best != "" {
			find = leastOfFew
		}
		n, err := find(fewest-1, alone)
		if err != nil {
			return nil, err
		}
		if n < fewest {
			best, fewest = m.Node, n
		}
	}
	if best == "" {
		return nil, nil //nolint:nilnil // no number is enough
	}
	return map[string]int{best: fewest}, nil
}

// ofEach is n nodes like each model.
func (s *search) ofEach(n int) map[string]int {
	out := map[string]int{}
	for _, m := range s.models {
		out[m.Node] = n
	}
	return out
}

// ofSeveral returns nodes like several models, nil if none are enough.
func (s *search) ofSeveral() (map[string]int, error) {
	n, err := least(s.most, func(n int) (bool, error) { return s.enough(s.ofEach(n)) })
	if err != nil || n > s.most {
		return nil, err
	}
	return s.withoutSurplus(s.ofEach(n))
}

// withoutSurplus gives up what it can of a purchase that is enough.
func (s *search) withoutSurplus(bought map[string]int) (map[string]int, error) {
	for _, m := range slices.Backward(s.models) { // the large ones first
		n, err := leastWithin(0, bought[m.Node], func(n int) (bool, error) {
			fewer := maps.Clone(bought)
			fewer[m.Node] = n
			return s.enough(fewer)
		})
		if err != nil {
			return nil, err
		}
		bought[m.Node] = n
	}
	maps.DeleteFunc(bought, func(_ string, n int) bool { return n == 0 })
	return bought, nil
}

// leastOfFew returns what least does, for one that most often is high+1: whether high is enough is asked first.
func leastOfFew(high int, enough func(n int) (bool, error)) (int, error) {
	if high < 1 {
		return high + 1, nil
	}
	if yes, err := enough(high); err != nil || !yes {
		return high + 1, err
	}
	return leastWithin(1, high, enough)
}

// least returns the smallest number from 1 to high that is enough, high+1 if none is. Small numbers are tried first,
// since a copy with many nodes costs more: 1, 2, 4 and so on, and then by bisection.
func least(high int, enough func(n int) (bool, error)) (int, error) {
	low := 1
	for n := low; n <= high; n = min(2*n, high) {
		yes, err := enough(n)
		if err != nil {
			return 0, err
		}
		if yes {
			return leastWithin(low, n, enough)
		}
		if n == high {
			break
		}
		low = n + 1
	}
	return high + 1, nil
}

// leastWithin returns the smallest number from low to high that is enough, given that high is.
func leastWithin(low, high int, enough func(n int) (bool, error)) (int, error) {
	for low < high {
		middle := (low + high) / 2
		yes, err := enough(middle)
		if err != nil {
			return 0, err
		}
		if yes {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high, nil
}
