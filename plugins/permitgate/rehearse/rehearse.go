package permitgate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
)

// BindRehearsal says when the binds of members are rehearsed while they wait in Permit.
type BindRehearsal string

// The values of bindRehearsal.
const (
	// RehearseAuto: while an admission policy or webhook may refuse the binds of the gang's namespace.
	RehearseAuto BindRehearsal = "Auto"
	// RehearseAlways: each time.
	RehearseAlways BindRehearsal = "Always"
	// RehearseNever: not at all.
	RehearseNever BindRehearsal = "Never"
)

const (
	rehearsalWorkers = 16
	// rehearsalTries is how often a rehearsal is sent that gets no answer, before that counts as a refusal.
	rehearsalTries = 3
	// rehearsalTimeout bounds one of them: a webhook may take 30 s.
	rehearsalTimeout = 35 * time.Second
	// A rehearsal that got no answer is repeated after rehearsalRetry, then after twice as long each time.
	rehearsalRetry    = 250 * time.Millisecond
	rehearsalRetryMax = 5 * time.Second
)

// rehearsal is one for the workers to run.
type rehearsal struct {
	gang types.NamespacedName
	gang.Rehearsal
}

func newRehearsalQueue() workqueue.TypedRateLimitingInterface[rehearsal] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[rehearsal](rehearsalRetry, rehearsalRetryMax))
}

// startRehearsals starts what bindRehearsal needs, on the leader, until ctx ends.
func (s *Shared) startRehearsals(ctx context.Context, client clientset.Interface) {
	s.mu.Lock()
	mode := s.args.BindRehearsal
	s.mu.Unlock()
	if mode == RehearseNever {
		return
	}
	if mode == RehearseAuto {
		watch := watchAdmission(ctx, client, s.namespaces, s.admissionChanged)
		s.mu.Lock()
		s.admission = watch
		s.mu.Unlock()
	}
	for range rehearsalWorkers {
		go s.rehearse(ctx, client)
	}
}

// rehearsesLocked reports whether the binds of a namespace's pods are to be rehearsed.
func (s *Shared) rehearsesLocked(namespace string) bool {
	switch s.args.BindRehearsal {
	case RehearseAlways:
		return true
	case RehearseAuto:
		return s.admission == nil || s.admission.judged(namespace)
	case RehearseNever:
	}
	return false
}

// admissionChanged tells the gangs that are rehearsed, or that failed at it.
func (s *Shared) admissionChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for key, e := range s.gangs {
		switch e.gang.Phase() {
		case gang.Waiting, gang.Backoff, gang.Releasing:
			e.gang.SetRehearse(s.rehearsesLocked(key.Namespace), now)
			e.gang.AdmissionChanged(now)
			s.settledLocked(e)
			s.queue.Add(key)
		case gang.Pending, gang.Gathering, gang.Whole:
		}
	}
}

// rehearse sends binds without effect until its queue is shut down.
func (s *Shared) rehearse(ctx context.Context, client clientset.Interface) {
	for {
		r, shutdown := s.rehearsals.Get()
		if shutdown {
			return
		}
		s.rehearseOne(ctx, client, r)
		s.rehearsals.Done(r)
	}
}

func (s *Shared) rehearseOne(ctx context.Context, client clientset.Interface, r rehearsal) {
	logger := klog.FromContext(ctx)
	var pod *v1.Pod
	node := ""
	s.look(r.gang, func(e *entry, _ time.Time) {
		if e.gang.Rehearsing(r.Rehearsal) {
			pod, node = e.pods[r.UID], e.nodes[r.UID]
		}
	})
	if pod == nil {
		s.rehearsals.Forget(r)
		return
	}
	call, cancel := context.WithTimeout(ctx, rehearsalTimeout)
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
	case rehearsalPassed:
	case rehearsalUnanswered:
		if s.rehearsals.NumRequeues(r) < rehearsalTries-1 {
			logger.V(3).Info("A rehearsed bind got no answer", "pod", klog.KObj(pod), "node", node, "err", err)
			s.rehearsals.AddRateLimited(r)
			return
		}
		refused = "the API server did not answer whether it would bind the pod to node " + node + ": " + err.Error()
	case rehearsalRefused:
		refused = "the API server would not bind the pod to node " + node + ": " + err.Error()
	}
	s.rehearsals.Forget(r)
	if refused == "" {
		rehearsals.WithLabelValues("passed").Inc()
	} else {
		rehearsals.WithLabelValues("refused").Inc()
		logger.V(2).Info("A bind would be refused", "pod", klog.KObj(pod), "node", node, "podGroup", r.gang, "err", err)
	}
	s.change(r.gang, func(e *entry, now time.Time) { e.gang.Rehearsed(r.Rehearsal, refused, now) })
}

// rehearsalOutcome is what came of a rehearsal.
type rehearsalOutcome uint8

const (
	rehearsalPassed rehearsalOutcome = iota
	rehearsalRefused
	rehearsalUnanswered
)

// outcomeOf reads the API server's answer. What may pass by itself is no answer: a server or a webhook that
// is too busy or out of reach. A webhook from the time when they could have effects that a rehearsal must
// not have is not called, and cannot be asked.
func outcomeOf(err error) rehearsalOutcome {
	if err == nil {
		return rehearsalPassed
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return rehearsalUnanswered
	}
	// The reason is not to be relied on: webhooks give their own, or none.
	switch code := status.Status().Code; {
	case code == http.StatusBadRequest && strings.Contains(err.Error(), "does not support dry run"):
		return rehearsalPassed
	case code < http.StatusBadRequest, code >= http.StatusInternalServerError,
		code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return rehearsalUnanswered
	}
	return rehearsalRefused
}
