package native

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/execute"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/plugins/permitgate/rehearse"
)

// Config configures Gangs.
type Config struct {
	Clock clock.WithTicker
	// Gang is that of the gangs; Native is set.
	Gang gang.Config
	// Executor carries out what the gangs decide; its Rehearse is set.
	execute.Executor
	// Pause is how long a gang is not woken after a cycle that took so long was in vain, beside so many gangs that are refused.
	Pause func(took time.Duration, refused int) time.Duration
	// NeedsNoRoom hears, again and again, of gangs that have their quorum or cannot have one. It is called on the lock.
	NeedsNoRoom func(key types.NamespacedName)
}

// Gangs are the native gangs of one scheduler. Make one with Watch; its methods may be called from several goroutines. Those that take
// part in queueing may be called under the scheduling queue's lock: while a lock of this package is held, neither the queue nor a
// waiting pod nor the API server is called.
type Gangs struct {
	config    Config
	podLister corelisters.PodLister
	lister    schedulinglisters.PodGroupLister
	agenda    *agenda.Agenda[types.NamespacedName] // gangs that the worker must look at
	writes    *agenda.Agenda[types.NamespacedName] // gangs whose conditions or nominations may be wrong
	rehearser *rehearse.Rehearser

	mu      sync.Mutex // guards everything below, the gangs included
	leads   bool
	byKey   map[types.NamespacedName]*entry
	cycling map[*entry]struct{}   // those whose cycle has not ended
	refused map[*entry]*vainCycle // those whose last cycle was in vain
	roomAt  time.Time             // when room became free last
}

// entry is a gang with what is known of its objects.
type entry struct {
	key     types.NamespacedName
	gang    *gang.Gang
	group   *schedulingv1beta1.PodGroup // nil while it does not exist
	guarded bool                        // by the group's spec when it was seen last
	pods    map[types.UID]*member
	// labelled are the pods that came without a node and have the label of the other API, until it is known whether to
	// say that the label makes them no members of a gang.
	labelled map[types.UID]struct{}
	barrier  barrier.Barrier
	failures events.Failures
	patched  *schedulingv1beta1.PodGroup // the group as the last patch has left it; nil before
	cycle    cycle                       // the pod-group cycle that has not ended; zero without one

	// vain is true if the last cycle has placed nobody. refusal is why, by a proof; its Cause is empty without one. refusalDue is true until the
	// worker has taken it in.
	vain, refusalDue bool
	refusal          gang.Rollback
	// topology is how to pack the gang. constrained is true if kube-scheduler does that, and complaint says what is wrong with it.
	topology    podgroup.Topology
	constrained bool
	complaint   string
	// tried are the domains in which the gang was tried in vain since the PodGroup was changed; domain is that of its last placement.
	tried  map[string]bool
	domain string
	// changedAt is when the PodGroup was changed. succeeded is how many members had succeeded when too few were left.
	changedAt time.Time
	succeeded int
	// lostNodes are the nodes of bound members that the gang has lost and not replaced.
	lostNodes map[string]struct{}
}

// member is a live pod of a gang.
type member struct {
	pod      *v1.Pod // as the informer last showed it
	template gang.Template
}

// Watch starts to follow the pods and the PodGroups of a scheduler until ctx ends. synced are functions that report whether the first
// lists have been seen.
func Watch(ctx context.Context, c Config, factory informers.SharedInformerFactory) (g *Gangs, synced []toolscache.InformerSynced, err error) {
	c.Gang.Native = true
	podGroups := factory.Scheduling().V1beta1().PodGroups()
	g = &Gangs{
		config: c, podLister: factory.Core().V1().Pods().Lister(), lister: podGroups.Lister(),
		agenda: agenda.New[types.NamespacedName](c.Clock), writes: agenda.New[types.NamespacedName](c.Clock),
		byKey: map[types.NamespacedName]*entry{}, cycling: map[*entry]struct{}{}, refused: map[*entry]*vainCycle{},
	}
	g.rehearser = rehearse.New(c.Clock, g)
	g.config.Rehearse = g.rehearser.Begin
	podsSeen, err := factory.Core().V1().Pods().Informer().AddEventHandler(informer.Latest(g.podSeen, g.podGone))
	if err != nil {
		return nil, nil, fmt.Errorf("watching pods: %w", err)
	}
	groupsSeen, err := podGroups.Informer().AddEventHandler(informer.Latest(g.groupSeen, g.groupGone))
	if err != nil {
		return nil, nil, fmt.Errorf("watching PodGroups: %w", err)
	}
	go g.agenda.Run(ctx, 1, func(key types.NamespacedName) { g.act(ctx, key) })
	return g, []toolscache.InformerSynced{podsSeen.HasSynced, groupsSeen.HasSynced}, nil
}

// Idle reports whether there is nothing to do until an event comes or the clock moves.
func (g *Gangs) Idle() bool {
	if g == nil {
		return true
	}
	return g.agenda.Idle() && g.rehearser.Idle() && (!g.leading() || g.writes.Idle())
}

// Each calls f for each guarded gang. f must not call anything that blocks or takes another lock.
func (g *Gangs) Each(f func(*gang.Gang)) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byKey {
		if e.guarded {
			f(e.gang)
		}
	}
}

// change runs f on a gang, which is made if it does not exist, and has the worker act on it.
func (g *Gangs) change(key types.NamespacedName, f func(e *entry, now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil {
		e = &entry{key: key, gang: gang.New(g.config.Gang), pods: map[types.UID]*member{}, labelled: map[types.UID]struct{}{}}
		e.barrier = barrier.New(e.gang)
		g.byKey[key] = e
	}
	f(e, g.config.Clock.Now())
	g.settleLocked(e)
	g.agenda.Add(key)
}

// LoseNode has members lose a node that is gone.
func (g *Gangs) LoseNode(node string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byKey {
		if e.gang.LoseNode(node, g.config.Clock.Now()) {
			g.settleLocked(e)
			g.agenda.Add(e.key)
		}
	}
}

// Change runs f on the lock of a gang's. What changes by that is settled as ever.
func (g *Gangs) Change(key types.NamespacedName, f func()) {
	g.change(key, func(*entry, time.Time) { f() })
}

// settleLocked does what follows when a gang has changed: it answers members at the barrier, and tells of a gang that
// needs no room.
func (g *Gangs) settleLocked(e *entry) {
	e.barrier.Answer()
	if !e.guarded || !e.gang.LacksQuorum() {
		if e.gang.Phase() != gang.Pending {
			e.lostNodes = nil
		}
		g.config.NeedsNoRoom(e.key)
	}
}

// Keeps returns the members of a group that are bound, and how many of them must stay unless all go: all of a group
// with the disruption mode All, minCount of a gang that is guarded, and none of others.
func (g *Gangs) Keeps(key types.NamespacedName) (atLeast int, bound []*v1.Pod) {
	if g == nil {
		return 0, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil || e.group == nil {
		return 0, nil
	}
	for uid, m := range e.pods {
		if m.pod.Spec.NodeName != "" || e.gang.Committed(uid) {
			bound = append(bound, m.pod)
		}
	}
	mode := e.group.Spec.DisruptionMode
	switch {
	case mode != nil && mode.All != nil:
		return len(bound), bound
	case e.guarded:
		return e.gang.MinMember(), bound
	}
	return 0, nil
}

// Step runs f for a step of a pod in the scheduler, if its group is guarded, and reports whether it is. placed says
// that the pod has been given a node by the last cycle. kube-scheduler may have seen the objects before this package
// has: those that are not known yet, or with scheduling gates that are gone, are taken from the informers' stores.
// Their events are on the way, those of their ends too.
func (g *Gangs) Step(pod *v1.Pod, placed bool, f func(g *gang.Gang, b *barrier.Barrier, now time.Time)) (guarded bool) {
	g.step(pod, func(e *entry, now time.Time) {
		guarded = true
		if placed {
			g.placedLocked(e)
		}
		f(e.gang, &e.barrier, now)
	})
	return guarded
}

// Guards reports whether a pod's group is guarded.
func (g *Gangs) Guards(pod *v1.Pod) bool {
	return g.Step(pod, false, func(*gang.Gang, *barrier.Barrier, time.Time) {})
}

func (g *Gangs) step(pod *v1.Pod, f func(e *entry, now time.Time)) {
	key, ok := GroupOf(pod)
	if g == nil || !ok {
		return
	}
	g.change(key, func(e *entry, now time.Time) {
		if e.group == nil {
			if group, err := g.lister.PodGroups(key.Namespace).Get(key.Name); err == nil {
				e.setGroup(group, now)
			}
		}
		if m := e.pods[pod.UID]; m == nil || len(m.pod.Spec.SchedulingGates) > len(pod.Spec.SchedulingGates) {
			if known, err := g.podLister.Pods(pod.Namespace).Get(pod.Name); err == nil && known.UID == pod.UID && pods.Live(known) {
				e.setPod(known, now)
			}
		}
		if e.guarded {
			f(e, now)
		}
	})
}

// PreEnqueue says why a member may not enter the queue: from the moment that one has lost its node until all are back.
func (g *Gangs) PreEnqueue(pod *v1.Pod) (reason gang.Reason, detail string) {
	g.step(pod, func(e *entry, now time.Time) {
		g.requeuedLocked(e, now)
		reason, detail, _ = e.gang.Enqueue(pod.UID, now)
	})
	return reason, detail
}

func (g *Gangs) podSeen(pod *v1.Pod) {
	key, ok := GroupOf(pod)
	switch {
	case !ok:
	case !pods.Live(pod):
		g.podGone(pod)
	default:
		g.change(key, func(e *entry, now time.Time) { e.setPod(pod, now) })
	}
}

func (g *Gangs) podGone(pod *v1.Pod) {
	if key, ok := GroupOf(pod); ok {
		g.change(key, func(e *entry, now time.Time) {
			if pod.Spec.NodeName != "" {
				if e.lostNodes == nil {
					e.lostNodes = map[string]struct{}{}
				}
				e.lostNodes[pod.Spec.NodeName] = struct{}{}
			}
			delete(e.pods, pod.UID)
			e.gang.DeletePod(pod.UID, now)
			e.vain = e.vain && e.anyUnbound()
		})
	}
}

func (g *Gangs) groupSeen(group *schedulingv1beta1.PodGroup) {
	g.change(types.NamespacedName{Namespace: group.Namespace, Name: group.Name}, func(e *entry, now time.Time) {
		if e.setGroup(group, now) {
			e.changedAt = now
			g.wakeLocked(e)
		}
	})
}

func (g *Gangs) groupGone(group *schedulingv1beta1.PodGroup) {
	g.change(types.NamespacedName{Namespace: group.Namespace, Name: group.Name}, func(e *entry, now time.Time) {
		e.group = nil
		e.gang.DeleteGroup(now)
	})
}

// setGroup takes the current state of the PodGroup, and reports whether what it asks for has changed.
func (e *entry) setGroup(group *schedulingv1beta1.PodGroup, now time.Time) (changed bool) {
	before := e.topology
	e.topology, e.complaint = podgroup.TopologyOf(group)
	e.constrained = group.Spec.SchedulingConstraints != nil && len(group.Spec.SchedulingConstraints.Topology) > 0
	if e.constrained && e.topology != (podgroup.Topology{}) {
		e.topology, e.complaint = podgroup.Topology{}, "spec.schedulingConstraints is set as well, and takes precedence over the annotation"
	}
	changed = e.topology != before || e.group != nil && e.group.Generation != group.Generation
	if changed {
		e.tried = nil
	}
	e.group = group
	spec, guarded := SpecOf(group)
	e.guarded = guarded
	if guarded {
		e.gang.SetGroup(spec, now)
	} else {
		e.gang.DeleteGroup(now)
	}
	return changed
}

// podOf returns the pod of a member, nil if it is gone.
func (e *entry) podOf(uid types.UID) *v1.Pod {
	if m := e.pods[uid]; m != nil {
		return m.pod
	}
	return nil
}

func (e *entry) anyUnbound() bool {
	for _, m := range e.pods {
		if m.pod.Spec.NodeName == "" {
			return true
		}
	}
	return false
}

// templateOf tells which pods are copies of each other: those of the same controller that ask for the same.
func templateOf(pod *v1.Pod) gang.Template {
	return gang.Template{Controller: pods.ControllerUID(pod), Needs: proposal.Signature(pod)}
}

// setPod takes the current state of a live pod. Whether it has scheduling gates is for kube-scheduler, which keeps the group then; here
// such a pod cannot be awaited.
func (e *entry) setPod(pod *v1.Pod, now time.Time) {
	m := &member{pod: pod}
	if old := e.pods[pod.UID]; old != nil {
		m.template = old.template
		if old.pod.Generation != pod.Generation {
			m.template = templateOf(pod)
		}
	} else {
		m.template = templateOf(pod)
		if pod.Spec.NodeName == "" {
			if pod.Labels[v1alpha1.PodGroupLabel] != "" {
				e.labelled[pod.UID] = struct{}{}
			}
		}
	}
	e.pods[pod.UID] = m
	bound := pod.Spec.NodeName != ""
	e.gang.SetPod(pod.UID, gang.Pod{Bound: bound, Held: !bound && len(pod.Spec.SchedulingGates) > 0, Template: m.template}, now)
}

var _ rehearse.Gangs = &Gangs{}

// Rehearsing implements rehearse.Gangs.
func (g *Gangs) Rehearsing(key types.NamespacedName, rehearsal gang.Rehearsal) (pod *v1.Pod, node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.byKey[key]; e != nil && e.gang.Rehearsing(rehearsal) {
		return e.podOf(rehearsal.UID), e.gang.Node(rehearsal.UID)
	}
	return nil, ""
}

// Rehearsed implements rehearse.Gangs.
func (g *Gangs) Rehearsed(key types.NamespacedName, rehearsal gang.Rehearsal, refused string) {
	g.change(key, func(e *entry, now time.Time) { e.gang.Rehearsed(rehearsal, refused, now) })
}
