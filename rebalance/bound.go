package rebalance

import "maps"

// leastMoves returns how many moves it takes at least until no pod that may move is one too many, given how many may
// move in each zone and which zones take pods. Each step takes a pod from the fullest zone and puts it into the
// emptiest, which lowers the most and raises the fewest as far as that many moves can; bound_test.go compares it with
// all that moves can come to.
func leastMoves(t table, movable map[string]int, takes func(zone string) bool) int {
	t = t.clone()
	left := maps.Clone(movable)
	for moves := 0; ; moves++ {
		from, ok := t.Fullest(func(zone string) bool { return left[zone] > 0 })
		if !ok {
			return moves
		}
		t.shift(from, -1)
		to, ok := t.Emptiest(takes)
		if !ok {
			return moves
		}
		t.shift(to, 1)
		left[from]--
	}
}

// canMove reports whether a pod of a zone has, by the rule alone, a zone to go to.
func canMove(t table, from string, takes func(zone string) bool) bool {
	t = t.clone()
	t.shift(from, -1)
	to, ok := t.Emptiest(takes)
	return ok && to != from
}
