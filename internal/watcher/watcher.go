package watcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is how many objects one request asks for.
	pageSize = 1000
	// requestTimeout is how long the API server may take for a page, and to begin a watch. A scheduler's transport
	// repeats watches for a minute, which is no fault of one kind.
	requestTimeout = 90 * time.Second
	// While a kind is not served, the API server is asked at intervals that grow from missingInterval to
	// missingIntervalLimit. That costs it one request for what it serves.
	missingInterval      = 200 * time.Millisecond
	missingIntervalLimit = 10 * time.Second
)

var errNoAnswer = errors.New("no answer within 90 seconds")

// Config is what a Watcher watches.
type Config struct {
	// Client is a client of the API server.
	Client client.WithWatch
	// Example is an empty object of the kind, List an empty list of it. Both are copied.
	Example client.Object
	List    client.ObjectList
	// Trim leaves out what is not needed of each object before it is stored. It may be nil.
	Trim func(client.Object)
	// Handler gets the events, and may be nil. An object that has not changed between two lists is no event.
	Handler cache.ResourceEventHandler
	// StateChanged is called when State may have changed. It may be nil.
	StateChanged func()
}

// Watcher keeps the objects of one kind current. Its methods may be called from several goroutines, Run once.
type Watcher struct {
	config Config

	mu      sync.Mutex // guards what follows
	state   State
	objects map[string]client.Object
}

// New returns a watcher, which does nothing before Run.
func New(config Config) *Watcher {
	if config.Trim == nil {
		config.Trim = func(client.Object) {}
	}
	if config.Handler == nil {
		config.Handler = cache.ResourceEventHandlerFuncs{}
	}
	if config.StateChanged == nil {
		config.StateChanged = func() {}
	}
	return &Watcher{config: config, objects: map[string]client.Object{}}
}

// Run watches until the context ends. Handlers and StateChanged are called by it, one at a time. It logs nothing: State
// keeps the errors.
func (w *Watcher) Run(ctx context.Context) {
	source := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	reflector := cache.NewReflectorWithOptions(
		source, w.config.Example, store{w}, cache.ReflectorOptions{Name: "zonewise"},
	)
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(klog.NewContext(ctx, logr.Logger{}))
}

// State returns how the reading went.
func (w *Watcher) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Objects returns the objects by namespace and name. They must not be changed. Those of a kind that is refused are as
// they were last seen.
func (w *Watcher) Objects() []client.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]client.Object, 0, len(w.objects))
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		out = append(out, w.objects[key])
	}
	return out
}

// list reads a page, once the API server serves the kind. Its objects are trimmed at once, so that a large cluster is
// never in memory as a whole.
func (w *Watcher) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	backoff := wait.Backoff{Duration: missingInterval, Factor: 1.5, Jitter: 0.1, Steps: 20, Cap: missingIntervalLimit}
	for {
		page, err := w.page(ctx, options)
		if err == nil {
			return page, nil // the state changes when the list is whole
		}
		w.note(err, (*State).recordList)
		if RefusalOf(err) != NotInstalled {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(backoff.Step()):
		}
	}
}

func (w *Watcher) page(ctx context.Context, options metav1.ListOptions) (client.ObjectList, error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	page := w.emptyList()
	err := w.config.Client.List(
		limited, page, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue},
	)
	if err == nil {
		err = meta.EachListItem(page, func(item runtime.Object) error {
			w.config.Trim(item.(client.Object)) //nolint:forcetypeassert // the kind is of objects
			return nil
		})
	}
	return page, errorOf(limited, err)
}

// watch begins a watch.
func (w *Watcher) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	limited, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(requestTimeout, func() { cancel(errNoAnswer) })
	stream, err := w.config.Client.Watch(limited, w.emptyList(), &client.ListOptions{Raw: &options})
	late.Stop()
	err = errorOf(limited, err)
	w.note(err, (*State).recordWatch)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &stoppedWatch{stream, cancel}, nil
}

func (w *Watcher) emptyList() client.ObjectList {
	return w.config.List.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy has the type of the original
}

// errorOf returns the error of a request, or that it has taken too long.
func errorOf(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}

// note records the result of a request. The end of the watcher is none.
func (w *Watcher) note(err error, record func(*State, error, time.Time)) {
	if errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	record(&w.state, err, time.Now())
	w.mu.Unlock()
	w.config.StateChanged()
}

// stoppedWatch is a watch whose context ends with it.
type stoppedWatch struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

// Stop implements watch.Interface.
func (w *stoppedWatch) Stop() {
	w.Interface.Stop()
	w.cancel(nil)
}
