package permitgate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// gangEntry is a gang with the plugin's state of it. The lock of gangs guards it.
type gangEntry struct {
	id   gangID
	gang *gang.Gang

	group *podgroup.Group // nil if it does not exist
	pods  map[types.UID]*member
	// priorities counts the pods by priority; unbound is how many have no node.
	priorities map[int32]int
	unbound    int
	// lostNodes are the nodes of bound members that the gang has lost and not replaced.
	lostNodes map[string]struct{}
	// awaitedUntil is until when other gangs leave room for members that the PodGroup asks for and that do not exist.
	awaitedUntil time.Time
	lackClaims   int // how many wait for a claim that does not exist
	nominated    int // how many without a node are nominated in the API

	plan roundPlan // of the present round
	// woken is true if room has become free for which the gang is looked at again, in its turn or at latest.
	woken  bool
	latest time.Time
	// confined is the domain that the members may not leave; tried are the domains that the filters have refused, one
	// after another since triedSince, until none is left.
	confined   domain
	tried      map[string]bool
	triedSince time.Time
	barrier    barrier.Barrier

	preempting *preemption // nil unless the gang preempts
	// unnominated are members for which a preemption keeps nothing any more.
	unnominated    []*v1.Pod
	failedSearches int       // for victims, since one has found some
	searchAfter    time.Time // before when it does not search for victims, because the last search has found none
	// failedReleases counts the releases since the gang was whole whose members were not prepared, lostRooms how often it
	// was refused with the room that it had preempted. evictAfter is before when the gang evicts no pods, because of them
	// or because a round has failed on such room.
	failedReleases, lostRooms int
	evictAfter                time.Time

	// standing is the gang's as the others of its hierarchy have heard of it.
	standing gang.Standing

	// The rest is of a native gang: the cycle from its first PreFilter until the group is placed or back in the queue,
	// the last one, which is zero if members have been placed since, and when the PodGroup was changed last.
	cycle     groupCycle
	lastCycle vainCycle
	changedAt time.Time
	activated bool // since it was woken
}

// member is a live pod of a gang.
type member struct {
	pod *v1.Pod // as the scheduler's informer last showed it; each change makes a new member
	// signature identifies what the member asks of a node (see proposal.Signature), also without the node selector,
	// which may give each member a host of its own. amounts is what it takes from its node.
	signature, onAnyNode string
	amounts              []proposal.Amount
	// absent is a claim of the pod that does not exist; zero without one.
	absent claimRef
}

// read reads from the pod what the member asks for.
func (m *member) read() {
	m.signature, m.amounts = proposal.Signature(m.pod), proposal.Requests(m.pod)
	m.onAnyNode = m.signature
	if len(m.pod.Spec.NodeSelector) > 0 {
		pod := v1.Pod{ObjectMeta: m.pod.ObjectMeta, Spec: m.pod.Spec}
		pod.Spec.NodeSelector = nil
		m.onAnyNode = proposal.Signature(&pod)
	}
}

// template tells which members are its copies: those of the same controller that ask for the same, but for node
// selectors.
func (m *member) template() gang.Template {
	return gang.Template{Controller: pods.ControllerUID(m.pod), Needs: m.onAnyNode}
}

// preemption is a gang's preemption, until its victims are gone and a round of its members has ended.
type preemption struct {
	victims map[types.UID]string // with their nodes
	nodes   map[types.UID]string // of the members
	cleared bool                 // the informers show that the victims are gone
}

// waitsForRoom reports whether a gang that lacks room has not been woken since it was refused, and none is being made
// for it.
func (e *gangEntry) waitsForRoom() bool {
	return (!e.woken || e.activated) && (e.preempting == nil || e.preempting.cleared)
}

func (e *gangEntry) rank() podgroup.Rank {
	r := podgroup.Rank{Priority: e.lowestPriority(), ID: e.id}
	if e.group != nil {
		r.Created = e.group.GetCreationTimestamp().Time
	}
	return r
}

// guarded reports whether the members are bound whole or not at all.
func (e *gangEntry) guarded() bool { return e.group != nil && e.group.Gang != nil }

// topology is how to pack the gang.
func (e *gangEntry) topology() podgroup.Topology {
	if e.group == nil {
		return podgroup.Topology{}
	}
	return e.group.Topology
}

// keeps returns the members that are bound, or whose binds nothing stops, and how many of them must stay unless all go.
func (e *gangEntry) keeps() (atLeast int, bound []*v1.Pod) {
	for uid, m := range e.pods {
		if e.gang.Committed(uid) { // also one whose pod does not name its node yet, which no search can evict with the others
			bound = append(bound, m.pod)
		}
	}
	switch {
	case e.group == nil:
		return 0, nil
	case e.group.KeepsAll:
		return len(bound), bound
	}
	return e.gang.MinMember() - e.gang.Succeeded(), bound // what is left of the quorum goes only as a whole
}

// add stores the current state of a live pod.
func (e *gangEntry) add(uid types.UID, m *member) {
	e.remove(uid)
	e.pods[uid] = m
	e.countPod(m, 1)
}

// noteLost notes that a pod leaves the gang, with the node that it has, if any.
func (e *gangEntry) noteLost(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	if e.lostNodes == nil {
		e.lostNodes = map[string]struct{}{}
	}
	e.lostNodes[pod.Spec.NodeName] = struct{}{}
}

// podOf returns the pod of a member, nil if it is gone.
func (e *gangEntry) podOf(uid types.UID) *v1.Pod {
	if m := e.pods[uid]; m != nil {
		return m.pod
	}
	return nil
}

// remove drops a pod.
func (e *gangEntry) remove(uid types.UID) {
	if m := e.pods[uid]; m != nil {
		e.countPod(m, -1)
		delete(e.pods, uid)
	}
}

func (e *gangEntry) countPod(m *member, n int) {
	priority := corev1.PodPriority(m.pod)
	e.priorities[priority] += n
	if e.priorities[priority] == 0 {
		delete(e.priorities, priority)
	}
	if m.pod.Spec.NodeName != "" {
		return
	}
	e.unbound += n
	if m.absent != (claimRef{}) {
		e.lackClaims += n
	}
	if m.pod.Status.NominatedNodeName != "" {
		e.nominated += n
	}
}

// lowestPriority returns the lowest priority of the members, which is that of the gang; 0 without members.
func (e *gangEntry) lowestPriority() (lowest int32) {
	first := true
	for priority := range e.priorities {
		if first || priority < lowest {
			lowest, first = priority, false
		}
	}
	return lowest
}

// lacks reports whether a member waits for a claim.
func (e *gangEntry) lacks(claim claimRef) bool {
	for _, m := range e.pods {
		if m.absent == claim {
			return true
		}
	}
	return false
}

// absentClaim says which claim of a member does not exist; empty if all do.
func (e *gangEntry) absentClaim() string {
	first := (*member)(nil)
	for _, m := range e.pods {
		if m.absent != (claimRef{}) && (first == nil || m.pod.Name < first.pod.Name) {
			first = m
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("; %s waits for the %s", first.pod.Name, first.absent)
}

// awaitsReplacement reports whether a running gang lacks one member of its quorum, which is scheduled like any pod.
func (e *gangEntry) awaitsReplacement() bool {
	return e.gang.Phase() == gang.Gathering && e.gang.RoundNumber() == 0 && e.gang.AnyPlaced()
}

// schedulesAlone reports whether a member without a node is scheduled like any pod: the quorum is complete, or lacks
// one member.
func (e *gangEntry) schedulesAlone() bool {
	phase := e.gang.Phase()
	return phase == gang.Releasing || phase == gang.Whole || e.awaitsReplacement()
}

// keptNode returns the node that is kept for a member by a nomination in the API, or empty: the bind of the member has
// failed, or the gang preempts.
func (e *gangEntry) keptNode(uid types.UID) string {
	if node := e.gang.KeptNode(uid); node != "" {
		return node
	}
	if e.preempting != nil {
		return e.preempting.nodes[uid]
	}
	return ""
}

// preemptsOn reports whether the gang waits for the end of pods on a node.
func (e *gangEntry) preemptsOn(node string) bool {
	if e.preempting == nil || e.preempting.cleared {
		return false
	}
	return slices.Contains(slices.Collect(maps.Values(e.preempting.nodes)), node)
}

// endPreemption has the gang preempt no longer.
func (e *gangEntry) endPreemption() {
	if e.preempting == nil {
		return
	}
	for uid := range e.preempting.nodes {
		if m := e.pods[uid]; m != nil {
			e.unnominated = append(e.unnominated, m.pod)
		}
	}
	e.preempting = nil
}

// noteRelease takes in what has become of a release. Pods were perhaps evicted for one that fails: the gang evicts no
// more for a pause that grows with each since it was whole.
func (e *gangEntry) noteRelease(actions *gang.Actions, now time.Time) {
	switch r := actions.Rollback; {
	case actions.BecameWhole:
		e.failedReleases, e.lostRooms, e.evictAfter = 0, 0, time.Time{}
	case r != nil && r.Cause == gang.CauseNotPrepared:
		e.evictAfter = now.Add(evictPauseAfter(e.failedReleases))
		e.failedReleases++
	}
}
