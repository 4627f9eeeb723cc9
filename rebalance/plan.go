package rebalance

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/sim"
)

const (
	// DefaultSeeds is how often each move is tried, unless Options say otherwise.
	DefaultSeeds = 3
	// BindTime is how long, in the time of a copy, a moved pod may have no node. A pod that takes the place of its
	// predecessor waits a minute for that to end. Room that is free later is not to be counted on, see
	// sim.Options.EndWithin.
	BindTime = 2 * time.Minute
	// mostAtOnce is how many pods of different workloads are tried together, unless Options say otherwise.
	mostAtOnce = 64
	// seedStep is added to the seed of a copy for the next try.
	seedStep = 1 << 21
)

// Options say how to plan.
type Options struct {
	// Selects says of which pods the rules are to hold, and which pods may be moved; nil is of all.
	Selects func(*v1.Pod) bool
	// Stays says why a pod that might be moved is to stay where it is, or is empty; nil is always empty.
	Stays func(*v1.Pod) string
	// EvictLocalStorage: pods with an emptyDir on disk are moved, too.
	EvictLocalStorage bool
	// AtOnce is how many pods a batch has at most; 0 is 64.
	AtOnce int
	// TryLast says which pods of a workload in a zone are tried after all others; nil is none. It is a hint: those that
	// were refused a moment ago.
	TryLast func(workload, zone string) bool
	// Seeds is how often each move is tried, with different seeds; 0 is DefaultSeeds.
	Seeds int
	// Replays is in how many orders each loss of a ZoneSurvival is replayed with the moves; see survival.Options.
	Replays int
	// Limit is for how long, in the machine's time, moves are searched; 0 is without limit.
	Limit time.Duration
	// Now is the machine's time; nil is time.Now.
	Now func() time.Time
	// ReadyFor is how long a pod has to be ready before it is moved; 0 is any age, as in a plan that is only shown.
	ReadyFor time.Duration
}

func (o *Options) selects(pod *v1.Pod) bool { return o.Selects == nil || o.Selects(pod) }

func (o *Options) stays(pod *v1.Pod) string {
	if o.Stays == nil {
		return ""
	}
	return o.Stays(pod)
}

func (o *Options) triedLast(workload, zone string) bool {
	return o.TryLast != nil && o.TryLast(workload, zone)
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Plan is a sequence of moves.
type Plan struct {
	Moves []Move `json:"moves"`
	// Batches is in how many steps they are made. Before each step the replacements of the one before run. No batch has
	// two pods that one rule counts, nor two of a workload, nor a replacement on a node that another move of it leaves.
	Batches int `json:"batches"`
	// Before and After are how the pods stand to their rules, without the moves and with them.
	Before Standing `json:"before"`
	After  Standing `json:"after"`
	// Refused are moves that a rule asks for and that were tried and refused, in the end.
	Refused []Refused `json:"refused,omitempty"`
	// Complete: with all moves made, each further one was tried and refused. Without it the search was ended before.
	Complete bool `json:"complete"`
	// BrokenCertificates are the ZoneSurvivals that hold without the moves and would not with them. A plan that has
	// any is not to be carried out.
	BrokenCertificates []string `json:"brokenCertificates,omitempty"`
	// Wasted is how long, in the machine's time, moves were tried that were refused.
	Wasted time.Duration `json:"-"`
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

// Refused is a move that was tried and not accepted.
type Refused struct {
	Workload string `json:"workload"`
	From     string `json:"from"`
	Why      string `json:"why"`
}

// Make plans all moves, on a fork of a copy that is at rest (Run), which stays as it is. An error is that of ctx or of
// a copy.
func Make(ctx context.Context, from *sim.Sim, options Options) (*Plan, error) {
	s, err := NewSearch(ctx, from, options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for done := false; !done; {
		if done, err = s.Step(ctx); err != nil {
			return nil, err
		}
	}
	plan := s.Plan()
	if len(plan.Moves) > 0 {
		plan.BrokenCertificates, err = brokenCertificates(ctx, from, s.copy.sim, options.Replays)
	}
	return plan, err
}

// First plans up to the first batch that is accepted. The copy need not be at rest, and is closed: a fork would cost
// more than all else. An error is that of ctx or of the copy.
func First(ctx context.Context, copied *sim.Sim, options Options) (*Plan, error) {
	s, err := SearchIn(ctx, copied, options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.first = true
	for done := false; !done && s.batches == 0; {
		if done, err = s.Step(ctx); err != nil {
			return nil, err
		}
	}
	return s.Plan(), nil
}

// String is the move in a line.
func (m Move) String() string {
	return fmt.Sprintf("%s/%s %s -> %v", m.Namespace, m.Name, m.From, m.To)
}
