package rebalance

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
)

// look is what one reading of the cluster leads to.
type look struct {
	*Controller
	cluster *snapshot.Snapshot
	census  *census.Census
	all     []*v1alpha1.ZoneRebalance
	// missing says what is not known of the cluster; empty if all is known.
	missing string
	// hash is of the nodes, the policies and the reservations, zones of the zones and the policies, and pods of all
	// that decides a plan.
	hash, zones, pods string
	copied            *sim.Sim // nil until it is asked for
}

func (c *Controller) newLook(cluster *snapshot.Snapshot, all []*v1alpha1.ZoneRebalance) *look {
	l := &look{
		Controller: c, cluster: cluster, census: census.Take(cluster), all: all,
		pods: survival.Fingerprint(cluster.Objects()),
	}
	l.hash, l.zones = digests(cluster)
	l.missing = strings.Join(c.shared.Unknown(cluster), "; ")
	if l.missing == "" && len(c.tried) > 0 {
		exist := map[types.UID]bool{}
		for _, key := range l.census.GangKeys() {
			exist[l.census.Gang(key).UID()] = true
		}
		maps.DeleteFunc(c.tried, func(gang types.UID, _ act.Tried) bool { return !exist[gang] })
	}
	return l
}

func (l *look) close() {
	if l.copied != nil {
		l.copied.Close()
	}
}

// copy returns a copy of the cluster that no scheduler has run on yet.
func (l *look) copy(ctx context.Context) (*sim.Sim, error) {
	if l.copied == nil {
		options := l.shared.Sim
		options.EndWithin = rebalance.BindTime
		copied, err := sim.Of(ctx, l.cluster, options)
		if err != nil {
			return nil, err
		}
		l.copied = copied
	}
	return l.copied, nil
}

// serve does the next thing about a ZoneRebalance, which it may modify, and returns after how long it wants to look
// again. An error is that of ctx.
func (l *look) serve(ctx context.Context, r *v1alpha1.ZoneRebalance) (time.Duration, error) {
	for _, other := range l.all {
		if l.replaced[other.UID][other.ResourceVersion] {
			return time.Second, nil // what was written last has not come back yet: moves that are under way may be in it
		}
	}
	delete(l.replaced, r.UID)
	read := r.DeepCopy()
	now := l.now()
	selects, held := l.ready(r, now)
	if l.missing != "" { // nothing follows from what is not seen
		if !equality.Semantic.DeepEqual(read.Status, r.Status) && !l.writeFrom(ctx, read, r) {
			return retryInterval, ctx.Err()
		}
		return refreshInterval, ctx.Err()
	}
	a := &answers{look: l, ctx: ctx, rebalance: r, selects: selects}
	observed := l.observe(r, a)
	observed.Now, observed.Held = now, held
	step := act.Next(r, observed)
	wait := refreshInterval
	if step.Replan && held == "" && a.err == nil {
		after, err := l.replan(ctx, r, selects)
		if err != nil {
			return 0, err
		}
		wait = after
	}
	if a.err != nil { // the copy could not be made: what was decided on it is not written
		act.SetCondition(
			read, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonReplayFailed, a.err.Error(), now,
		)
		l.write(ctx, read)
		return refreshInterval, ctx.Err()
	}
	act.Conclude(r, step.Waits, now)
	written := l.now()
	// Nothing is evicted by a status that is not written; one that says what was read is written,
	// too: the API server refuses it if another replica of the controller has come further.
	if (len(step.Evict) > 0 || !equality.Semantic.DeepEqual(read.Status, r.Status)) && !l.writeFrom(ctx, read, r) {
		delete(l.planned, r.UID) // what was planned is not in the status
		return retryInterval, ctx.Err()
	}
	if len(step.Evict) > 0 && ctx.Err() == nil {
		l.evictAll(ctx, r, step, written)
	}
	if !step.Again.IsZero() {
		wait = min(wait, max(0, step.Again.Sub(l.now())))
	}
	if act.After(r) > now.Sub(r.Status.Cluster.Since.Time) {
		wait = min(wait, act.After(r)-now.Sub(r.Status.Cluster.Since.Time))
	}
	return wait, ctx.Err()
}

// ready sets the condition Ready, and returns which pods are selected and, in words, why no move may begin; empty if
// one may.
func (l *look) ready(r *v1alpha1.ZoneRebalance, now time.Time) (selects func(*v1.Pod) bool, held string) {
	set := func(status metav1.ConditionStatus, reason, message string) {
		act.SetCondition(r, v1alpha1.ConditionReady, status, reason, message, now)
	}
	r.Status.ObservedGeneration = r.Generation
	selects, err := selectorOf(&r.Spec)
	if err != nil {
		set(metav1.ConditionFalse, v1alpha1.ReasonInvalid, err.Error())
		return func(*v1.Pod) bool { return false }, "a valid spec"
	}
	if l.missing != "" {
		set(metav1.ConditionUnknown, v1alpha1.ReasonSnapshotIncomplete, l.missing)
		return selects, l.missing
	}
	if r.Status.Cluster.Zones != l.zones {
		r.Status.Cluster.Zones, r.Status.Cluster.Since = l.zones, metav1.NewTime(now.Truncate(time.Second))
	}
	if left := act.After(r) - now.Sub(r.Status.Cluster.Since.Time); left > 0 {
		since := r.Status.Cluster.Since.UTC().Format(time.RFC3339)
		set(metav1.ConditionFalse, v1alpha1.ReasonSettling, "zones or policies have changed at "+since)
		return selects, "the zones to settle"
	}
	set(metav1.ConditionTrue, v1alpha1.ReasonPlanning, "moves are planned")
	for _, other := range l.all {
		if other.UID != r.UID && other.DeletionTimestamp == nil && act.UnderWay(other) > 0 {
			return selects, "moves of ZoneRebalance " + other.Name
		}
	}
	return selects, ""
}

// selectorOf returns which pods a spec selects.
func selectorOf(spec *v1alpha1.ZoneRebalanceSpec) (func(*v1.Pod) bool, error) {
	selectors := map[string][]labels.Selector{}
	for i := range spec.Workloads {
		w := &spec.Workloads[i]
		selector, err := metav1.LabelSelectorAsSelector(&w.PodSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.workloads[%d].podSelector: %w", i, err)
		}
		selectors[w.Namespace] = append(selectors[w.Namespace], selector)
	}
	return func(pod *v1.Pod) bool {
		for _, selector := range selectors[pod.Namespace] {
			if selector.Matches(labels.Set(pod.Labels)) {
				return true
			}
		}
		return false
	}, nil
}

// evictAll asks for the evictions of a step, within a time after it was written, and writes what was answered.
func (l *look) evictAll(ctx context.Context, r *v1alpha1.ZoneRebalance, step act.Step, written time.Time) {
	before := r.DeepCopy()
	// A client that is told to ask again later does so by itself, and is not to do it after that time.
	asks, cancel := context.WithTimeout(ctx, act.AskWithin-l.now().Sub(written))
	defer cancel()
	for i := range step.Evict {
		if l.now().Sub(written) > act.AskWithin {
			break
		}
		m := &step.Evict[i]
		refused := l.evict(asks, m)
		if ctx.Err() != nil {
			return // what the API server has answered is not known; the state Evicting says so
		}
		if refused != nil {
			klog.FromContext(ctx).V(2).Info("An eviction is refused", "pod", klog.KRef(m.Namespace, m.Name), "err", refused)
		}
		act.Record(r, m.UID, refused, l.now())
	}
	act.Conclude(r, step.Waits, l.now())
	l.writeFrom(ctx, before, r)
}
