package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

// observe returns what of the cluster decides about the moves of a ZoneRebalance.
func (l *look) observe(r *v1alpha1.ZoneRebalance, a *answers) *act.Observed {
	o := &act.Observed{
		Hash: l.planHash(r), Pods: map[types.UID]act.Pod{},
		Excess: a.excess, Stays: a.stays, Follows: a.follows, Try: a.tryGang,
		Tried: func(gang types.UID) act.Tried { return l.tried[gang] }, Gangs: l.gangs(r, a.selects),
	}
	controllers, named := map[types.UID]bool{}, map[types.UID]bool{}
	for i := range r.Status.Moves {
		switch m := &r.Status.Moves[i]; m.State {
		case v1alpha1.MovePlanned, v1alpha1.MoveEvicting, v1alpha1.MoveEvicted:
			named[m.UID] = true
			if m.Controller != "" {
				controllers[m.Controller] = true
			}
		}
	}
	for _, g := range o.Gangs {
		for _, uid := range g.Bound {
			named[uid] = true
		}
	}
	if len(named) == 0 {
		return o
	}
	for _, pod := range snapshot.List[*v1.Pod](l.cluster) {
		p := l.podOf(pod)
		if named[p.UID] || p.Controller != "" && controllers[p.Controller] || !p.Preempted.IsZero() {
			o.Pods[p.UID] = p
		}
	}
	return o
}

// podOf is what of a pod decides.
func (l *look) podOf(pod *v1.Pod) act.Pod {
	out := act.Pod{
		UID: pod.UID, Name: pod.Name, Nominated: pod.Status.NominatedNodeName,
		Ready: pods.Ready(pod), Ending: !pods.Live(pod),
		Grace:   time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30)) * time.Second,
		Created: pod.CreationTimestamp.Time,
	}
	if over := metav1.GetControllerOfNoCopy(pod); over != nil {
		out.Controller = over.UID
	}
	if node := l.census.FindNode(pod.Spec.NodeName); node != nil {
		out.Node, out.Zone = node.Name, node.Zone
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler {
			out.Preempted = c.LastTransitionTime.Time
		}
	}
	return out
}

// answers asks a copy of the cluster about its pods, once there is a question.
type answers struct {
	*look
	ctx       context.Context
	rebalance *v1alpha1.ZoneRebalance
	selects   func(*v1.Pod) bool
	standing  *rebalance.Standing
	err       error // of the copy
}

func (a *answers) stand() *rebalance.Standing {
	if a.standing == nil {
		a.standing = &rebalance.Standing{}
		copied, err := a.copy(a.ctx)
		if err != nil {
			a.err = err
			return a.standing
		}
		standing := rebalance.StandingOf(copied, a.planOptions(a.rebalance, a.selects))
		a.standing = &standing
	}
	return a.standing
}

func (a *answers) excess(workload string) int64 { return a.stand().ExcessOf(workload) }

func (a *answers) stays(uid types.UID) string {
	standing := a.stand()
	if a.err != nil {
		return a.err.Error()
	}
	for _, pod := range a.census.Pods {
		if pod.UID == uid {
			return standing.WhyStays(pod.Pod)
		}
	}
	return "is gone"
}

// follows says why moves would not go as planned in the cluster as it is now; empty if they would. There may be no
// budget to ask a copy before a time.
func (a *answers) follows(moves []v1alpha1.RebalanceMove) (why string, from time.Time) {
	now := a.now()
	if a.planned[a.rebalance.UID].question == a.question(a.rebalance) {
		return "", time.Time{} // the plan is of this very cluster
	}
	if wait := a.plans.TryBegin(now); wait > 0 {
		return "", now.Add(wait)
	}
	defer func() {
		a.plans.End()
		a.looks.Begin(a.now()) // what this has used is in the other budget
	}()
	copied, err := a.copy(a.ctx)
	if err != nil {
		a.err = err
		return err.Error(), time.Time{}
	}
	a.copied = nil // the moves are made in it
	defer copied.Close()
	asked := make([]rebalance.Move, 0, len(moves))
	for i := range moves {
		m := &moves[i]
		asked = append(asked, rebalance.Move{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, Workload: m.Workload, From: m.From, To: m.To,
		})
	}
	why, err = rebalance.Recheck(a.ctx, copied, a.planOptions(a.rebalance, a.selects), asked)
	if err != nil {
		a.err = err
		return err.Error(), time.Time{}
	}
	if why != "" {
		klog.FromContext(a.ctx).V(2).Info(
			"A move would not go as planned any more", "zonerebalance", klog.KObj(a.rebalance), "why", why,
		)
	}
	return why, time.Time{}
}

// planOptions say how moves of a ZoneRebalance are planned.
func (l *look) planOptions(r *v1alpha1.ZoneRebalance, selects func(*v1.Pod) bool) rebalance.Options {
	frozen, now := r.DeepCopy(), l.now()
	rests := func(pod *v1.Pod) string {
		workload := l.census.Workload(pod)
		why := act.Rests(frozen, workload, pod.UID, now)
		for _, other := range l.all {
			if why == "" && other.UID != r.UID {
				why = act.RestsBeside(other, workload, act.Cooldown(r), now)
			}
		}
		return why
	}
	return rebalance.Options{
		Selects: selects, Seeds: l.options.Seeds, Replays: l.options.Replays, Limit: planLimit, Stays: rests,
	}
}

// planHash is a digest of what a plan is for.
func (l *look) planHash(r *v1alpha1.ZoneRebalance) string {
	return fmt.Sprintf("%s-%d", l.hash, r.Generation)
}

// question is a digest of the cluster for which a ZoneRebalance is planned.
func (l *look) question(r *v1alpha1.ZoneRebalance) string { return l.planHash(r) + " " + l.pods }

// digests returns one of the nodes, the policies and the reservations, and one of which zones have a usable node and of
// the policies.
func digests(cluster *snapshot.Snapshot) (all, zones string) {
	h := fnv.New64a()
	add := func(parts ...string) {
		for _, part := range parts {
			_, _ = h.Write([]byte(part))
			_, _ = h.Write([]byte{0})
		}
	}
	usable := map[string]bool{}
	for _, node := range snapshot.Sorted[*v1.Node](cluster, "") {
		if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
			usable[zone] = usable[zone] || nodes.Usable(node)
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(usable)) {
		add(zone, strconv.FormatBool(usable[zone]))
	}
	for _, p := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](cluster, "") {
		add(string(p.UID), strconv.FormatInt(p.Generation, 10))
	}
	zones = strconv.FormatUint(h.Sum64(), 16)
	for _, r := range snapshot.Sorted[*v1alpha1.ZoneReservation](cluster, "") {
		add(string(r.UID), strconv.FormatInt(r.Generation, 10))
	}
	for _, node := range snapshot.Sorted[*v1.Node](cluster, "") {
		text, _ := json.Marshal([]any{ // plain data
			node.Name, node.UID, node.Labels, node.Spec.Taints, nodes.Usable(node), node.Status.Allocatable,
		})
		add(string(text))
	}
	return strconv.FormatUint(h.Sum64(), 16), zones
}
