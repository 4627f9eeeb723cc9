package rebalance

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
)

// Search looks for moves on a copy, a batch at a time. It is not safe for concurrent use.
type Search struct {
	options Options
	began   time.Time
	before  Standing
	copy    *copyState

	moves   []Move
	batches int
	wasted  time.Duration
	done    bool
	// first: the search ends with the first batch.
	first bool
	// refused has why moves were given up, alone why they are tried together with others no more. They are forgotten
	// when the search has come to its end and has found moves since, which were movesBefore then: what was refused may
	// be accepted now.
	refused, alone map[target]string
	movesBefore    int
	// skipTryLast: what TryLast names waits until nothing else is left.
	skipTryLast bool
}

// target is what a candidate stands for: pods of one workload in one zone.
type target struct{ workload, from string }

// NewSearch begins a search on a fork of a copy that is at rest. Pods that have become ready a moment ago may be moved:
// they will have been for longer by the time. Close it.
func NewSearch(ctx context.Context, from *sim.Sim, options Options) (*Search, error) {
	fork, err := from.Fork(ctx, func(o *sim.Options) { o.Progress = nil })
	if err != nil {
		return nil, err
	}
	options.ReadyFor = 0
	return SearchIn(ctx, fork, options)
}

// SearchIn is NewSearch in the copy itself, which need not be at rest. The search closes it, also after an error.
func SearchIn(ctx context.Context, copied *sim.Sim, options Options) (*Search, error) {
	copied.SetPatience(BindTime)
	if err := copied.Run(ctx); err != nil {
		copied.Close()
		return nil, err
	}
	options.Seeds = cmp.Or(options.Seeds, DefaultSeeds)
	before := StandingOf(copied, options)
	copied.Mark()
	return &Search{
		options: options, began: options.now(), before: before, moves: []Move{},
		copy:    &copyState{sim: copied, options: options, standing: before, seed: copied.Options().Seed},
		refused: map[target]string{}, alone: map[target]string{}, skipTryLast: true,
	}, nil
}

// Close ends the copy.
func (s *Search) Close() { s.copy.sim.Close() }

// Plan is what has been found. Call it before Close.
func (s *Search) Plan() *Plan {
	out := &Plan{
		Moves: s.moves, Batches: s.batches, Before: s.before, After: s.copy.standing, Wasted: s.wasted,
		Complete: s.done && !s.late(),
	}
	for t, why := range s.refused {
		out.Refused = append(out.Refused, Refused{Workload: t.workload, From: t.from, Why: why})
	}
	slices.SortFunc(out.Refused, compareRefused)
	return out
}

func (s *Search) late() bool {
	return s.options.Limit > 0 && s.options.now().Sub(s.began) > s.options.Limit
}

// Step tries the next batch, and reports whether the search is over. An error is that of ctx or of a copy.
func (s *Search) Step(ctx context.Context) (done bool, err error) {
	batch := s.candidates()
	if len(batch) == 0 && s.skipTryLast {
		s.skipTryLast = false
		batch = s.candidates()
	}
	if len(batch) == 0 && len(s.moves) > s.movesBefore && len(s.refused) > 0 {
		s.movesBefore = len(s.moves)
		clear(s.refused)
		clear(s.alone)
		batch = s.candidates()
	}
	if len(batch) == 0 || s.late() {
		s.done = true
		return true, nil
	}
	return false, s.try(ctx, batch)
}

// candidate is a pod that may be moved.
type candidate struct {
	target
	pod   *v1.Pod
	rules []*rule
	set   string
}

// candidates returns one pod of each set of rules, of different workloads, or a single one that is tried alone: from
// the zone that a rule asks to leave first, the one that costs least to move.
func (s *Search) candidates() []candidate {
	var out []candidate
	var single *candidate
	sets, workloads := map[string]bool{}, map[string]bool{}
	for _, r := range s.copy.standing.rules {
		if sets[r.set] || !r.selected {
			continue
		}
		c := s.candidateOf(r)
		switch {
		case c == nil || workloads[c.workload]:
			continue
		case s.alone[c.target] != "":
			if single == nil {
				single = c
			}
			continue
		}
		sets[r.set], workloads[c.workload] = true, true
		out = append(out, *c)
		if len(out) == cmp.Or(s.options.AtOnce, mostAtOnce) {
			return out
		}
	}
	if len(out) == 0 && single != nil {
		return []candidate{*single}
	}
	return out
}

// candidateOf returns a pod that a rule asks to move; nil if there is none that has not been tried.
func (s *Search) candidateOf(r *rule) *candidate {
	open := func(zone string) []*v1.Pod {
		var out []*v1.Pod
		if r.zones[zone] == nil {
			return nil
		}
		for _, pod := range r.zones[zone].movable {
			t := target{s.workload(pod.Pod), zone}
			if s.refused[t] == "" && (!s.skipTryLast || !s.options.triedLast(t.workload, zone)) {
				out = append(out, pod.Pod)
			}
		}
		return out
	}
	from, ok := r.table.Fullest(func(zone string) bool { return len(open(zone)) > 0 && canMove(r.table, zone, r.takes) })
	if !ok {
		return nil
	}
	pod := slices.MinFunc(open(from), s.copy.standing.firstToMove)
	c := &candidate{target: target{s.workload(pod), from}, pod: pod, set: r.set}
	for _, other := range s.copy.standing.rules {
		if other.set == r.set && other.carries(pod, from) && other.table.Above(from) > 0 {
			c.rules = append(c.rules, other)
		}
	}
	return c
}

func (s *Search) workload(pod *v1.Pod) string { return s.copy.standing.census.Workload(pod) }

// try makes moves together, once for each seed, which decides between equally good nodes. They are kept if all of them
// are accepted each time; otherwise none is made, and they are tried in smaller parts, or given up.
func (s *Search) try(ctx context.Context, batch []candidate) error {
	began := s.options.now()
	to := make([][]string, len(batch))
	for seed := s.options.Seeds - 1; seed >= 0; seed-- { // what is kept is by the copy's own
		v, err := s.copy.move(ctx, batch, int64(seed)*seedStep)
		if err != nil {
			return err
		}
		if seed > 0 || !v.ok() {
			if err := s.copy.takeBack(ctx); err != nil {
				return err
			}
		}
		if !v.ok() {
			s.wasted += s.options.now().Sub(began)
			return s.tryParts(ctx, batch, v)
		}
		for i, zone := range v.to {
			if !slices.Contains(to[i], zone) {
				to[i] = append(to[i], zone)
			}
		}
	}
	s.copy.accept()
	s.batches++
	for i, c := range batch {
		slices.Sort(to[i])
		s.moves = append(s.moves, s.moveOf(c, to[i]))
	}
	return nil
}

// tryParts goes on after a batch is refused: with those moves that were not at fault, or with halves if it
// was none in particular. A move that is refused with others is tried alone later.
func (s *Search) tryParts(ctx context.Context, batch []candidate, v *verdict) error {
	if len(batch) == 1 {
		s.refused[batch[0].target] = v.why(0)
		return nil
	}
	var good []candidate
	for i, c := range batch {
		if v.faults[i] != "" {
			s.alone[c.target] = v.faults[i]
		} else {
			good = append(good, c)
		}
	}
	parts := [][]candidate{good}
	if len(good) == len(batch) {
		parts = [][]candidate{batch[:len(batch)/2], batch[len(batch)/2:]}
	}
	for _, part := range parts {
		if len(part) == 0 || s.first && s.batches > 0 {
			continue
		}
		if err := s.try(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Search) moveOf(c candidate, to []string) Move {
	m := Move{
		Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID, Workload: c.workload,
		Controller: pods.ControllerUID(c.pod), From: c.from, To: to, Batch: s.batches,
	}
	for _, r := range c.rules {
		m.Rules = append(m.Rules, r.name)
	}
	return m
}
