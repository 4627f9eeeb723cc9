package permitgate

import (
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// returnInterval is how long after a member has left a scheduling cycle or a node its nomination may be missing, in the
// framework or in the API, before it is there again.
const returnInterval = time.Second

// returning are members that have just lost a nomination which is to be restored: kube-scheduler clears that of every
// pod whose cycle or bind has failed. The lock of gangs guards it.
type returning struct {
	count  atomic.Int64 // how many there are, for scheduling cycles, which need no lock for a look
	byNode map[string]map[types.UID]returningMember
}

type returningMember struct {
	gang  types.NamespacedName
	until time.Time
	promise
}

// noteReturning keeps the node of a member that has left a cycle or a node, or gets it by a preemption, until its
// nomination is there.
func (g *gangs) noteReturning(e *gangEntry, uid types.UID, now time.Time) {
	node, m := e.keptNode(uid), e.pods[uid]
	if node == "" || m == nil {
		return
	}
	r := &g.returning
	if r.byNode == nil {
		r.byNode = map[string]map[types.UID]returningMember{}
	}
	if r.byNode[node] == nil {
		r.byNode[node] = map[types.UID]returningMember{}
	}
	if _, known := r.byNode[node][uid]; !known {
		r.count.Add(1)
	}
	until := now.Add(returnInterval)
	r.byNode[node][uid] = returningMember{e.key, until, promise{uid, corev1.PodPriority(m.pod), m.amounts}}
	g.agenda.AddAt(clusterKey, until)
}

// returningTo lists what members of other gangs than a pod's are about to take from a node again. It runs in the cycles
// of all pods, and looks at that node alone.
func (g *gangs) returningTo(node string, gang types.NamespacedName) (promised []promise) {
	if g.returning.count.Load() == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for uid, m := range g.returning.byNode[node] {
		if m.gang != gang && g.isReturningLocked(uid, &m, node, now) {
			promised = append(promised, m.promise)
		}
	}
	return promised
}

// isReturningLocked reports whether the nomination of a member may be missing still.
func (g *gangs) isReturningLocked(uid types.UID, m *returningMember, node string, now time.Time) bool {
	e := g.byKey[m.gang]
	return now.Before(m.until) && e != nil && e.keptNode(uid) == node
}

// dropReturned forgets the members whose nominations are there again. Only the worker calls it.
func (g *gangs) dropReturned(now time.Time) {
	if g.returning.count.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for node, members := range g.returning.byNode {
		for uid, m := range members {
			if g.isReturningLocked(uid, &m, node, now) {
				g.agenda.AddAt(clusterKey, m.until)
				continue
			}
			delete(members, uid)
			g.returning.count.Add(-1)
		}
		if len(members) == 0 {
			delete(g.returning.byNode, node)
		}
	}
}

// checkKeptRoom returns an error if a pod would take the room of members that have just lost their nominations.
func (p *PermitGate) checkKeptRoom(pod *v1.Pod, gang types.NamespacedName, nodeName string) error {
	coming := p.gangs.returningTo(nodeName, gang)
	for _, member := range p.native.KeptOn(nodeName, pod) {
		coming = append(coming, promise{member.UID, corev1.PodPriority(member), proposal.Requests(member)})
	}
	if len(coming) == 0 {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fmt.Errorf("it is not in the snapshot: %w", err)
	}
	own := proposal.Requests(pod)
	names := make([]v1.ResourceName, len(own))
	for i := range own {
		names[i] = own[i].Name
	}
	free, wanted := make([]int64, len(names)), make([]int64, len(names))
	v := &clusterView{nodes: []fwk.NodeInfo{info}, filters: p.proposer.filters, promised: map[string][]promise{nodeName: coming}}
	v.Free(0, names, free)
	v.Kept(0, pod, names, wanted)
	proposal.Add(wanted, names, own)
	for i, name := range names {
		if wanted[i] > free[i] {
			return fmt.Errorf("its %s is kept for a member of a gang that has just lost its node", name)
		}
	}
	return nil
}
