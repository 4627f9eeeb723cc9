package rebalance

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/sim"
)

const (
	// DefaultSeeds is on how many copies each move is tried, unless Options say otherwise.
	DefaultSeeds = 3
	// BindTime is how long, in the time of a copy, a moved pod may have no node. A pod that takes the place of its
	// predecessor waits a minute for that to end. Room that is free later is not to be counted on, see
	// sim.Options.EndWithin.
	BindTime = 2 * time.Minute
	// mostAtOnce is how many pods of different workloads are tried together.
	mostAtOnce = 64
	// seedStep is added to the seed of a copy for the next one.
	seedStep = 1 << 21
)

// Options say how to plan.
type Options struct {
	// Selects says of which pods the rules are to hold, and which pods may be moved; nil is of all.
	Selects func(*v1.Pod) bool
	// Stays says why a pod that might be moved is to stay where it is, or is empty; nil is always empty.
	Stays func(*v1.Pod) string
	// Seeds is on how many copies, with different seeds, each move is tried; 0 is DefaultSeeds.
	Seeds int
	// Replays is in how many orders each loss of a ZoneSurvival is replayed with the moves; see survival.Options.
	Replays int
	// Limit is for how long, in the machine's time, moves are searched; 0 is without limit.
	Limit time.Duration
	// Progress, if not nil, is called with the number of moves found so far.
	Progress func(moves int)
}

// Plan is a sequence of moves.
type Plan struct {
	Moves []Move `json:"moves"`
	// Batches is in how many steps they are made. Before each step the replacements of the one before run. No batch
	// has two pods that one rule counts, nor two of a workload.
	Batches int `json:"batches"`
	// Before and After are how the pods stand to their rules, without the moves and with them.
	Before Standing `json:"before"`
	After  Standing `json:"after"`
	// Refused are moves that a rule asks for and that were tried in vain, in the end.
	Refused []Refused `json:"refused,omitempty"`
	// Complete: a search on the copy with all moves made, with the same seeds, has found no other one. Without it the
	// time was up.
	Complete bool `json:"complete"`
	// BrokenCertificates are the ZoneSurvivals that hold without the moves and would not with them. A plan that has
	// any is not to be carried out.
	BrokenCertificates []string `json:"brokenCertificates,omitempty"`
}

// Move is the eviction of one pod.
type Move struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Workload  string    `json:"workload"`
	// Controller is the UID of the object that makes the pod in its place.
	Controller types.UID `json:"controller,omitempty"`
	// Rules are those that the zone breaks with the pod.
	Rules []string `json:"rules"`
	From  string   `json:"from"`
	// To has the zone of its replacement, or the zones, where that depends on the seed.
	To []string `json:"to"`
	// Batch is the number of the step, from 1 on.
	Batch int `json:"batch"`
}

// Refused is a move that was tried in vain.
type Refused struct {
	Workload string `json:"workload"`
	From     string `json:"from"`
	Why      string `json:"why"`
}

// planner searches for moves. It leaves the copy that it is given as it was.
type planner struct {
	options Options
	began   time.Time
	plan    *Plan
	// origin has the pods of the cluster by the UIDs of those that controllers have made in their place.
	origin map[types.UID]*v1.Pod
	batch  int
}

// Make plans moves on forks of a copy that is at rest (Run). An error is that of ctx or of a copy.
func Make(ctx context.Context, from *sim.Sim, options Options) (*Plan, error) {
	if options.Seeds == 0 {
		options.Seeds = DefaultSeeds
	}
	p := &planner{options: options, began: time.Now(), plan: &Plan{Moves: []Move{}}, origin: map[types.UID]*v1.Pod{}}
	p.plan.Before = StandingOf(from, options)
	current := from
	defer func() {
		if current != from {
			current.Close()
		}
	}()
	for {
		search, err := p.newSearch(ctx, current)
		if err != nil {
			return nil, err
		}
		moved, err := search.run(ctx)
		if err != nil {
			search.close()
			return nil, err
		}
		if moved > 0 {
			if current != from {
				current.Close()
			}
			current = search.keepFirst()
		}
		search.close()
		if moved == 0 || p.late() {
			p.plan.Complete = !p.late()
			break
		}
	}
	p.plan.After, p.plan.Batches = StandingOf(current, options), p.batch
	if current == from {
		return p.plan, nil
	}
	var err error
	p.plan.BrokenCertificates, err = brokenCertificates(ctx, from, current, options.Replays)
	return p.plan, err
}

func (p *planner) late() bool { return p.options.Limit > 0 && time.Since(p.began) > p.options.Limit }

// search looks for moves on copies that differ in their seeds, until none is left that has not been tried.
type search struct {
	*planner
	copies []*copyState
	// refused has why moves were given up, and alone why they are tried together with others no more.
	refused, alone map[target]string
}

// target is what a candidate stands for: pods of one workload in one zone.
type target struct{ workload, from string }

func (p *planner) newSearch(ctx context.Context, from *sim.Sim) (*search, error) {
	s := &search{planner: p, refused: map[target]string{}, alone: map[target]string{}}
	for i := range p.options.Seeds {
		c, err := newCopy(ctx, from, int64(i)*seedStep, p.options)
		if err != nil {
			s.close()
			return nil, err
		}
		s.copies = append(s.copies, c)
	}
	return s, nil
}

func (s *search) close() {
	for _, c := range s.copies {
		c.sim.Close()
	}
	s.copies = nil
}

// keepFirst returns the first copy, which close then leaves open.
func (s *search) keepFirst() *sim.Sim {
	first := s.copies[0].sim
	for made, replaced := range first.Replaced() {
		root := replaced
		for s.origin[root.UID] != nil {
			root = s.origin[root.UID]
		}
		s.origin[made] = root
	}
	s.copies = s.copies[1:]
	return first
}

// run searches, and returns how many moves it has found.
func (s *search) run(ctx context.Context) (moved int, err error) {
	for !s.late() {
		batch := s.candidates()
		if len(batch) == 0 {
			break
		}
		n, err := s.try(ctx, batch)
		if err != nil {
			return moved, err
		}
		moved += n
		if s.options.Progress != nil {
			s.options.Progress(len(s.plan.Moves))
		}
	}
	if moved == 0 {
		s.plan.Refused = nil
		for t, why := range s.refused {
			s.plan.Refused = append(s.plan.Refused, Refused{Workload: t.workload, From: t.from, Why: why})
		}
		slices.SortFunc(s.plan.Refused, compareRefused)
	}
	return moved, nil
}

// candidate is a pod that may be moved.
type candidate struct {
	target
	pod   *v1.Pod
	rules []*rule
	set   string
}

// candidates returns one pod of each set of rules, of different workloads, or a single one that is tried alone: from the
// zone that a rule asks to leave first, the one that costs least to move.
func (s *search) candidates() []candidate {
	var out []candidate
	var single *candidate
	sets, workloads := map[string]bool{}, map[string]bool{}
	for _, r := range s.copies[0].standing.rules {
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
		if len(out) == mostAtOnce {
			return out
		}
	}
	if len(out) == 0 && single != nil {
		return []candidate{*single}
	}
	return out
}

// candidateOf returns a pod that a rule asks to move; nil if there is none that has not been tried.
func (s *search) candidateOf(r *rule) *candidate {
	open := func(zone string) []*v1.Pod {
		var out []*v1.Pod
		if r.zones[zone] == nil {
			return nil
		}
		for _, pod := range r.zones[zone].movable {
			if s.refused[target{s.workload(pod.Pod), zone}] == "" && s.inAll(pod.Pod) {
				out = append(out, pod.Pod)
			}
		}
		return out
	}
	from, ok := r.table.Fullest(func(zone string) bool { return len(open(zone)) > 0 && canMove(r.table, zone, r.takes) })
	if !ok {
		return nil
	}
	pod := slices.MinFunc(open(from), firstToMove)
	c := &candidate{target: target{s.workload(pod), from}, pod: pod, set: r.set}
	for _, other := range s.copies[0].standing.rules {
		if other.set == r.set && other.carries(pod, from) && other.table.Above(from) > 0 {
			c.rules = append(c.rules, other)
		}
	}
	return c
}

func (s *search) workload(pod *v1.Pod) string { return s.copies[0].standing.workload(pod) }

// inAll reports whether all copies have the pod: replacements that the search itself has made are other pods in each.
func (s *search) inAll(pod *v1.Pod) bool {
	for _, c := range s.copies[1:] {
		now, ok := sim.Get[*v1.Pod](c.sim, pod.Namespace, pod.Name)
		if !ok || now.UID != pod.UID || now.Spec.NodeName != pod.Spec.NodeName {
			return false
		}
	}
	return true
}

// try makes moves together in all copies. They are kept if all copies accept all of them; otherwise no copy has made
// any, and they are tried in smaller parts, or given up. It returns how many are kept.
func (s *search) try(ctx context.Context, batch []candidate) (kept int, err error) {
	to := make([][]string, len(batch))
	for at, c := range s.copies {
		v, err := c.move(ctx, batch)
		if err != nil {
			return 0, err
		}
		if v.ok() {
			for i, zone := range v.to {
				if !slices.Contains(to[i], zone) {
					to[i] = append(to[i], zone)
				}
			}
			continue
		}
		for _, moved := range s.copies[:at+1] {
			if err := moved.takeBack(ctx); err != nil {
				return 0, err
			}
		}
		return s.tryParts(ctx, batch, v)
	}
	for _, c := range s.copies {
		c.accept()
	}
	s.batch++
	for i, c := range batch {
		slices.Sort(to[i])
		s.plan.Moves = append(s.plan.Moves, s.moveOf(c, to[i]))
	}
	return len(batch), nil
}

// tryParts goes on after a copy has refused a batch: with those moves that were not at fault, or with halves if it
// was none in particular. A move that is refused with others is tried alone later.
func (s *search) tryParts(ctx context.Context, batch []candidate, v *verdict) (kept int, err error) {
	if len(batch) == 1 {
		s.refused[batch[0].target] = v.why(0)
		return 0, nil
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
		if len(part) == 0 {
			continue
		}
		n, err := s.try(ctx, part)
		if err != nil {
			return kept, err
		}
		kept += n
	}
	return kept, nil
}

func (s *search) moveOf(c candidate, to []string) Move {
	pod := c.pod
	if first := s.origin[pod.UID]; first != nil {
		pod = first
	}
	m := Move{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Workload: c.workload,
		From: c.from, To: to, Batch: s.batch,
	}
	if over := metav1.GetControllerOfNoCopy(pod); over != nil {
		m.Controller = over.UID
	}
	for _, r := range c.rules {
		m.Rules = append(m.Rules, r.name)
	}
	return m
}

// String is the move in a line.
func (m Move) String() string {
	return fmt.Sprintf("%s/%s %s -> %v", m.Namespace, m.Name, m.From, m.To)
}
