package buy

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Guess says what is likely of a model, so that little has to be tried. A wrong guess costs tries, and changes no promise of Search.
type Guess struct {
	// Alone is how many nodes like the model are likely to be enough without any other. At 0 no number is expected to be, below 0 none is known to be. More
	// than are tried is no guess.
	Alone int
	// Helps: such nodes are likely to help beside others.
	Helps bool
}

// Search finds the least that has to be bought, as numbers of nodes like the models, by their names. enough says whether a
// purchase is enough; more must never be worse for it. most is how many of one model are tried.
//
// If one model is enough alone, the result has the least number of nodes with which one is, of the first such model: enough has said yes to it, and no to
// one node fewer. Else it takes as many of each, and then gives up what it can: enough has said yes to the result, and no to one node fewer like any
// of its models. It returns nil if that is not enough either. guesses are by the models' names, and each is how many nodes like each of those that help
// are likely to be enough together. With nil and 0 nothing is known.
func Search(
	models []Model, guesses map[string]Guess, each, most int, enough func(bought map[string]int) (bool, error),
) (map[string]int, error) {
	s := search{models: models, guesses: guesses, each: each, most: most, enough: enough}
	if bought, err := s.ofOneModel(); bought != nil || err != nil || len(models) < 2 {
		return bought, err
	}
	return s.ofSeveral()
}

type search struct {
	models     []Model
	guesses    map[string]Guess
	each, most int
	enough     func(bought map[string]int) (bool, error)
}

func (s *search) guess(model int) Guess {
	if s.guesses == nil {
		return Guess{Alone: s.most + 1, Helps: true}
	}
	return s.guesses[s.models[model].Node]
}

// ofOneModel returns the least number of nodes like one model, nil if none is enough alone. It begins with the model that is likely to need the fewest.
func (s *search) ofOneModel() (map[string]int, error) {
	order := make([]int, 0, len(s.models))
	for i := range s.models {
		if s.guess(i).Alone >= 0 {
			order = append(order, i)
		}
	}
	unlikely := func(i int) int { // after all likely ones
		if s.guess(i).Alone == 0 {
			return math.MaxInt
		}
		return s.guess(i).Alone
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(unlikely(a), unlikely(b)) })
	best, fewest := -1, s.most
	// limit is how many nodes like a model are to be tried: with more it is not better than the best so far.
	limit := func(i int) int {
		if best >= 0 && i > best {
			return fewest - 1
		}
		return fewest
	}
	together, failed := false, false
	for at, i := range order {
		if rest := order[at:]; !together && len(rest) > 1 && (failed || s.guess(i).Alone == 0) {
			together = true
			all := map[string]int{}
			for _, i := range rest {
				all[s.models[i].Node] = limit(i)
			}
			yes, err := s.enough(all)
			if err != nil {
				return nil, err
			}
			if !yes {
				break // then none of them is
			}
		}
		most, m := limit(i), s.models[i].Node
		n, err := leastNear(s.guess(i).Alone, 1, most, func(n int) (bool, error) { return s.enough(map[string]int{m: n}) })
		if err != nil {
			return nil, err
		}
		failed = n > most
		if !failed {
			best, fewest = i, n
		}
	}
	if best < 0 {
		return nil, nil //nolint:nilnil // no number is enough
	}
	return map[string]int{s.models[best].Node: fewest}, nil
}

// ofSeveral returns nodes like several models, nil if none are enough. It begins with the models that are likely to help.
func (s *search) ofSeveral() (map[string]int, error) {
	try := func(models []Model, likely int) (map[string]int, error) {
		ofEach := func(n int) map[string]int {
			out := map[string]int{}
			for _, m := range models {
				out[m.Node] = n
			}
			return out
		}
		n, err := leastNear(likely, 1, s.most, func(n int) (bool, error) { return s.enough(ofEach(n)) })
		if err != nil || n > s.most {
			return nil, err
		}
		return s.withoutSurplus(models, ofEach(n))
	}
	var helpful []Model
	for i, m := range s.models {
		if s.guess(i).Helps {
			helpful = append(helpful, m)
		}
	}
	if len(helpful) > 1 && len(helpful) < len(s.models) {
		if bought, err := try(helpful, s.each); bought != nil || err != nil {
			return bought, err
		}
		return try(s.models, 0)
	}
	return try(s.models, s.each)
}

// withoutSurplus gives up what it can of a purchase that is enough.
func (s *search) withoutSurplus(models []Model, bought map[string]int) (map[string]int, error) {
	for _, m := range slices.Backward(models) { // the large ones first
		with := func(n int) (bool, error) {
			fewer := maps.Clone(bought)
			fewer[m.Node] = n
			return s.enough(fewer)
		}
		n := bought[m.Node]
		none, err := with(0)
		switch {
		case err != nil:
			return nil, err
		case none:
			n = 0
		default:
			n, err = leastBelow(1, n, with)
			if err != nil {
				return nil, err
			}
		}
		bought[m.Node] = n
	}
	maps.DeleteFunc(bought, func(_ string, n int) bool { return n == 0 })
	return bought, nil
}

// leastNear returns the smallest number from low to high that is enough, high+1 if none is. It begins with a likely one, if that is among them, and looks
// farther and farther away from it.
func leastNear(likely, low, high int, enough func(n int) (bool, error)) (int, error) {
	if low > high {
		return high + 1, nil
	}
	if likely < low || likely > high {
		yes, err := enough(high)
		if err != nil || !yes {
			return high + 1, err
		}
		return leastWithin(low, high, enough)
	}
	yes, err := enough(likely)
	if err != nil {
		return 0, err
	}
	if yes {
		return leastBelow(low, likely, enough)
	}
	// Often one more is enough, and often no number is.
	for _, next := range []int{min(likely+1, high), high} {
		yes, err := enough(next)
		if err != nil || !yes && next == high {
			return high + 1, err
		}
		if yes && next == likely+1 {
			return next, nil
		}
	}
	low = likely + 2
	for step := 1; low < high; step *= 2 {
		next := min(high, low+step)
		yes, err := enough(next)
		if err != nil {
			return 0, err
		}
		if yes {
			return leastWithin(low, next, enough)
		}
		low = next + 1
	}
	return high, nil
}

// leastBelow returns the smallest number from low on that is enough, given one that is. It looks farther and farther below that.
func leastBelow(low, high int, enough func(n int) (bool, error)) (int, error) {
	for step := 1; low < high; step *= 2 {
		next := max(low, high-step)
		yes, err := enough(next)
		if err != nil {
			return 0, err
		}
		if !yes {
			return leastWithin(next+1, high, enough)
		}
		high = next
	}
	return high, nil
}

// leastWithin returns the same by bisection.
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
