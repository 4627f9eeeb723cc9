package rebalance

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

const (
	// planLimit is for how long a whole plan is searched at most.
	planLimit = 10 * time.Minute
	// maxPlanned is how many moves of a plan a status lists.
	maxPlanned = 200
)

// planning is the search of a whole plan.
type planning struct {
	*rebalance.Search
	of         types.UID
	generation int64
	readAt     time.Time
	began      time.Time
	// found is what it has found, once it is over, and err why it has failed.
	found *rebalance.Plan
	err   error
}

// plan shows what would be moved: it enters a plan that has been made, and begins another one if it is time.
func (l *look) plan(ctx context.Context, s *subject) {
	if p := l.planning; p != nil && p.of == s.UID && (!p.isUnderWay() || p.generation != s.Generation) {
		if p.generation == s.Generation {
			l.adopt(s, p)
		}
		l.endPlanning(s.UID)
	}
	switch status := &s.Status; {
	case status.Excess == 0:
		status.Plan, status.Planned, status.Stays = nil, 0, nil
	case l.missing != "" || s.waits != "" || l.searchedLately(s) || !l.maySearch(s):
	default:
		l.beginPlanning(ctx, s)
	}
	s.waits = "" // no move does
}

func (l *look) beginPlanning(ctx context.Context, s *subject) {
	p := &planning{of: s.UID, generation: s.Generation, readAt: l.cluster.TakenAt, began: l.now()}
	l.dropPlanning() // one that is over, of another ZoneRebalance
	l.planning = p
	options := l.searchOptions(s)
	options.Limit, options.TryLast, options.ReadyFor = planLimit, nil, 0
	copied, err := l.copy(ctx)
	if err == nil {
		p.Search, err = rebalance.SearchIn(ctx, copied, options)
	}
	if p.err = err; err != nil {
		l.searches.End()
	}
	l.looks.Begin(l.now()) // what this has used is in the budget of searches
	s.wait = 0
}

// adopt enters a plan into the status.
func (l *look) adopt(s *subject, p *planning) {
	status := &s.Status
	status.SearchedAt = metav1.NewTime(p.readAt.Truncate(time.Second))
	if p.err != nil {
		act.SetCondition(s.ZoneRebalance, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonReplayFailed, p.err.Error(), s.observed.Now)
		return
	}
	status.Plan, status.Planned, status.Stays = nil, int64(len(p.found.Moves)), staysOf(p.found)
	for i := range p.found.Moves[:min(len(p.found.Moves), maxPlanned)] {
		m := &p.found.Moves[i]
		status.Plan = append(status.Plan, v1alpha1.PlannedMove{
			MovedPod: movedPod(m), Batch: int64(m.Batch), Rules: act.ShortReason(strings.Join(m.Rules, ", ")),
		})
	}
}

// step does a step of the search of a whole plan, and reports whether there is another one.
func (c *Controller) step(ctx context.Context) (more bool, err error) {
	p := c.planning
	if !p.isUnderWay() {
		return false, nil
	}
	over, err := p.Step(ctx)
	switch {
	case ctx.Err() != nil:
		return false, err
	case err != nil:
		p.err = err
	case over:
		p.found = p.Plan()
		took := c.now().Sub(p.began)
		declared.SearchDuration.Observe(took.Seconds())
		klog.FromContext(ctx).V(2).Info(
			"Planned moves", "zonerebalance", p.of, "moves", len(p.found.Moves), "excess", p.found.Before.Excess, "took", took,
		)
	default:
		return true, nil
	}
	c.searches.End()
	return false, nil
}

// isUnderWay reports whether there is something left to search.
func (p *planning) isUnderWay() bool { return p != nil && p.found == nil && p.err == nil }

// endPlanning forgets the search of the plan of a ZoneRebalance, if there is one.
func (c *Controller) endPlanning(of types.UID) {
	if c.planning != nil && c.planning.of == of {
		c.dropPlanning()
	}
}

// dropPlanning ends the search of a plan.
func (c *Controller) dropPlanning() {
	if c.planning == nil {
		return
	}
	if c.planning.isUnderWay() {
		c.searches.End()
	}
	if c.planning.Search != nil {
		c.planning.Search.Close()
	}
	c.planning = nil
}
