package rebalance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
)

const (
	// searchLimit is for how long a batch is searched at most. The next search tries last what this one has refused.
	searchLimit = time.Minute
	// readingAge is how old a reading may be by which pods are evicted, beside what the trial of their moves took.
	readingAge = 5 * time.Second
)

// searchOptions say how moves of a ZoneRebalance are searched.
func (l *look) searchOptions(s *subject) rebalance.Options {
	frozen := make([]*v1alpha1.ZoneRebalance, 0, len(l.all))
	for _, r := range l.all {
		frozen = append(frozen, r.DeepCopy())
	}
	cooldown, now, refused, known := act.Cooldown(s.ZoneRebalance), s.observed.Now, l.refused[s.UID], map[string]string{}
	options := s.options
	options.Seeds, options.Now = l.options.Seeds, l.now
	options.Stays = func(pod *v1.Pod) string {
		workload := l.census.Workload(pod)
		why, ok := known[workload]
		if !ok {
			why = act.Rests(frozen, cooldown, workload, s.observed)
			known[workload] = why
		}
		return why
	}
	options.TryLast = func(workload, zone string) bool {
		at, ok := refused[rebalance.Refused{Workload: workload, From: zone}]
		return ok && now.Sub(at) < refreshInterval
	}
	return options
}

// noteRefused remembers what a search has refused.
func (l *look) noteRefused(s *subject, plan *rebalance.Plan) {
	if l.refused[s.UID] == nil {
		l.refused[s.UID] = map[rebalance.Refused]time.Time{}
	}
	maps.DeleteFunc(l.refused[s.UID], func(_ rebalance.Refused, at time.Time) bool {
		return s.observed.Now.Sub(at) >= refreshInterval
	})
	for _, r := range plan.Refused {
		l.refused[s.UID][rebalance.Refused{Workload: r.Workload, From: r.From}] = s.observed.Now
	}
}

// begin searches the next batch, and makes its moves.
func (l *look) begin(ctx context.Context, s *subject) time.Duration {
	plan, trial, err := l.search(ctx, s)
	status := &s.Status
	status.SearchedAt = metav1.NewTime(l.cluster.TakenAt.Truncate(time.Second))
	if err != nil {
		act.SetCondition(s.ZoneRebalance, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonReplayFailed, err.Error(), s.observed.Now)
		return l.conclude(ctx, s)
	}
	status.Stays = staysOf(plan)
	if len(plan.Moves) == 0 {
		if !plan.Complete {
			s.waitFor("a search that comes to its end", s.observed.Now)
		}
		return l.conclude(ctx, s)
	}
	if age := l.now().Sub(l.cluster.TakenAt); age > readingAge+trial {
		s.waitFor("a younger reading of the cluster", s.observed.Now)
		return l.conclude(ctx, s)
	}
	if why := l.whyForbidden(ctx, plan.Moves); why != "" {
		act.SetCondition(s.ZoneRebalance, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonEvictionForbidden, why, s.observed.Now)
		s.waitFor(why, s.observed.Now.Add(refreshInterval))
		return l.conclude(ctx, s)
	}
	l.enter(s, plan.Moves)
	act.Conclude(s.ZoneRebalance, "the evictions", s.observed.Now)
	began := l.now()
	if !l.write(ctx, s.ZoneRebalance) {
		return retryInterval
	}
	written := s.DeepCopy()
	if ctx.Err() == nil {
		l.evictAll(ctx, s, plan.Moves, began)
	}
	l.tell(ctx, s.stored, written)
	s.stored = written
	return l.conclude(ctx, s)
}

// search searches the next batch on a copy of the reading. trial is how long that took, but for what was refused.
func (l *look) search(ctx context.Context, s *subject) (plan *rebalance.Plan, trial time.Duration, err error) {
	began := l.now()
	options := l.searchOptions(s)
	if !s.standing.MayMove(rebalance.Options{Stays: options.Stays}) { // a copy would say no more
		standing := rebalance.Read(l.census, options)
		return &rebalance.Plan{Before: standing, After: standing, Complete: true}, 0, nil
	}
	defer l.endSearch()
	copied, err := l.copy(ctx)
	if err != nil {
		return nil, 0, err
	}
	options.AtOnce, _, _ = act.MayBegin(s.ZoneRebalance, s.observed.Now)
	options.Limit = searchLimit
	plan, err = rebalance.First(ctx, copied, options)
	if err != nil {
		return nil, 0, err
	}
	l.noteRefused(s, plan)
	took := l.now().Sub(began)
	declared.SearchDuration.Observe(took.Seconds())
	klog.FromContext(ctx).V(2).Info(
		"Searched moves", "zonerebalance", klog.KObj(s), "moves", len(plan.Moves), "excess", plan.Before.Excess,
		"refused", len(plan.Refused), "took", took,
	)
	return plan, took - plan.Wasted, nil
}

// copy returns a copy of the cluster as it was read.
func (l *look) copy(ctx context.Context) (*sim.Sim, error) {
	options := l.shared.Sim
	options.EndWithin = rebalance.BindTime
	return sim.Of(ctx, l.cluster, options)
}

// endSearch leaves what a search has used to its own budget.
func (c *Controller) endSearch() {
	c.searches.End()
	c.looks.Begin(c.now())
}

// whyForbidden says that the controller may not evict pods of a namespace, empty if it may. A role that is missing is
// no failure of a workload.
func (l *look) whyForbidden(ctx context.Context, moves []rebalance.Move) string {
	for i := range moves {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: moves[i].Namespace, Verb: "create", Resource: "pods", Subresource: "eviction",
			},
		}}
		if err := l.shared.Client.Create(ctx, review); err != nil {
			return "whether pods may be evicted is not known: " + err.Error()
		}
		if !review.Status.Allowed {
			return fmt.Sprintf("the controller may not create pods/eviction in namespace %s: it lacks the role of components/rebalance-evict", moves[i].Namespace)
		}
	}
	return ""
}

// enter enters moves into the status.
func (l *look) enter(s *subject, moves []rebalance.Move) {
	var begun []v1alpha1.RebalanceMove
	var graces []time.Duration
	for i := range moves {
		m := &moves[i]
		replicas := s.standing.Replicas(m.Controller)
		wanted := replicas.Wanted
		if wanted < 0 {
			wanted = replicas.Live
		}
		begun = append(begun, v1alpha1.RebalanceMove{
			MovedPod: movedPod(m), UID: m.UID, Controller: m.Controller, Replicas: wanted,
		})
		pod := s.standing.Pod(m.Namespace, m.Name, m.UID)
		graces = append(graces, time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30))*time.Second)
	}
	act.Begin(s.ZoneRebalance, begun, graces, s.observed)
}

func movedPod(m *rebalance.Move) v1alpha1.MovedPod {
	return v1alpha1.MovedPod{
		Namespace: m.Namespace, Name: m.Name, Workload: m.Workload, From: m.From, To: m.To[:min(len(m.To), 16)],
	}
}

// evictAll asks for the evictions of moves that were written at a time, unless the cluster has changed since, and
// enters what was answered.
func (l *look) evictAll(ctx context.Context, s *subject, moves []rebalance.Move, written time.Time) {
	fresh, why := l.readAgain(s, moves)
	// A client that is told to ask again later does so by itself, and is not to do it after that time. A request that
	// is cut off may have used up a budget, for two minutes, without an eviction: the end of the process waits for it.
	asks, cancel := context.WithTimeout(context.WithoutCancel(ctx), act.AskWithin-l.now().Sub(written))
	defer cancel()
	for i := range moves {
		if ctx.Err() != nil {
			return // the state Evicting of those that are left says that they may not have been asked for
		}
		m := &moves[i]
		if why == "" && l.now().Sub(written) > act.AskWithin {
			why = "the controller has stood still"
		}
		if why != "" {
			act.Record(s.ZoneRebalance, m.UID, act.Declined, why, l.now())
			continue
		}
		err := l.evict(asks, fresh.Pod(m.Namespace, m.Name, m.UID))
		answer := answerOf(err)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A pod is not evicted", "pod", klog.KRef(m.Namespace, m.Name), "err", err)
			act.Record(s.ZoneRebalance, m.UID, answer, err.Error(), l.now())
			continue
		}
		act.Record(s.ZoneRebalance, m.UID, answer, "", l.now())
	}
}

// readAgain reads the namespaces of a ZoneRebalance and the zones once more, and says why moves are not to be made
// after all; empty if they are.
func (l *look) readAgain(s *subject, moves []rebalance.Move) (fresh rebalance.Standing, why string) {
	cluster := l.shared.Read()
	if unknown := l.shared.Unknown(cluster); len(unknown) > 0 {
		return fresh, unknown[0]
	}
	concerned := snapshot.New(cluster.TakenAt)
	for _, obj := range cluster.Objects() {
		if in := obj.GetNamespace(); in == "" || slices.ContainsFunc(s.Spec.Workloads, func(w v1alpha1.SurvivalWorkload) bool { return w.Namespace == in }) {
			concerned.Add(obj)
		}
	}
	counted := census.Take(concerned)
	if rebalance.ZonesDigest(counted, s.options.Selects) != s.Status.Zones {
		return fresh, "zones or policies have changed"
	}
	fresh = rebalance.Read(counted, s.options)
	return fresh, fresh.WhyNotMoved(moves)
}

// evict asks for the eviction of a pod as it was read, through the Eviction API. It returns nil if the pod ends.
func (c *Controller) evict(ctx context.Context, pod *v1.Pod) error {
	preconditions := metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	named := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
	err := c.shared.Client.SubResource("eviction").Create(ctx, &v1.Pod{ObjectMeta: named}, &policyv1.Eviction{
		ObjectMeta: named, DeleteOptions: &metav1.DeleteOptions{Preconditions: &preconditions},
	})
	result := "accepted"
	if err != nil {
		result = "refused"
	}
	declared.Evictions.WithLabelValues(result).Inc()
	return err
}

// answerOf returns what an answer of the Eviction API says. A conflict or NotFound may be about the pod, which is
// another one, or about its budget: the pod is not evicted by this request.
func answerOf(err error) act.Answer {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return act.Accepted
	case !errors.As(err, &status):
		return act.Unknown
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return act.Exhausted
	case apierrors.IsTooManyRequests(err), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return act.Declined
	}
	if code := status.Status().Code; code >= 400 && code < 500 {
		return act.Refused
	}
	return act.Unknown
}

// maxStays is how many reasons against moves a status has.
const maxStays = 20

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
