package preempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/metrics"
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
	Cleared(key types.NamespacedName)
	// GivenUp is called when a gang does not get its room. If again is true, it may look for other victims at once.
	GivenUp(key types.NamespacedName, again bool)
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
	Event func(ctx context.Context, key types.NamespacedName, pod *v1.Pod, reason, note string)
	// Plugin is the plugin's name, for rejecting waiting pods.
	Plugin string
}

// Preemptor evicts victims, and waits until they are gone. Make one with New; its methods may be called from several
// goroutines.
type Preemptor struct {
	Config
	agenda *agenda.Agenda[types.NamespacedName]

	mu     sync.Mutex // guards everything below, the operations included
	ops    map[types.NamespacedName]*operation
	barred map[types.UID]time.Time // pods that could not be evicted, until when they are left alone
}

// operation is one gang's preemption. It is over when the Preemptor has it no more.
type operation struct {
	key      types.NamespacedName
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
		Config: c, agenda: agenda.New[types.NamespacedName](c.Clock),
		ops: map[types.NamespacedName]*operation{}, barred: map[types.UID]time.Time{},
	}
}

// Run evicts until ctx ends.
func (p *Preemptor) Run(ctx context.Context) {
	p.agenda.Run(ctx, 2, func(key types.NamespacedName) { p.look(ctx, key) })
}

// Idle reports whether there is nothing to do until an event comes or the clock moves.
func (p *Preemptor) Idle() bool { return p.agenda.Idle() }

// Begin starts the eviction of a search's victims.
func (p *Preemptor) Begin(ctx context.Context, key types.NamespacedName, r *Result) {
	op := &operation{key: key, victims: map[types.UID]*victim{}}
	grace := time.Duration(0)
	for i, pod := range slices.Concat(r.Victims, r.Leaving) {
		op.victims[pod.UID] = &victim{pod: pod, leaving: i >= len(r.Victims)}
		grace = max(grace, graceOf(pod))
	}
	requests := time.Duration(float64(requestsPerVictim*len(r.Victims)) / float64(p.QPS) * float64(time.Second))
	op.deadline = p.Clock.Now().Add(timeLimit + grace + 2*requests)
	preemptions.WithLabelValues("begun").Inc()
	klog.FromContext(ctx).V(2).Info("A gang preempts", "podGroup", key, "victims", len(r.Victims), "leaving", len(r.Leaving))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops[key] = op
	p.agenda.Add(key)
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

// IsVictim reports whether a pod must not be chosen: it is another preemption's victim, or recently could not be evicted.
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

// Barred reports whether a pod recently could not be evicted, or was and did not leave.
func (p *Preemptor) Barred(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.barredLocked(uid)
}

func (p *Preemptor) barredLocked(uid types.UID) bool { return p.Clock.Now().Before(p.barred[uid]) }

// Gone records that a pod has left its node. A pod that leaves may be waited for by several gangs.
func (p *Preemptor) Gone(uid types.UID) {
	p.mu.Lock()
	var cleared []types.NamespacedName
	for key, op := range p.ops {
		if op.victims[uid] == nil {
			continue
		}
		if delete(op.victims, uid); len(op.victims) == 0 {
			p.endLocked(op, "cleared")
			cleared = append(cleared, key)
		}
	}
	p.mu.Unlock()
	for _, key := range cleared {
		p.Gangs.Cleared(key)
	}
}

// Abandon ends the preemption of a gang that no longer needs it. Victims that have not been evicted yet stay.
func (p *Preemptor) Abandon(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op := p.ops[key]; op != nil {
		p.endLocked(op, "abandoned")
	}
}

func (p *Preemptor) endLocked(op *operation, result string) {
	preemptions.WithLabelValues(result).Inc()
	delete(p.ops, op.key)
}

// over reports whether a preemption has ended.
func (p *Preemptor) over(op *operation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ops[op.key] != op
}

// giveUp ends a preemption that failed, and bars pods that could not be evicted.
func (p *Preemptor) giveUp(ctx context.Context, op *operation, why string, bar []*v1.Pod, again bool) {
	p.mu.Lock()
	if p.ops[op.key] != op {
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
	klog.FromContext(ctx).Info("A gang gives up the room that it preempts", "podGroup", op.key, "why", why)
	p.Event(ctx, op.key, nil, reasonFailed, why)
	p.Gangs.GivenUp(op.key, again)
}

// look takes the next step of a gang's preemption.
func (p *Preemptor) look(ctx context.Context, key types.NamespacedName) {
	p.mu.Lock()
	op := p.ops[key]
	var stay, todo, leaving []*v1.Pod
	if op != nil {
		for _, v := range op.victims {
			switch {
			case v.leaving:
				leaving = append(leaving, v.pod)
				continue
			case !v.asked:
				todo = append(todo, v.pod)
			}
			stay = append(stay, v.pod)
		}
	}
	p.mu.Unlock()
	switch {
	case op == nil:
		p.agenda.Forget(key)
		return
	case !p.Clock.Now().Before(op.deadline):
		p.giveUp(ctx, op, fmt.Sprintf("%d victims had not left their nodes in time", len(stay)+len(leaving)), stay, false)
		return
	}
	p.agenda.AddAt(key, op.deadline)
	for _, pod := range leaving {
		if !p.Exists(pod) {
			p.Gone(pod.UID) // before it was waited for
		}
	}
	if len(todo) == 0 {
		return
	}
	if !op.checked { // one worker at a time has the key
		if refused, err := p.each(ctx, op, todo, p.check); len(refused) > 0 {
			p.giveUp(ctx, op, refusal(refused, err), refused, true)
			return
		}
		op.checked = true
		p.Event(ctx, key, nil, reasonPreempts, fmt.Sprintf("the gang preempts %d pods, such as %s on node %s", len(todo), klog.KObj(todo[0]), todo[0].Spec.NodeName))
	}
	failed, err := p.each(ctx, op, todo, p.evict)
	switch {
	case len(failed) == 0:
		p.agenda.Forget(key)
	case final(err):
		p.giveUp(ctx, op, refusal(failed, err), failed, true)
	case ctx.Err() == nil:
		klog.FromContext(ctx).Info("Victims could not be evicted; will try again", "podGroup", key, "pods", len(failed), "err", err)
		p.agenda.Retry(key, retryInterval, retryIntervalLimit)
	}
}

func refusal(pods []*v1.Pod, err error) string {
	words := fmt.Sprintf("pod %s", klog.KObj(pods[0]))
	if n := len(pods) - 1; n > 0 {
		words += fmt.Sprintf(" and %d others", n)
	}
	return fmt.Sprintf("%s could not be evicted: %v", words, err)
}

// each calls f for pods, several at a time, until the preemption is over or an eviction is refused for good. It returns the
// pods that failed, or only those that were refused for good, and the first error.
func (p *Preemptor) each(ctx context.Context, op *operation, pods []*v1.Pod, f func(ctx context.Context, op *operation, pod *v1.Pod) error) (failed []*v1.Pod, first error) {
	errs := make([]error, len(pods))
	var refused atomic.Bool
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, pod := range pods {
		group.Go(func() error {
			if !refused.Load() && !p.over(op) {
				if errs[i] = f(ctx, op, pod); final(errs[i]) {
					refused.Store(true)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, err := range errs {
		if err != nil && (final(err) || !refused.Load()) {
			failed = append(failed, pods[i])
			if first == nil {
				first = err
			}
		}
	}
	return failed, first
}

// final reports whether the API server refuses a request and will refuse it again.
func final(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// inMemory returns the function that stops a pod that has not been bound yet, or nil.
func (p *Preemptor) inMemory(uid types.UID) func(why string) bool {
	for _, h := range p.Handles() {
		if waiting := h.GetWaitingPod(uid); waiting != nil {
			return func(why string) bool { return waiting.Preempt(p.Plugin, why) }
		}
		if preparing := h.GetPodInPreBind(uid); preparing != nil {
			return preparing.CancelPod
		}
	}
	return nil
}

// check asks the API server in a dry run whether it would delete a pod, so that no pod is evicted if another victim cannot
// be. Only a permanent refusal counts.
func (p *Preemptor) check(ctx context.Context, _ *operation, pod *v1.Pod) error {
	if p.inMemory(pod.UID) != nil {
		return nil
	}
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: []string{metav1.DryRunAll},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || !final(err) {
		return nil
	}
	return err
}

// evict evicts a pod as upstream's preemption does: one that has not been bound yet loses its node in memory, another
// gets the condition DisruptionTarget and is deleted, with its grace period.
func (p *Preemptor) evict(ctx context.Context, op *operation, pod *v1.Pod) error {
	words := "preempted by PodGroup " + op.key.String()
	if end := p.inMemory(pod.UID); end == nil || !end(words) {
		switch err := p.deletePod(ctx, op.key, pod); {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			p.Gone(pod.UID) // or another pod has its name
		case err != nil:
			return err
		}
	}
	p.mu.Lock()
	if v := op.victims[pod.UID]; v != nil {
		v.asked = true
	}
	p.mu.Unlock()
	preemptedPods.Inc()
	klog.FromContext(ctx).V(2).Info("Preempted a pod for a gang", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "podGroup", op.key)
	p.Event(ctx, op.key, pod, reasonPreempted, words)
	return nil
}

func (p *Preemptor) deletePod(ctx context.Context, key types.NamespacedName, pod *v1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason:             v1.PodReasonPreemptionByScheduler,
			Message:            pod.Spec.SchedulerName + ": preempting to accommodate the higher priority PodGroup " + key.String(),
			LastTransitionTime: metav1.Time{Time: p.Clock.Now()},
		}}},
	})
	if err != nil {
		return err
	}
	pods := p.Client.CoreV1().Pods(pod.Namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsConflict(err) { // after a conflict the deletion tells whether another pod has the name
		return err
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
