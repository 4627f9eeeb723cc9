package rehearse

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// watch knows the judges of binds. Its methods may be called from several goroutines.
type watch struct {
	clock      clock.PassiveClock
	namespaces corelisters.NamespaceLister
	config     func() admissionConfig
	changed    func()

	mu     sync.Mutex // guards what follows
	ready  bool       // all has been read
	judges []judge
	former []judge // the judges before the last change
	until  time.Time
}

// watchAdmission watches the objects that decide which binds are judged until ctx ends, and calls changed
// after a change. It has its own informers, because the scheduler waits for those of its factory, and would
// not start without the permission to read these. Until all has been read, every bind counts as judged.
func watchAdmission(ctx context.Context, client clientset.Interface, c clock.PassiveClock, namespaces corelisters.NamespaceLister, changed func()) *watch {
	factory := informers.NewSharedInformerFactory(client, 0)
	v1 := factory.Admissionregistration().V1()
	w := &watch{clock: c, namespaces: namespaces, changed: changed}
	validatingWebhooks, mutatingWebhooks := v1.ValidatingWebhookConfigurations().Lister(), v1.MutatingWebhookConfigurations().Lister()
	policies, policyBindings := v1.ValidatingAdmissionPolicies().Lister(), v1.ValidatingAdmissionPolicyBindings().Lister()
	mutations, mutationBindings := v1.MutatingAdmissionPolicies().Lister(), v1.MutatingAdmissionPolicyBindings().Lister()
	w.config = func() admissionConfig {
		var c admissionConfig
		// Listing from memory does not fail.
		c.validatingWebhooks, _ = validatingWebhooks.List(labels.Everything())
		c.mutatingWebhooks, _ = mutatingWebhooks.List(labels.Everything())
		c.policies, _ = policies.List(labels.Everything())
		c.policyBindings, _ = policyBindings.List(labels.Everything())
		c.mutations, _ = mutations.List(labels.Everything())
		c.mutationBindings, _ = mutationBindings.List(labels.Everything())
		return c
	}
	var synced []toolscache.DoneChecker
	for _, informer := range []toolscache.SharedIndexInformer{
		v1.ValidatingWebhookConfigurations().Informer(), v1.MutatingWebhookConfigurations().Informer(),
		v1.ValidatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicyBindings().Informer(),
		v1.MutatingAdmissionPolicies().Informer(), v1.MutatingAdmissionPolicyBindings().Informer(),
	} {
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.update() },
			UpdateFunc: func(_, _ any) { w.update() },
			DeleteFunc: func(any) { w.update() },
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Admission policies cannot be watched: all gangs rehearse their binds")
			return w
		}
		synced = append(synced, registration.HasSyncedChecker())
	}
	factory.StartWithContext(ctx)
	go func() {
		if toolscache.WaitFor(ctx, "", synced...) {
			w.mu.Lock()
			w.ready = true
			w.mu.Unlock()
			w.update()
			changed() // also without judges, since until now all binds counted as judged
		}
	}()
	return w
}

// admissionLag is how long the API server may apply old policies after a change, since it reads them
// through a watch, too.
const admissionLag = 3 * time.Second

// update handles a change. A policy may have changed in other parts than its rules, so every event counts
// as a change while there is a judge.
func (w *watch) update() {
	w.mu.Lock()
	judges := w.config().judges() // with the lock: the handlers of six informers come here
	had := len(w.judges) > 0
	same := reflect.DeepEqual(judges, w.judges)
	if !same {
		w.former, w.until = w.judges, w.clock.Now().Add(admissionLag)
	}
	w.judges = judges
	ready := w.ready
	w.mu.Unlock()
	if ready && (!same || had) {
		w.changed()
	}
}

// known reports whether all has been read, or will never be.
func (w *watch) known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// judged reports whether admission may refuse the binds of a namespace's pods.
func (w *watch) judged(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		return true
	}
	return w.judgedByLocked(w.judges, namespace) || w.clock.Now().Before(w.until) && w.judgedByLocked(w.former, namespace)
}

func (w *watch) judgedByLocked(judges []judge, namespace string) bool {
	for _, j := range judges {
		if len(j.namespaces) == 0 {
			return true
		}
		ns, err := w.namespaces.Get(namespace)
		if err != nil || j.judgesNamespace(ns.Labels) {
			return true
		}
	}
	return false
}
