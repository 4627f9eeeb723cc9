// Package rehearse sends binds of waiting members to the API server with dryRun. If admission would refuse the bind of
// a template's member, the gang is sent back as a whole before any member is bound.
//
// # Contract
//
// A rehearsal passes when the API server accepts the Binding with dryRun; temporary errors (a server or webhook out of
// reach) are retried a few times, and then count as a refusal.
//
// # Non-goals
//
// The package decides neither whose bind is rehearsed nor what a refusal means for a gang. A bind whose rehearsal
// passed may still fail.
package rehearse

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Mode says whether binds are rehearsed while members wait in Permit.
type Mode string

// The modes.
const (
	// Auto: that of one member of each pod template.
	Auto Mode = "Auto"
	// Never: not at all.
	Never Mode = "Never"
)

const (
	// workers is how many rehearsals run at a time.
	workers = 16
	// tries is how often a rehearsal without an answer is sent before it counts as refused.
	tries = 3
	// timeout limits one rehearsal: a webhook may take 30 s.
	timeout = 35 * time.Second
	// A rehearsal that got no answer is repeated after retryInterval, then after twice as long each time.
	retryInterval      = 250 * time.Millisecond
	retryIntervalLimit = 5 * time.Second
)

var results = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
	Namespace: metrics.Namespace, Subsystem: "permitgate", Name: "bind_rehearsals_total",
	Help:           "Rehearsed binds of waiting members, by result: passed, refused.",
	StabilityLevel: compbasemetrics.ALPHA,
}, []string{"result"})

// Gangs has the members whose binds are rehearsed. Its methods are called from several goroutines, without locks.
type Gangs interface {
	// Rehearsing returns the pod of a rehearsal and its node; nil if the result is no longer needed.
	Rehearsing(id podgroup.ID, r gang.Rehearsal) (pod *v1.Pod, node string)
	// Rehearsed receives the result of a rehearsal; refused says why the bind would be refused, or is empty.
	Rehearsed(id podgroup.ID, r gang.Rehearsal, refused string)
}

// Rehearser rehearses binds. Make one with New; its methods may be called from several goroutines.
type Rehearser struct {
	gangs   Gangs
	agenda  *agenda.Agenda[item]
	leading atomic.Bool
}

// item is a rehearsal of a gang.
type item struct {
	gang podgroup.ID
	gang.Rehearsal
}

// New returns a rehearser, which does nothing before Lead.
func New(c clock.WithTicker, gangs Gangs) *Rehearser {
	metrics.MustRegister(results)
	return &Rehearser{gangs: gangs, agenda: agenda.New[item](c)}
}

// Lead starts the rehearsals, which run until ctx ends. Only the leader calls it, once.
func (r *Rehearser) Lead(ctx context.Context, client clientset.Interface) {
	r.leading.Store(true)
	go r.agenda.Run(ctx, workers, func(i item) { r.rehearse(ctx, client, i) })
}

// Begin has a bind rehearsed.
func (r *Rehearser) Begin(id podgroup.ID, of gang.Rehearsal) { r.agenda.Add(item{id, of}) }

// Idle reports whether there is nothing to do until an event comes or the clock moves. Rehearsals in a process that
// does not lead do not count.
func (r *Rehearser) Idle() bool { return !r.leading.Load() || r.agenda.Idle() }

// rehearse sends a bind, and passes on the answer.
func (r *Rehearser) rehearse(ctx context.Context, client clientset.Interface, i item) {
	logger := klog.FromContext(ctx)
	pod, node := r.gangs.Rehearsing(i.gang, i.Rehearsal)
	if pod == nil {
		r.agenda.Forget(i)
		return
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := client.CoreV1().Pods(pod.Namespace).Bind(call, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if ctx.Err() != nil {
		return
	}
	refused := ""
	switch outcomeOf(err) {
	case passed:
	case unanswered:
		if r.agenda.Retry(i, retryInterval, retryIntervalLimit) < tries {
			logger.V(3).Info("A rehearsed bind got no answer", "pod", klog.KObj(pod), "node", node, "err", err)
			return
		}
		refused = "the API server did not answer whether it would bind the pod to node " + node + ": " + err.Error()
	case denied:
		refused = "the API server would not bind the pod to node " + node + ": " + err.Error()
	}
	r.agenda.Forget(i)
	result := "passed"
	if refused != "" {
		result = "refused"
		logger.V(2).Info("A bind would be refused", "pod", klog.KObj(pod), "node", node, "podGroup", i.gang, "err", err)
	}
	results.WithLabelValues(result).Inc()
	r.gangs.Rehearsed(i.gang, i.Rehearsal, refused)
}

// outcome is the result of a rehearsal.
type outcome uint8

const (
	passed outcome = iota
	denied
	unanswered
)

// outcomeOf reads the API server's answer. A temporary error, such as a busy or unreachable server or webhook,
// is not an answer. An old webhook with side effects is not called in a dry run, so it cannot be asked.
func outcomeOf(err error) outcome {
	if err == nil {
		return passed
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unanswered
	}
	// The reason is not to be relied on: webhooks give their own, or none.
	switch code := status.Status().Code; {
	case code == http.StatusBadRequest && strings.Contains(err.Error(), "does not support dry run"):
		return passed
	case code < http.StatusBadRequest, code >= http.StatusInternalServerError,
		code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return unanswered
	}
	return denied
}
