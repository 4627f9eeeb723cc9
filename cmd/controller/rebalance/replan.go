package rebalance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

// maxStays is how many reasons against moves a status has.
const maxStays = 20

// replan plans the moves of a ZoneRebalance if the cluster has changed since the last plan, and returns after how long
// it wants to do so again. An error is that of ctx.
func (l *look) replan(
	ctx context.Context, r *v1alpha1.ZoneRebalance, selects func(*v1.Pod) bool,
) (time.Duration, error) {
	now := l.now()
	last := l.planned[r.UID]
	question := l.question(r)
	stopped := r.Status.Stop != nil && !r.Status.Stop.Resumed
	if age := now.Sub(last.at); last.question == question && age < refreshInterval && !stopped {
		return refreshInterval - age, nil
	}
	if wait := l.plans.TryBegin(now); wait > 0 {
		return min(wait, refreshInterval), nil
	}
	plan, err := l.plan(ctx, r, selects)
	l.plans.End()
	l.looks.Begin(l.now()) // what planning has used is in the other budget
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	l.planned[r.UID] = planned{question, now}
	if err != nil {
		act.SetCondition(r, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonReplayFailed, err.Error(), now)
		return refreshInterval, nil
	}
	l.adopt(r, plan, now)
	took := l.now().Sub(now)
	declared.PlanDuration.Observe(took.Seconds())
	klog.FromContext(ctx).V(2).Info(
		"Planned moves", "zonerebalance", klog.KObj(r),
		"moves", len(plan.Moves), "excess", plan.Before.Excess, "took", took,
	)
	return refreshInterval, nil
}

// plan plans moves on a copy. Where no pod is too many there is nothing to search.
func (l *look) plan(
	ctx context.Context, r *v1alpha1.ZoneRebalance, selects func(*v1.Pod) bool,
) (*rebalance.Plan, error) {
	copied, err := l.copy(ctx)
	if err != nil {
		return nil, err
	}
	options := l.planOptions(r, selects)
	if standing := rebalance.StandingOf(copied, options); standing.Excess == 0 {
		return &rebalance.Plan{Before: standing, After: standing, Complete: true}, nil
	}
	l.copied = nil // it is run on, and is not of the cluster any more
	defer copied.Close()
	if err := copied.Run(ctx); err != nil {
		return nil, err
	}
	return rebalance.Make(ctx, copied, options)
}

// adopt makes a plan that of the status.
func (l *look) adopt(r *v1alpha1.ZoneRebalance, plan *rebalance.Plan, now time.Time) {
	var moves []v1alpha1.RebalanceMove
	for i := range plan.Moves {
		m := &plan.Moves[i]
		moves = append(moves, v1alpha1.RebalanceMove{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, Workload: m.Workload, Controller: m.Controller,
			From: m.From, To: m.To[:min(len(m.To), 16)],
			Batch: int64(m.Batch), Why: act.ShortReason(strings.Join(m.Rules, ", ")),
		})
	}
	s := &r.Status
	act.Adopt(r, moves, plan.Complete, now)
	s.Before, s.After = standingIn(&plan.Before), standingIn(&plan.After)
	s.Cluster.Nodes, s.Cluster.Pods, s.Cluster.Hash = int64(len(l.census.Nodes)), int64(len(l.census.Pods)), l.planHash(r)
	s.Stays = staysOf(plan)
	if len(plan.BrokenCertificates) > 0 && len(moves) > 0 {
		act.Stop(
			r, v1alpha1.ReasonCertificateBroken,
			"with the moves these ZoneSurvivals would hold no longer: "+strings.Join(plan.BrokenCertificates, ", "),
			now,
		)
	}
}

func standingIn(s *rebalance.Standing) v1alpha1.RebalanceStanding {
	return v1alpha1.RebalanceStanding{Excess: s.Excess, LeastMoves: int64(s.Least)}
}

// staysOf says which pods are too many and are not moved.
func staysOf(plan *rebalance.Plan) []v1alpha1.RebalanceStay {
	var out []v1alpha1.RebalanceStay
	for _, r := range plan.Refused {
		out = append(out, v1alpha1.RebalanceStay{Workload: r.Workload, Zone: r.From, Why: act.ShortReason(r.Why)})
	}
	for _, why := range slices.Sorted(maps.Keys(plan.After.Stay)) {
		out = append(out, v1alpha1.RebalanceStay{Pods: int64(plan.After.Stay[why]), Why: act.ShortReason("each " + why)})
	}
	if len(out) > maxStays {
		more := len(out) - maxStays + 1
		out = append(out[:maxStays-1], v1alpha1.RebalanceStay{Why: fmt.Sprintf("and %d more", more)})
	}
	return out
}
