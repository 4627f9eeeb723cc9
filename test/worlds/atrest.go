package worlds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/survival"
	"zonewise.dev/test/crdtest"
)

// This file compares what copies of a world say will come, for certificates and for plans of moves, with what comes.

// quiet is how long before a world is thought to be at rest again that has got room.
const quiet = 15 * time.Minute

// runAgain is how long displaced pods may take: a node is lost for a while before its pods go, a policy waits until a
// zone counts as down or full, and a gang until it has collected room.
const runAgain = 20 * time.Minute

// certifiedReplays is more than a certificate has by default: which of equal pods is preempted is decided by chance, and
// what is looked for is what no replay has.
const certifiedReplays = 12

// outside calls functions outside of a bubble, whose time stands still meanwhile: a copy of the scheduler knows by the
// machine's clock that its goroutines rest.
type outside chan func()

func newOutside() outside {
	calls := make(outside) // made outside, so that the bubble does not count as idle when it waits for one
	go func() {
		for call := range calls {
			call()
		}
	}()
	return calls
}

// call returns when f has returned.
func (o outside) call(f func()) {
	o <- f
	o <- func() {} // is taken after f
}

// objects returns the cluster as a copy of it is made from. Kubelets say which pods are ready.
func (p *player) objects() (all []client.Object) {
	for _, like := range kinds.All() {
		all = append(all, crdtest.All(p.custom, like)...)
		resource, kind := kinds.ResourceOf(like)
		list, err := p.server.Client.Tracker().List(resource.WithVersion(kind.Version), kind, metav1.NamespaceAll)
		if runtime.IsNotRegisteredError(err) {
			continue // a custom resource
		}
		items, failed := meta.ExtractList(list)
		if err != nil || failed != nil {
			panic(fmt.Sprintf("worlds: %v, %v", err, failed))
		}
		for _, item := range items {
			if pod, ok := item.(*v1.Pod); ok && p.answers(pod.Spec.NodeName) {
				pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
			}
			all = append(all, item.(client.Object))
		}
	}
	return all
}

// answers reports whether a node is there and not lost.
func (p *player) answers(name string) bool {
	n := p.nodes[name]
	return n != nil && !n.lost
}

// anyEnds reports whether pods that run will end by themselves.
func (p *player) anyEnds() bool {
	return slices.ContainsFunc(p.listPods(), func(pod v1.Pod) bool {
		return pod.Spec.NodeName != "" && p.workloads[pod.Labels[workloadLabel]].runs() > 0
	})
}

// certified returns how many pods run of each workload of which a certificate says that it survives the loss of a zone,
// and how many of these the loss displaces.
func (p *player) certified(zone string) (pods map[string]int64, displaced int64) {
	var asked []*v1alpha1.ZoneSurvival
	for _, name := range slices.Sorted(maps.Keys(p.workloads)) {
		s := &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.Survive.ZoneNames = []string{zone}
		s.Spec.Workloads = []v1alpha1.SurvivalWorkload{{
			Namespace:   metav1.NamespaceDefault,
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{workloadLabel: name}},
		}}
		asked = append(asked, s)
	}
	objects, options := p.objects(), survival.Options{Sim: sim.Options{Now: time.Now()}, Replays: certifiedReplays}
	var statuses []v1alpha1.ZoneSurvivalStatus
	var err error
	p.outside.call(func() { statuses, err = survival.Certify(context.Background(), objects, asked, options) })
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	pods = map[string]int64{}
	for i := range statuses {
		status := &statuses[i]
		if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSurvives) {
			pods[asked[i].Name] = status.Pods
			displaced += status.Losses[0].Displaced
		}
	}
	return pods, displaced
}

// loseCertified loses a zone, unless that would displace no pod that is certified to run again, and checks that those
// do which are.
func (p *player) loseCertified(zone string, nodesStay bool) {
	p.reportStarts()
	certified, displaced := p.certified(zone)
	if displaced == 0 || p.anyEnds() {
		return
	}
	p.displaced += int(displaced)
	// A certificate is about pods that are displaced before the loss from nodes that are not ready.
	anyLost := false
	for _, n := range p.allNodes() {
		n.outOfService = n.lost
		anyLost = anyLost || n.lost
	}
	if anyLost {
		p.wait(time.Minute)
	}
	lost := p.nodesOf(zone, "")
	for _, n := range lost {
		if nodesStay {
			p.setLost(n, true)
		} else {
			p.removeNode(n.Name)
		}
	}
	if nodesStay { // to a copy they are out of service once other pods have been replaced
		p.wait(evictedAfter + time.Minute)
		for _, n := range lost {
			n.outOfService = true
		}
	}
	p.wait(runAgain)
	for _, pod := range p.listPods() {
		if p.answers(pod.Spec.NodeName) && pod.DeletionTimestamp == nil {
			certified[pod.Labels[workloadLabel]]--
		}
	}
	for name, missing := range certified {
		if missing > 0 {
			p.fail(CertificatesHold, "zone %s was lost (its nodes stay: %v), and %v later %d pods of %s do not run that were certified to", zone, nodesStay, runAgain, missing, name)
		}
	}
}

// planMoves returns the first batch of moves that is accepted for the cluster as it is.
func (p *player) planMoves() (plan *rebalance.Plan) {
	objects, options := p.objects(), sim.Options{Now: time.Now()}
	var err error
	p.outside.call(func() {
		var copied *sim.Sim
		if copied, err = sim.New(context.Background(), objects, options); err == nil {
			plan, err = rebalance.First(context.Background(), copied, rebalance.Options{})
		}
	})
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	return plan
}

// carryOutPlans evicts what plans say, a batch at a time, until one is empty. Each move lowers by one or more how many
// pods are more than the rules allow where they are, so no more plans than that have moves.
func (p *player) carryOutPlans() {
	if p.anyEnds() {
		return
	}
	plan := p.planMoves()
	excess := plan.Before.Excess
	for plans := int64(0); len(plan.Moves) > 0 && !p.failed(); plans++ {
		if plans == excess {
			p.fail(MovesEnd, "%d pods were more than the rules allowed in their zones, and after as many plans another one has moves: %v", excess, plan.Moves)
			return
		}
		leaves := map[types.UID]bool{}
		for _, m := range plan.Moves {
			leaves[m.UID] = true
		}
		before := p.boundPods()
		for _, pod := range p.listPods() {
			if leaves[pod.UID] {
				p.deletePod(&pod)
			}
		}
		p.wait(settling)
		p.moved += len(plan.Moves)
		after := p.boundPods()
		for uid, name := range before {
			if after[uid] == "" && !leaves[uid] {
				p.fail(MovesEnd, "pod %s has lost its node to the moves %v", name, plan.Moves)
			}
		}
		if len(after) < len(before) {
			p.fail(MovesEnd, "of %d pods with a node %d have one after the moves %v", len(before), len(after), plan.Moves)
		}
		plan = p.planMoves()
	}
}
