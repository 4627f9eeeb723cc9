package rebalance

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
)

// gangs returns the gangs that ask for the eviction of their bound members and have a bound member that is selected,
// and those that moves of the ZoneRebalance are about.
func (l *look) gangs(r *v1alpha1.ZoneRebalance, selects func(*v1.Pod) bool) map[types.UID]act.Gang {
	moved := map[types.UID]bool{}
	for i := range r.Status.Moves {
		moved[r.Status.Moves[i].PodGroup] = true
	}
	out := map[types.UID]act.Gang{}
	for _, key := range l.census.GangKeys() {
		g := l.census.Gang(key)
		if !g.Exists() {
			continue
		}
		policy, asks := g.Object().GetAnnotations()[podgroup.RecoveryPolicyAnnotation]
		if !asks && !moved[g.UID()] {
			continue
		}
		gang := act.Gang{UID: g.UID(), Namespace: g.Namespace, Name: g.Name, Missing: g.Missing()}
		selected, asksNot := 0, ""
		for _, member := range g.Members {
			if member.Waits() {
				continue
			}
			gang.Bound = append(gang.Bound, member.UID)
			if selects(member.Pod) {
				selected++
			}
			if why := rebalance.AsksToStay(member.Pod); why != "" {
				asksNot = "member " + member.Name + " " + why
			}
		}
		// The report is the scheduler's. The rest is whether it is still true.
		since, reported := partlyBound(g)
		gang.Since = since
		gang.PartlyBound = asks && reported && selected > 0 && gang.Missing > 0 && len(g.Waiting) >= gang.Missing
		switch {
		case policy != podgroup.RecoveryEvict:
			gang.Stays = fmt.Sprintf(
				"annotation %s is %q, must be %q", podgroup.RecoveryPolicyAnnotation, policy, podgroup.RecoveryEvict,
			)
		case selected < len(gang.Bound):
			gang.Stays = fmt.Sprintf("%d of %d bound members are selected, must be all", selected, len(gang.Bound))
		case asksNot != "":
			gang.Stays = asksNot
		case l.restsElsewhere(r, gang.Workload()):
			gang.Stays = "another ZoneRebalance had its members evicted within the cooldown"
		}
		if asks && selected > 0 || moved[gang.UID] {
			out[gang.UID] = gang
		}
	}
	return out
}

// restsElsewhere reports whether another ZoneRebalance had members of a gang evicted within the cooldown.
func (l *look) restsElsewhere(r *v1alpha1.ZoneRebalance, workload string) bool {
	return slices.ContainsFunc(l.all, func(other *v1alpha1.ZoneRebalance) bool {
		return other.UID != r.UID && !act.GangRests(other, workload, act.Cooldown(r), l.now()).IsZero()
	})
}

// partlyBound reports whether the scheduler says that a gang is bound in part, and since when, zero if it does not say.
func partlyBound(g *census.Gang) (since time.Time, reported bool) {
	if g.Group != nil {
		return time.Time{}, g.Group.Status.Phase == schedulingv1alpha1.PodGroupUnknown
	}
	c := meta.FindStatusCondition(g.Conditions(), native.ConditionPartlyBound)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// tryGang finds out whether the bound members of a gang may be evicted together, and returns zero, or from when on
// there is the budget for that. A copy says so, since the API server answers one eviction at a time: it may let one
// member be evicted and refuse the next.
func (a *answers) tryGang(uid types.UID) (from time.Time) {
	now := a.now()
	if wait := a.plans.TryBegin(now); wait > 0 {
		return now.Add(wait)
	}
	defer func() {
		a.plans.End()
		a.looks.Begin(a.now()) // what this has used is in the other budget
	}()
	copied, err := sim.Of(a.ctx, a.cluster, a.shared.Sim)
	if err != nil {
		a.err = err
		return now.Add(refreshInterval)
	}
	defer copied.Close()
	why := rebalance.WhyGangStays(copied, rebalance.Options{Selects: a.selects}, a.boundMembers(uid))
	a.tried[uid] = act.Tried{At: now, Refused: why}
	return time.Time{}
}

// boundMembers are the members of a gang that have a node.
func (l *look) boundMembers(gang types.UID) (bound []*v1.Pod) {
	for _, key := range l.census.GangKeys() {
		g := l.census.Gang(key)
		if g.UID() != gang {
			continue
		}
		for _, member := range g.Members {
			if !member.Waits() {
				bound = append(bound, member.Pod)
			}
		}
	}
	return bound
}
