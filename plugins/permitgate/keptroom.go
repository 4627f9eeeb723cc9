package permitgate

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// A node that is kept for a member is its nomination in the API. kube-scheduler clears that of every pod whose cycle or
// bind has failed, and until it is restored the filters let others take the room. So Reserve looks at it once more.

// keepsNodes reports whether nodes may be kept for members.
func (e *gangEntry) keepsNodes() bool {
	return e.gang.KeepsNodes() || e.preempting != nil || e.plan.nominated
}

// keptOn lists the members for which a node is kept, also one that is gone, until another replaces it.
func (e *gangEntry) keptOn(node string, now time.Time) (members []*member) {
	uids := sets.New(e.gang.KeptOn(node)...)
	if e.plan.nominated {
		uids.Insert(e.plan.byNode[node]...)
	}
	if e.preempting != nil {
		for uid, kept := range e.preempting.nodes {
			switch {
			case kept.name != node:
			case kept.gone == nil:
				uids.Insert(uid)
			case now.Before(kept.keptUntil):
				members = append(members, kept.gone)
			}
		}
	}
	for uid := range uids {
		if m := e.pods[uid]; m != nil {
			members = append(members, m)
		}
	}
	return members
}

// keptOn lists what members of other gangs than a pod's are to take from a node. It runs in the cycles of all pods.
func (g *gangs) keptOn(node string, gang types.NamespacedName) (promised []promise) {
	if !g.keepsNodes.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for e := range g.keeping {
		if e.key == gang {
			continue
		}
		for _, m := range e.keptOn(node, now) {
			promised = append(promised, m.promise())
		}
	}
	return promised
}

// checkKeptRoom returns an error if a pod would take the room of members that have just lost their nominations.
func (p *PermitGate) checkKeptRoom(pod *v1.Pod, gang types.NamespacedName, nodeName string) error {
	coming := p.gangs.keptOn(nodeName, gang)
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
