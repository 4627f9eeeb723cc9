package sim

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
	"zonewise.dev/sim/kinds"
)

// newInformerFactory returns a factory whose informers of the store's kinds are views of the store: without list, watch
// or a second copy, and with handlers that run on the goroutine of the Sim. A factory keeps the first informer that it
// is given for a kind.
func newInformerFactory(c kubernetes.Interface, s *store) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(c, 0)
	for _, example := range kinds.All() {
		k := s.kinds[reflect.TypeOf(example)]
		factory.InformerFor(example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return &informerView{k.informer, k}
		})
	}
	viewSlices(factory, s)
	return factory
}

// informerView is the informer of a kind. Of the informer of client-go it has the store, which the copy fills; that
// informer never runs.
type informerView struct {
	cache.SharedIndexInformer
	kind *kind
}

// AddEventHandler implements cache.SharedInformer.
func (v *informerView) AddEventHandler(
	handler cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(handler), nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. There is no resync, since no event is lost.
func (v *informerView) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, _ time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(handler), nil
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (v *informerView) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, _ cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(handler), nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (v *informerView) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	if r, ok := handle.(*registration); ok {
		r.kind.unregister(r)
	}
	return nil
}

// AddIndexers implements cache.SharedIndexInformer.
func (v *informerView) AddIndexers(indexers cache.Indexers) error {
	missing := maps.Clone(indexers)
	known := v.GetIndexer().GetIndexers()
	maps.DeleteFunc(missing, func(name string, _ cache.IndexFunc) bool { return known[name] != nil })
	return v.GetIndexer().AddIndexers(missing)
}

// Run implements cache.SharedInformer.
func (v *informerView) Run(stop <-chan struct{}) { <-stop }

// RunWithContext implements cache.SharedInformer.
func (v *informerView) RunWithContext(ctx context.Context) { <-ctx.Done() }

// HasSynced implements cache.SharedInformer.
func (v *informerView) HasSynced() bool {
	v.kind.store.mu.Lock()
	defer v.kind.store.mu.Unlock()
	return v.kind.store.started
}

// HasSyncedChecker implements cache.SharedInformer. The store exists before the informer.
func (v *informerView) HasSyncedChecker() cache.DoneChecker {
	return &registration{kind: v.kind, done: closed}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// registration is one handler of a kind.
type registration struct {
	kind    *kind
	handler cache.ResourceEventHandler
	// origin names the functions that registered it.
	origin string
	// Events up to serial came before the handler; its first list has their result.
	serial int
	done   chan struct{} // closed when the first list has been delivered
}

// register adds a handler, which first gets all objects.
func (k *kind) register(handler cache.ResourceEventHandler) *registration {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	r := &registration{
		kind: k, handler: handler, done: make(chan struct{}), serial: k.store.serial, origin: registrationOrigin(),
	}
	k.registrations = append(slices.Clone(k.registrations), r)
	slices.SortStableFunc(k.registrations, func(a, b *registration) int { return strings.Compare(a.origin, b.origin) })
	first := k.inOrderLocked()
	k.store.queueEventLocked(event{kind: k, origin: r.origin, call: func() {
		for _, obj := range first {
			k.store.beforeEvent()
			handler.OnAdd(obj, true)
		}
		close(r.done)
	}})
	return r
}

// registrationOrigin names the calling functions, the innermost first. The framework builds its plugins, and the
// scheduler registers its handlers, in random order; the order of these names is always the same. The scheduler's own
// handlers come last: they wake pods, and the plugins must know of the event before that.
func registrationOrigin() string {
	callers := make([]uintptr, 64)
	frames := goruntime.CallersFrames(callers[:goruntime.Callers(3, callers)])
	var out strings.Builder
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "/scheduler.addAllEventHandlers") {
			return "~" + frame.Function
		}
		out.WriteString(frame.Function)
		out.WriteByte('\n')
		if !more {
			return out.String()
		}
	}
}

// orderFirstListsLocked orders the first lists of handlers by kind, and within a kind by handler.
func (s *store) orderFirstListsLocked() {
	slices.SortStableFunc(s.pending, func(a, b event) int {
		return cmp.Or(
			cmp.Compare(slices.Index(s.order, a.kind), slices.Index(s.order, b.kind)),
			strings.Compare(a.origin, b.origin),
		)
	})
}

// inOrderLocked returns all objects in the order of their creation, but pods without a node last: each pod on a node
// has the scheduler look through all that wait. The seed decides on the order of pods on nodes, since a scheduler may
// have seen them come and go in any, and preempts by it among equal ones. Handlers that are registered one after the
// other share the list.
func (k *kind) inOrderLocked() []any {
	if k.sorted != nil {
		return k.sorted
	}
	type entry struct {
		client.Object
		last  int
		drawn uint64
	}
	objects := k.indexer.List()
	entries := make([]entry, 0, len(objects))
	for _, obj := range objects {
		e := entry{Object: obj.(client.Object)} //nolint:forcetypeassert // nothing else is put in
		if pod, ok := obj.(*v1.Pod); ok {
			switch {
			case pod.Spec.NodeName == "":
				e.last = 1
			case k.store.seed != 0:
				e.drawn = seededNumber(k.store.seed, string(pod.UID))
			}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(a.last, b.last), cmp.Compare(a.drawn, b.drawn),
			a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()),
		)
	})
	k.sorted = make([]any, len(entries))
	for i := range entries {
		k.sorted[i] = entries[i].Object
	}
	return k.sorted
}

func (k *kind) unregister(r *registration) {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.registrations = slices.DeleteFunc(slices.Clone(k.registrations), func(other *registration) bool {
		return other == r
	})
}

func (r *registration) handleEvent(e *event) {
	switch {
	case e.old == nil:
		r.handler.OnAdd(e.new, false)
	case e.new == nil:
		r.handler.OnDelete(e.old)
	default:
		r.handler.OnUpdate(e.old, e.new)
	}
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return cache.IsDone(r) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r }

// Name implements cache.DoneChecker.
func (r *registration) Name() string { return r.kind.gvk.Kind }

// Done implements cache.DoneChecker.
func (r *registration) Done() <-chan struct{} { return r.done }

// source is the store as the pack's source of custom resources.
type source struct {
	*store
	beginRequest func() (done func())
}

var _ crd.Source = source{}

// Watch implements crd.Source.
func (s source) Watch(
	ctx context.Context, obj client.Object, handler cache.ResourceEventHandler, onChange func(available bool),
) (crd.Kind, error) {
	k := s.kinds[reflect.TypeOf(obj)]
	if k == nil {
		return nil, runtime.NewNotRegisteredErrForType(kinds.Scheme.Name(), reflect.TypeOf(obj))
	}
	if !k.served {
		return watched{}, nil
	}
	if onChange != nil {
		s.mu.Lock()
		s.queueEventLocked(event{kind: k, call: func() { onChange(true) }})
		s.mu.Unlock()
	}
	r := k.register(handler)
	context.AfterFunc(ctx, func() { k.unregister(r) })
	return watched{r}, nil
}

// PatchStatus implements crd.Source.
func (s source) PatchStatus(_ context.Context, before, after client.Object) error {
	defer s.beginRequest()()
	k := s.kinds[reflect.TypeOf(after)]
	_, err := s.update(k, keyOf(after), func(obj client.Object) error {
		if obj.GetResourceVersion() != before.GetResourceVersion() {
			return conflict(k, obj)
		}
		setStatus(obj, copyOf(after))
		return nil
	})
	return err
}

// Read implements crd.Source.
func (s source) Read(_ context.Context, obj client.Object) error {
	k := s.kinds[reflect.TypeOf(obj)]
	s.mu.Lock()
	stored := k.currentLocked(keyOf(obj))
	s.mu.Unlock()
	if stored == nil {
		return apierrors.NewNotFound(k.resource, obj.GetName())
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(copyOf(stored)).Elem())
	return nil
}

// watched is a crd.Kind. Without a registration the kind is not installed.
type watched struct{ *registration }

// Available implements crd.Kind.
func (w watched) Available() bool { return w.registration != nil }

// HasSynced implements crd.Kind.
func (w watched) HasSynced() bool { return w.registration != nil && w.registration.HasSynced() }

// Settled implements crd.Kind.
func (w watched) Settled() bool { return w.registration == nil || w.registration.HasSynced() }
