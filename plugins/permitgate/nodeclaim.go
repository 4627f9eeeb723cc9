package permitgate

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// nodeClaim is the nodes that a starving gang keeps. It does not change, and may be used by several goroutines.
type nodeClaim struct {
	gang  gangID
	rank  podgroup.Rank
	nodes sets.Set[string]
	// known are all nodes when a gang that runs was looked at last, nil for other gangs. It keeps a node that comes
	// later until then: that may stand for one that its members have lost.
	known sets.Set[string]
	// since is when the gang began to keep nodes, fit the most members that have fitted on them at once since then, and
	// until is when it keeps them no longer unless more do.
	since, until time.Time
	fit          int
}

// keeps reports whether the gang keeps a node.
func (c *nodeClaim) keeps(node string) bool {
	return c.nodes.Has(node) || c.known != nil && !c.known.Has(node)
}

// concerns reports whether a pod has to leave the gang its nodes.
func (c *nodeClaim) concerns(pod *v1.Pod) bool {
	if corev1.PodPriority(pod) > c.rank.Priority || comesBack(pod) {
		return false
	}
	gang, ok := podgroup.IDOf(pod)
	return !ok || gang != c.gang
}

// keepsOff reports whether a pod must not come to a node because a gang keeps it. Pods that are nominated there may,
// and owners of what ReserveCache holds there.
func (c *nodeClaim) keepsOff(pod *v1.Pod, info fwk.NodeInfo, holds Holds, nominated func(pod *v1.Pod, node string) bool) bool {
	name := info.Node().Name
	return c.keeps(name) && c.concerns(pod) && !nominated(pod, name) && !ownsHold(holds, pod, info)
}

// ownsHold reports whether as much is held for a pod on a node as the pod takes, also where it is held for the gang
// too.
func ownsHold(holds Holds, pod *v1.Pod, info fwk.NodeInfo) bool {
	if holds == nil {
		return false
	}
	requests := proposal.Requests(pod)
	names := make([]v1.ResourceName, len(requests))
	for i := range requests {
		names[i] = requests[i].Name
	}
	own := make([]int64, len(names))
	holds.Own(pod, info, names, own)
	for i := range requests {
		if own[i] < requests[i].Value {
			return false
		}
	}
	return true
}

// isNominated reports whether a pod is nominated to a node, since it has preempted there, or was about to be bound. The
// framework knows before the API does.
func (p *PermitGate) isNominated(pod *v1.Pod, node string) bool {
	return pod.Status.NominatedNodeName == node || slices.ContainsFunc(upstream.NominatedTo(p.handle, node), func(nominated fwk.PodInfo) bool {
		return nominated.GetPod().UID == pod.UID
	})
}

// keeping knows which gang keeps nodes. Its methods may be called from several goroutines, also under the locks of the
// gangs.
type keeping struct {
	// claim is what that gang keeps, nil if none does. Scheduling cycles read it without the lock.
	claim  atomic.Pointer[nodeClaim]
	agenda *agenda.Agenda[gangID]

	mu sync.Mutex // guards everything below, and changes of claim
	// rests are the times until which gangs do not begin to keep nodes.
	rests map[gangID]time.Time
	// refused are pods that were kept off, for which it is no event that a gang has ceased to keep nodes; ended is true
	// if one has, also in favor of another, since they were taken last.
	refused map[types.UID]*v1.Pod
	ended   bool
	// ownersAt is when owners among them were taken last.
	ownersAt time.Time
}

func newKeeping(a *agenda.Agenda[gangID]) *keeping {
	return &keeping{agenda: a, rests: map[gangID]time.Time{}, refused: map[types.UID]*v1.Pod{}}
}

// claimOf returns what a gang keeps, nil if nothing.
func (k *keeping) claimOf(gang gangID) *nodeClaim {
	if claim := k.claim.Load(); claim != nil && claim.gang == gang {
		return claim
	}
	return nil
}

// admits reports whether a gang of this rank may begin to keep nodes: it does not rest, and no gang keeps any, or one
// that comes after it.
func (k *keeping) admits(gang gangID, rank podgroup.Rank, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	claim := k.claim.Load()
	return !now.Before(k.rests[gang]) && (claim == nil || rank.Compare(claim.rank) < 0)
}

// keep has the gang of a claim keep its nodes, instead of those that it or another has kept before.
func (k *keeping) keep(claim *nodeClaim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before := k.claim.Load(); before != nil && !claim.nodes.IsSuperset(before.nodes) {
		k.noteEndLocked()
	}
	k.claim.Store(claim)
	k.agenda.AddAt(noGang, claim.until)
}

// rest keeps a gang from beginning to keep nodes for a time, and has it keep none.
func (k *keeping) rest(gang gangID, pause time.Duration, now time.Time) {
	k.stop(gang)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restLocked(gang, pause, now)
}

func (k *keeping) restLocked(gang gangID, pause time.Duration, now time.Time) {
	maps.DeleteFunc(k.rests, func(_ gangID, until time.Time) bool { return !now.Before(until) })
	k.rests[gang] = now.Add(pause)
}

// stop has a gang keep no nodes any more.
func (k *keeping) stop(gang gangID) {
	if k.claimOf(gang) == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.claimOf(gang) != nil {
		k.claim.Store(nil)
		k.noteEndLocked()
	}
}

func (k *keeping) noteEndLocked() {
	k.ended = true
	k.agenda.Add(noGang)
}

// noteRefused remembers a pod that a claim of a gang kept off.
func (k *keeping) noteRefused(pod *v1.Pod, claim *nodeClaim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused[pod.UID] = pod
	if k.claim.Load() != claim { // some of its nodes may have been given up meanwhile
		k.noteEndLocked()
	}
}

// ownersPause is how often owners of holds are tried again that were kept off: some may be on a kept node since.
const ownersPause = 30 * time.Second

// takeOwners returns the pods that were kept off and own holds, in the form of the handle's argument, each time that
// ownersPause has passed while a gang keeps nodes. again is when to ask again; zero means not by time.
func (k *keeping) takeOwners(owns func(pod *v1.Pod) bool, now time.Time) (owners map[string]*v1.Pod, again time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	claim := k.claim.Load()
	if claim == nil {
		return nil, time.Time{}
	}
	if k.ownersAt.Before(claim.since) {
		k.ownersAt = claim.since
	}
	if again = k.ownersAt.Add(ownersPause); now.Before(again) {
		return nil, again
	}
	owners = map[string]*v1.Pod{}
	for _, pod := range k.refused {
		if owns(pod) {
			owners[podgroup.Key(pod).String()] = pod
		}
	}
	k.ownersAt = now
	return owners, now.Add(ownersPause)
}

// takeEnded reports whether nodes are no longer kept that were, and returns the pods that were kept off, in the form of
// the handle's argument. It ends a claim whose time is over, after which the gang rests. again is when to ask again;
// zero means not by time.
func (k *keeping) takeEnded(now time.Time) (ended bool, refused map[string]*v1.Pod, again time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if claim := k.claim.Load(); claim != nil {
		if now.Before(claim.until) {
			again = claim.until
		} else {
			k.restLocked(claim.gang, restShare*now.Sub(claim.since), now)
			k.claim.Store(nil)
			k.ended = true
		}
	}
	if !k.ended {
		return false, nil, again
	}
	refused = map[string]*v1.Pod{}
	for _, pod := range k.refused {
		refused[podgroup.Key(pod).String()] = pod
	}
	k.ended = false
	clear(k.refused)
	return true, refused, again
}

// comesBack reports whether another pod comes to the node when this one is deleted: it is the mirror of a static pod,
// or belongs to a DaemonSet. Its owner reference says so, which anyone can write, and its node affinity names one node.
func comesBack(pod *v1.Pod) bool {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchFields, func(r v1.NodeSelectorRequirement) bool { return r.Key == metav1.ObjectNameField })
	})
}
