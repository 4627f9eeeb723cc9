package permitgate

import (
	"context"
	"maps"
	"sync"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/plan"
)

// exclusionsLast is how long a refusal is remembered beyond its round.
const exclusionsLast = time.Minute

// exclusions are nodes that other plugins refused to members of a gang, for reasons that plans do not know:
// the affinity of other pods, volumes, devices.
type exclusions struct {
	byNeeds map[string]*plan.Exclusions
	since   time.Time
	brief   bool      // something of it, or of the cluster, may be different in the next round
	roomAt  time.Time // when room was made last
}

// trails is how much later than these informers the scheduler's cache may hear of a change.
const trails = time.Second

// roomMade has what is known forgotten with the next round.
func (x *exclusions) roomMade(now time.Time) { x.brief, x.roomAt = true, now }

// needsOf tells members apart that may be refused by different nodes.
func needsOf(pod *v1.Pod, signature string) string {
	needs := signature
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return needs + string(pod.UID)
		}
	}
	return needs
}

// of returns what is refused to a member, nil when nothing is.
func (x *exclusions) of(pod *v1.Pod, signature string) *plan.Exclusions {
	if len(x.byNeeds) == 0 {
		return nil
	}
	return x.byNeeds[needsOf(pod, signature)]
}

// signed is a pod and its plan.Signature, which takes longer than everything else that a plan asks of a member.
type signed struct {
	pod       *v1.Pod
	signature string
}

// signatureLocked returns the plan.Signature of a member.
func (e *entry) signatureLocked(pod *v1.Pod) string {
	if known := e.signatures[pod.UID]; known.pod == pod {
		return known.signature
	}
	if e.signatures == nil {
		e.signatures = map[types.UID]signed{}
	}
	s := signed{pod, unique.Make(plan.Signature(pod)).Value()} // most members have the same
	e.signatures[pod.UID] = s
	return s.signature
}

// add remembers refusals. The sets that plans have been given do not change.
func (x *exclusions) add(pod *v1.Pod, nodes map[string]string, now time.Time) {
	if x.byNeeds == nil {
		x.byNeeds = map[string]*plan.Exclusions{}
	}
	needs := needsOf(pod, plan.Signature(pod))
	merged := &plan.Exclusions{Nodes: make(map[string]string, len(nodes))}
	if old := x.byNeeds[needs]; old != nil {
		maps.Copy(merged.Nodes, old.Nodes)
	}
	maps.Copy(merged.Nodes, nodes)
	x.byNeeds[needs] = merged
	x.since, x.brief = now, false
}

// startRound forgets refusals that may not hold any more. Within a round they stay, or the plan would
// return to a node that has just been refused.
func (x *exclusions) startRound(now time.Time) {
	if x.byNeeds != nil && (x.brief || now.Sub(x.since) > exclusionsLast) {
		*x = exclusions{roomAt: x.roomAt}
	}
}

// planned are the plugins whose rules a plan knows, so that it needs no list of the nodes that they refuse.
var planned = map[string]bool{
	"NodeResourcesFit": true, "NodeAffinity": true, "TaintToleration": true, "NodeUnschedulable": true,
	"NodePorts": true, "PodTopologySpread": true, "ZoneSpread": true, "ReserveCache": true, Name: true,
}

// spreads are the plugins that refuse a node for as long as others of the plan are still to come.
var spreads = map[string]bool{"PodTopologySpread": true, "ZoneSpread": true, "InterPodAffinity": true}

// refusedNodes asks the other plugins about all nodes, for a member that they refused its planned one, so that the
// next plan is right at once. It runs in the member's scheduling cycle.
func (p *PermitGate) refusedNodes(ctx context.Context, state fwk.CycleState, pod *v1.Pod) map[string]string {
	refused := map[string]string{}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return refused
	}
	state = state.Clone()
	state.Delete(pinKey)
	var mu sync.Mutex // guards refused
	p.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
		status := p.handle.RunFilterPlugins(ctx, state, pod, nodes[i])
		if status.IsRejected() && !planned[status.Plugin()] {
			mu.Lock()
			defer mu.Unlock()
			refused[nodes[i].Node().Name] = refusedBy(status)
		}
	}, Name)
	return refused
}

// refusedBy says in words, to follow "1 node" or "2 nodes", who refused.
func refusedBy(status *fwk.Status) string {
	words := "refused by " + status.Plugin()
	if message := status.Message(); message != "" {
		words += " (" + message + ")"
	}
	return words
}

// refusedPin hears that a member was refused its planned node. What refuses it only until others of the
// plan have come is tried again; everything else is planned anew, without the nodes that are refused.
func (p *PermitGate) refusedPin(ctx context.Context, state fwk.CycleState, key types.NamespacedName, pod *v1.Pod, node string, status *fwk.Status) {
	again := false
	if spreads[status.Plugin()] {
		p.shared.change(key, func(e *entry, now time.Time) { again = e.gang.Again(pod.UID, now) })
	}
	if again {
		return
	}
	refused := p.refusedNodes(ctx, state, pod)
	refused[node] = refusedBy(status)
	detail := "node " + node + ": " + refusedBy(status)
	klog.FromContext(ctx).V(3).Info("A planned node was refused", "podGroup", key, "pod", klog.KObj(pod), "detail", detail, "refused", len(refused))
	p.shared.change(key, func(e *entry, now time.Time) {
		e.exclusions.add(pod, refused, now)
		// What a plan knows itself, such as room that is taken, it sees for itself in the next round. And the snapshot may be older than
		// the room that was made just now.
		e.exclusions.brief = planned[status.Plugin()] || now.Sub(e.exclusions.roomAt) < trails
		e.gang.Replan(pod.UID, detail, now)
		p.shared.checkNominationLocked(e, pod.UID)
	})
}
