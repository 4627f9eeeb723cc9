package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/proposal"
)

const (
	// searchShare is how many times as long as its first search for victims a gang then does not search, if that has
	// found none; after each further one it is twice as long, up to searchAtMost. The searches of all gangs are parts of
	// looks, see gangQueue.
	searchShare  = 50
	searchAtMost = time.Minute
	// evictPause is how long a gang evicts no pods after its first release that failed, or after the second time that it
	// did not get the room that it had preempted; evictPauseAtMost bounds that of further ones.
	evictPause       = time.Minute
	evictPauseAtMost = 10 * time.Minute
)

// evictPauseAfter is how long a gang evicts no pods after a failure that so many have preceded: twice as long each time.
func evictPauseAfter(failures int) time.Duration {
	return min(evictPause<<min(failures, 10), evictPauseAtMost)
}

// searchPause is how long a gang does not search for victims after so many searches that found none.
func searchPause(took time.Duration, failed int) time.Duration {
	return max(searchShare*took, min(searchShare*took<<min(failed-1, 10), searchAtMost))
}

// victimSearch looks for pods that a gang may preempt; only scheduling cycles use it.
type victimSearch struct {
	handle    fwk.Handle
	gangs     *gangs
	runner    *filterRunner
	preemptor *preempt.Preemptor
	keeper    *keeper
	budgets   policylisters.PodDisruptionBudgetLister
	nodes     corelisters.NodeLister
	enabled   bool
	delay     time.Duration // how long a gang waits before it preempts: until then an autoscaler may bring room
	start     int           // where the next search begins
}

// find looks for victims for a gang that has no room, either by proof or because a member fits nowhere, and keeps the
// nodes that it gets by them. It returns false if there are none.
func (v *victimSearch) find(ctx context.Context, state fwk.CycleState, req *gangRequest, result *proposalResult) (preempt.Result, bool) {
	cause := result.refusal.Cause
	may := v.enabled && !req.neverPreempts && (cause == gang.CauseNoRoom || cause == gang.CauseUnschedulable)
	began, allowed, failed := time.Time{}, false, 0
	cleared := req.victimsGone(v.handle.SnapshotSharedLister().NodeInfos())
	v.gangs.update(req.gangID, func(e *gangEntry, now time.Time) {
		if e.preempting != nil && e.preempting.cleared && cleared {
			// The gang is refused with the room that it has preempted: it needs more by now, or has lost some of it.
			e.endPreemption()
			req.victims = nil
			if e.lostRooms++; e.lostRooms > 1 { // others may take it each time
				e.evictAfter = now.Add(evictPauseAfter(e.lostRooms - 2))
			}
		}
		failed = e.failedSearches
		began, allowed = now, may && e.preempting == nil && !now.Before(e.searchAfter) && !now.Before(e.evictAfter) && !now.Before(e.gang.ReadySince().Add(v.delay))
	})
	if !allowed {
		return preempt.Result{}, false
	}
	budgets, _ := v.budgets.List(labels.Everything()) // a lister over memory has no error to return
	s := preempt.Search{
		Handle: v.handle, FilterRunner: v.runner, State: state, Nodes: result.view.nodes, Request: req.proposal, Budgets: budgets,
		Reserving: reservingMembers(req, result.view.counted),
		MayEvict:  func(pod *v1.Pod) bool { return v.mayEvict(req, pod) },
		OnItsWay:  func(pod *v1.Pod) bool { return req.pods[pod.UID] != nil },
		Stays:     v.preemptor.Stays,
		GangOf:    v.gangOf(),
		Now:       v.gangs.clock.Now,
	}
	s.Request.Start, s.DomainWindow = v.start, failed
	r := s.Run(ctx)
	if n := len(result.view.nodes); n > 0 {
		v.start = (v.start + r.Looked) % n
	}
	found := len(r.Nodes) > 0 && len(r.Victims)+len(r.Leaving) > 0
	if found && !v.stand(r.Nodes) {
		v.gangs.freed.note() // so that the gang is looked at again
		return preempt.Result{}, false
	}
	claim := (*nodeClaim)(nil)
	if found && req.isApartFrom(slices.Concat(r.Victims, r.Leaving)) {
		claim = v.keeper.claimMembersNodes(ctx, req, r.Nodes, v.preemptor.Limit(&r))
		found = claim != nil
	}
	v.gangs.update(req.gangID, func(e *gangEntry, now time.Time) {
		e.searchAfter = time.Time{}
		if found {
			e.beginPreemption(&r)
			e.failedSearches = 0
			if claim != nil {
				v.keeper.keeping.keep(claim)
			}
			return
		}
		e.failedSearches++
		e.searchAfter = now.Add(searchPause(now.Sub(began), e.failedSearches))
	})
	return r, found
}

// reservingMembers returns the missing members that take devices or volumes: plugins reserve these.
func reservingMembers(req *gangRequest, counted *countedResources) map[types.UID]*v1.Pod {
	reserving := map[types.UID]*v1.Pod{}
	for i := range req.proposal.Classes {
		class := &req.proposal.Classes[i]
		asksForDevices := slices.ContainsFunc(proposal.Requests(class.Pod), func(a proposal.Amount) bool { return counted.hasDeviceClass(a.Name) })
		for _, uid := range class.Members {
			if pod := req.pods[uid]; pod != nil && (asksForDevices || len(claimsOf(pod)) > 0) {
				reserving[uid] = pod
			}
		}
	}
	return reserving
}

// stand reports whether nodes that a search has found may still take pods. The event of one that is cordoned or gone may
// have come before kube-scheduler has seen that, and a gang that waits for pods to leave it would wait for nothing.
func (v *victimSearch) stand(nodes map[types.UID]string) bool {
	infos := v.handle.SnapshotSharedLister().NodeInfos()
	for _, name := range nodes {
		seen, err := infos.Get(name)
		if err != nil {
			return false
		}
		if node, err := v.nodes.Get(name); err != nil || nodeCloses(seen.Node(), node) {
			return false
		}
	}
	return true
}

// begin starts the evictions, unless the gang no longer needs them.
func (v *victimSearch) begin(ctx context.Context, id gangID, r *preempt.Result) {
	v.preemptor.Begin(ctx, id, r)
	var kept []nomination
	preempts := false
	v.gangs.read(id, func(e *gangEntry) {
		preempts = e.preempting != nil
		if preempts {
			for uid, node := range e.preempting.nodes {
				if m := e.pods[uid]; m != nil {
					kept = append(kept, nomination{m.pod, node})
				}
			}
		}
	})
	if !preempts {
		v.preemptor.Abandon(id)
	}
	nominate(klog.FromContext(ctx), v.handle, kept) // until the API shows it
}

// mayEvict reports whether a gang may preempt a pod. Pods of DaemonSets and of the kubelet itself would come back.
func (v *victimSearch) mayEvict(req *gangRequest, pod *v1.Pod) bool {
	if corev1.PodPriority(pod) >= req.rank.Priority || req.members[pod.UID] || v.preemptor.IsVictim(pod.UID) {
		return false
	}
	return !comesBack(pod)
}

// gangOf returns a function that returns the gang of a pod that may be a victim, nil for none that keeps members. It
// looks at each gang once.
func (v *victimSearch) gangOf() func(pod *v1.Pod) *preempt.Gang {
	known := map[gangID]*preempt.Gang{}
	return func(pod *v1.Pod) *preempt.Gang {
		id, member := podgroup.IDOf(pod)
		if !member {
			return nil
		}
		g, found := known[id]
		if !found {
			g = v.gang(id)
			known[id] = g
		}
		return g
	}
}

// gang returns a gang of which pods may be victims, nil if it keeps no members.
func (v *victimSearch) gang(id gangID) *preempt.Gang {
	g := &preempt.Gang{}
	v.gangs.read(id, func(e *gangEntry) { g.MinMember, g.Bound = e.keeps() })
	if g.MinMember <= 0 {
		return nil
	}
	return g
}

// beginPreemption keeps the nodes that a gang gets by a preemption.
func (e *gangEntry) beginPreemption(r *preempt.Result) {
	e.preempting = &preemption{victims: map[types.UID]string{}, nodes: map[types.UID]string{}}
	for _, pod := range slices.Concat(r.Victims, r.Leaving) {
		e.preempting.victims[pod.UID] = pod.Spec.NodeName
	}
	for uid, name := range r.Nodes {
		if e.pods[uid] != nil {
			e.preempting.nodes[uid] = name
		}
	}
}

var _ preempt.Gangs = &gangs{}

// Cleared implements preempt.Gangs.
func (g *gangs) Cleared(id gangID) {
	g.change(id, func(e *gangEntry, now time.Time) {
		if e.preempting != nil {
			e.preempting.cleared = true
			g.wakeLocked(e, now)
			e.latest = now
		}
	})
	g.freed.note()
}

// GivenUp implements preempt.Gangs.
func (g *gangs) GivenUp(id gangID, again bool) {
	g.change(id, func(e *gangEntry, now time.Time) {
		e.endPreemption()
		if again {
			e.gang.RoomFreed(now)
		}
	})
}

// victimsGone reports whether the victims of the gang's preemption are gone from the cycle's nodes.
func (req *gangRequest) victimsGone(infos fwk.NodeInfoLister) bool {
	for uid, node := range req.victims {
		if info, err := infos.Get(node); err == nil && isOn(info, uid) {
			return false
		}
	}
	return true
}
