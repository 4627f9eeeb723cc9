package preempt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/podgroup"
)

const (
	// atOnce is how many victims of a gang are evicted at the same time.
	atOnce = 16
	// An eviction that failed is repeated after retryInterval, then after twice as long each time.
	retryInterval      = 250 * time.Millisecond
	retryIntervalLimit = 10 * time.Second
	// timeLimit is how long victims may take to leave, in addition to the requests and their grace periods.
	timeLimit = time.Minute
	// requestsPerVictim is how many requests each takes; defaultQPS is the rate limit of a client without one.
	requestsPerVictim = 3
	defaultQPS        = 5
	// barTime is how long a pod that could not be evicted is not chosen again.
	barTime = 5 * time.Minute

	reasonPreempts  = "GangPreempts"
	reasonPreempted = "Preempted"
	reasonFailed    = "GangPreemptionFailed"
)

var (
	preemptions = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: "permitgate", Name: "preemptions_total",
		Help:           "Preemptions by gangs, by result: begun, cleared (the victims are gone), given_up (one cannot be evicted, or they took too long), abandoned (the gang no longer needs it).",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	preemptedPods = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: "permitgate", Name: "preempted_pods_total",
		Help:           "Pods evicted to make room for a gang.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
)

// Gangs receives the results of preemptions. Its methods are called without the Preemptor's lock.
type Gangs interface {
	// Cleared is called when all victims of a gang have left their nodes.
	Cleared(id podgroup.ID)
	// GivenUp is called when a gang does not get its room. If again is true, it may look for other victims at once.
	GivenUp(id podgroup.ID, again bool)
}

// Config configures a Preemptor.
type Config struct {
	Clock  clock.WithTicker
	Client clientset.Interface
	// QPS is how many requests a second the client may send.
	QPS float32
	// Handles returns those of all profiles: a victim may wait in any.
	Handles func() []fwk.Handle
	Gangs   Gangs
	// Exists reports whether a pod is still there, as far as the informer shows.
	Exists func(pod *v1.Pod) bool
	// Event sends an event about a PodGroup, or about a pod if it is not nil.
	Event func(ctx context.Context, id podgroup.ID, pod *v1.Pod, reason, note string)
	// Plugin is the plugin's name, for rejecting waiting pods.
	Plugin string
}

// Preemptor evicts victims, and waits until they are gone. Make one with New; its methods may be called from several
// goroutines.
type Preemptor struct {
	Config
	agenda *agenda.Agenda[podgroup.ID]

	mu     sync.Mutex // guards everything below, the operations included
	ops    map[podgroup.ID]*operation
	barred map[types.UID]time.Time // pods that could not be evicted, until when they are left alone
}

// operation is one gang's preemption. It is over when the Preemptor has it no more.
type operation struct {
	id       podgroup.ID
	victims  map[types.UID]*victim // those that have not left their nodes
	deadline time.Time
	checked  bool // by a dry run; set by the worker that has the gang
}

// victim is a pod that leaves its node for a gang.
type victim struct {
	pod     *v1.Pod
	leaving bool // by itself: it is only waited for
	asked   bool // its eviction was accepted
}

// New returns a preemptor, which evicts nothing before Run.
func New(c Config) *Preemptor {
	metrics.MustRegister(preemptions, preemptedPods)
	if c.QPS <= 0 {
		c.QPS = defaultQPS
	}
	return &Preemptor{
		Config: c, agenda: agenda.New[podgroup.ID](c.Clock),
		ops: map[podgroup.ID]*operation{}, barred: map[types.UID]time.Time{},
	}
}

// Run evicts until ctx ends.
func (p *Preemptor) Run(ctx context.Context) {
	p.agenda.Run(ctx, 2, func(id podgroup.ID) { p.advance(ctx, id) })
}

// Idle reports whether there is nothing to do until an event comes or the clock moves.
func (p *Preemptor) Idle() bool { return p.agenda.Idle() }

// Begin starts the eviction of a search's victims.
func (p *Preemptor) Begin(ctx context.Context, id podgroup.ID, r *Result) {
	op := &operation{id: id, victims: map[types.UID]*victim{}, deadline: p.Clock.Now().Add(p.Limit(r))}
	for i, pod := range slices.Concat(r.Victims, r.Leaving) {
		op.victims[pod.UID] = &victim{pod: pod, leaving: i >= len(r.Victims)}
	}
	preemptions.WithLabelValues("begun").Inc()
	klog.FromContext(ctx).V(2).Info("A gang preempts", "podGroup", id, "victims", len(r.Victims), "leaving", len(r.Leaving))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops[id] = op
	p.agenda.Add(id)
}

// Limit is how long a search's victims may take to leave.
func (p *Preemptor) Limit(r *Result) time.Duration {
	grace := time.Duration(0)
	for _, pod := range slices.Concat(r.Victims, r.Leaving) {
		grace = max(grace, graceOf(pod))
	}
	requests := time.Duration(float64(requestsPerVictim*len(r.Victims)) / float64(p.QPS) * float64(time.Second))
	return timeLimit + grace + 2*requests
}

func graceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// IsVictim reports whether a pod must not be chosen: it is another preemption's victim, or recently could not be
// evicted.
func (p *Preemptor) IsVictim(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range p.ops {
		if op.victims[uid] != nil {
			return true
		}
	}
	return p.barredLocked(uid)
}

// Stays reports whether a pod that terminates cannot be expected to leave: its time for that is over, which its
// deletionTimestamp tells after any eviction, or a preemption has waited for it without success.
func (p *Preemptor) Stays(pod *v1.Pod) bool {
	now := p.Clock.Now()
	if pod.DeletionTimestamp != nil && !now.Before(pod.DeletionTimestamp.Add(timeLimit)) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.barredLocked(pod.UID)
}

func (p *Preemptor) barredLocked(uid types.UID) bool { return p.Clock.Now().Before(p.barred[uid]) }

// Gone records that a pod has left its node. A pod that leaves may be waited for by several gangs.
func (p *Preemptor) Gone(uid types.UID) {
	p.mu.Lock()
	var cleared []podgroup.ID
	for id, op := range p.ops {
		if op.victims[uid] == nil {
			continue
		}
		if delete(op.victims, uid); len(op.victims) == 0 {
			p.endLocked(op, "cleared")
			cleared = append(cleared, id)
		}
	}
	p.mu.Unlock()
	for _, id := range cleared {
		p.Gangs.Cleared(id)
	}
}

// Abandon ends the preemption of a gang that no longer needs it. Victims that have not been evicted yet stay.
func (p *Preemptor) Abandon(id podgroup.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op := p.ops[id]; op != nil {
		p.endLocked(op, "abandoned")
	}
}

func (p *Preemptor) endLocked(op *operation, result string) {
	preemptions.WithLabelValues(result).Inc()
	delete(p.ops, op.id)
}

// over reports whether a preemption has ended.
func (p *Preemptor) over(op *operation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ops[op.id] != op
}

// giveUp ends a preemption that failed, and bars pods that could not be evicted.
func (p *Preemptor) giveUp(ctx context.Context, op *operation, why string, bar []*v1.Pod, again bool) {
	p.mu.Lock()
	if p.ops[op.id] != op {
		p.mu.Unlock()
		return
	}
	p.endLocked(op, "given_up")
	now := p.Clock.Now()
	maps.DeleteFunc(p.barred, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	for _, pod := range bar {
		p.barred[pod.UID] = now.Add(barTime)
	}
	p.mu.Unlock()
	klog.FromContext(ctx).Info("A gang gives up the room that it preempts", "podGroup", op.id, "why", why)
	p.Event(ctx, op.id, nil, reasonFailed, why)
	p.Gangs.GivenUp(op.id, again)
}

// remaining returns a gang's preemption, nil for none, with the victims that have not been asked to leave, and all that
// are there.
func (p *Preemptor) remaining(id podgroup.ID) (op *operation, unasked, leaving, evicted []*v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	op = p.ops[id]
	if op == nil {
		return nil, nil, nil, nil
	}
	for _, v := range op.victims {
		switch {
		case v.leaving:
			leaving = append(leaving, v.pod)
		case v.asked:
			evicted = append(evicted, v.pod)
		default:
			unasked = append(unasked, v.pod)
		}
	}
	return op, unasked, leaving, evicted
}

// advance takes the next step of a gang's preemption. One worker at a time has the gang.
func (p *Preemptor) advance(ctx context.Context, id podgroup.ID) {
	op, unasked, leaving, evicted := p.remaining(id)
	if op == nil {
		p.agenda.Forget(id)
		return
	}
	if !p.Clock.Now().Before(op.deadline) {
		late := slices.Concat(unasked, evicted, leaving)
		p.giveUp(ctx, op, fmt.Sprintf("%d victims had not left their nodes in time", len(late)), late, false)
		return
	}
	p.agenda.AddAt(id, op.deadline)
	for _, pod := range leaving {
		if !p.Exists(pod) {
			p.Gone(pod.UID) // before it was waited for
		}
	}
	if len(unasked) == 0 {
		return
	}
	if !op.checked {
		if refused, err := p.forAll(op, unasked, func(pod *v1.Pod) error { return p.checkDeletion(ctx, pod) }); len(refused) > 0 {
			p.giveUp(ctx, op, refusal(refused, err), refused, true)
			return
		}
		op.checked = true
		p.Event(ctx, id, nil, reasonPreempts, fmt.Sprintf("the gang preempts %d pods, such as %s on node %s", len(unasked), klog.KObj(unasked[0]), unasked[0].Spec.NodeName))
	}
	failed, err := p.forAll(op, unasked, func(pod *v1.Pod) error { return p.evict(ctx, op, pod) })
	switch {
	case len(failed) == 0:
		p.agenda.Forget(id)
	case isPermanent(err):
		p.giveUp(ctx, op, refusal(failed, err), failed, true)
	case ctx.Err() == nil:
		klog.FromContext(ctx).Info("Victims could not be evicted; will try again", "podGroup", id, "pods", len(failed), "err", err)
		p.agenda.Retry(id, retryInterval, retryIntervalLimit)
	}
}
