package informer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config is what an Observed informer reads.
type Config struct {
	// Client is a client of the API server.
	Client client.WithWatch
	// Example is an empty object of the kind, List an empty list of it. Both are copied.
	Example client.Object
	List    client.ObjectList
	// Trim leaves out what is not needed of each object before it is stored. It may be nil.
	Trim func(client.Object)
	// Handler gets the events, and may be nil. An object that has not changed between two lists is no event.
	Handler toolscache.ResourceEventHandler
	// StateChanged is called when State may have changed, once at a time. It may be nil.
	StateChanged func()
}

// Observed is an informer of client-go for one kind, whether or not the API server serves the kind: State says how the
// reading went. While it fails, the informer asks again at pauses that grow to a minute. Its methods may be called from
// several goroutines, Run once.
type Observed struct {
	config       Config
	informer     toolscache.SharedIndexInformer
	registration toolscache.ResourceEventHandlerRegistration

	telling sync.Mutex // is held while StateChanged is called

	mu    sync.Mutex // guards state
	state State
}

// New returns an informer, which does nothing before Run.
func New(config Config) *Observed {
	if config.Trim == nil {
		config.Trim = func(client.Object) {}
	}
	if config.Handler == nil {
		config.Handler = toolscache.ResourceEventHandlerFuncs{}
	}
	if config.StateChanged == nil {
		config.StateChanged = func() {}
	}
	o := &Observed{config: config}
	source := &toolscache.ListWatch{ListWithContextFunc: o.list, WatchFuncWithContext: o.watch}
	o.informer = toolscache.NewSharedIndexInformer(source, config.Example, 0, toolscache.Indexers{})
	// Neither fails before the informer runs.
	_ = o.informer.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(client.Object); ok { // otherwise it is the mark of a deletion that was missed
			config.Trim(object)
		}
		return obj, nil
	})
	_ = o.informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}) // State has it
	o.registration, _ = o.informer.AddEventHandler(changes{config.Handler})
	return o
}

// Run reads until the context ends. It logs nothing: State keeps the errors.
func (o *Observed) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-o.registration.HasSyncedChecker().Done():
			o.note(nil, func(state *State, _ error, _ time.Time) { state.Listed = true })
		}
	})
	o.informer.RunWithContext(klog.NewContext(ctx, logr.Logger{}))
	running.Wait()
}

// State returns how the reading went.
func (o *Observed) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Objects returns the objects by namespace and name. They must not be changed. Those of a kind that is refused are as
// they were last seen.
func (o *Observed) Objects() []client.Object {
	stored := o.informer.GetStore().List()
	out := make([]client.Object, len(stored))
	for i, obj := range stored {
		out[i] = obj.(client.Object) //nolint:forcetypeassert // the informer is of such
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// list reads a page. Its objects are trimmed at once, so that a large cluster is never in memory as a whole.
func (o *Observed) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	page := o.emptyList()
	err := o.config.Client.List(
		ctx, page, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue},
	)
	o.note(err, (*State).recordList)
	if err != nil {
		return nil, err
	}
	return page, meta.EachListItem(page, func(item runtime.Object) error {
		o.config.Trim(item.(client.Object)) //nolint:forcetypeassert // the kind is of objects
		return nil
	})
}

// watch begins a watch.
func (o *Observed) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	stream, err := o.config.Client.Watch(ctx, o.emptyList(), &client.ListOptions{Raw: &options})
	o.note(err, (*State).recordWatch)
	return stream, err
}

func (o *Observed) emptyList() client.ObjectList {
	return o.config.List.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy has the type of the original
}

// note records the result of a request. The end of the informer is none.
func (o *Observed) note(err error, record func(*State, error, time.Time)) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.mu.Lock()
	record(&o.state, err, time.Now())
	o.mu.Unlock()
	o.telling.Lock()
	defer o.telling.Unlock()
	o.config.StateChanged()
}

// changes leaves out updates by which nothing has changed: a list repeats all objects.
type changes struct {
	toolscache.ResourceEventHandler
}

// OnUpdate implements cache.ResourceEventHandler.
func (c changes) OnUpdate(before, after any) {
	a, known := before.(client.Object)
	b, isObject := after.(client.Object)
	if !known || !isObject || a.GetResourceVersion() != b.GetResourceVersion() {
		c.ResourceEventHandler.OnUpdate(before, after)
	}
}
