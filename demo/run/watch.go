package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// life has the events that were seen of a pod.
type life struct {
	namespace, name string
	app, role       string
	created, bound  time.Time
	// refused has what the scheduler wrote into the pod after failed attempts.
	refused string
}

// watch follows nodes, pods and workloads, and records the lives of the pods.
type watch struct {
	reader client.Reader

	mu    sync.Mutex // guards lives
	lives map[types.UID]*life
}

// newWatch starts watching and returns once the first lists are in. It ends with ctx.
func newWatch(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (*watch, error) {
	c, err := cache.New(config, cache.Options{Scheme: scheme, DefaultUnsafeDisableDeepCopy: ptr.To(true)})
	if err != nil {
		return nil, err
	}
	w := &watch{reader: c, lives: map[types.UID]*life{}}
	go func() { _ = c.Start(ctx) }() // it ends with ctx; a failed start shows below
	for _, obj := range []client.Object{&corev1.Node{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}} {
		if _, err := c.GetInformer(ctx, obj); err != nil {
			return nil, err
		}
	}
	pods, err := c.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	_, err = pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.see(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { w.see(obj.(*corev1.Pod)) },
	})
	if err != nil {
		return nil, err
	}
	if !c.WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("watch the cluster"), context.Cause(ctx))
	}
	return w, nil
}

// see records when a pod appeared, was bound and was refused. Probes are not part of the workload.
func (w *watch) see(pod *corev1.Pod) {
	if pod.Namespace == corev1.NamespaceDefault {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[pod.UID]
	if l == nil {
		l = &life{namespace: pod.Namespace, name: pod.Name, created: now}
		l.app, l.role = appOf(pod)
		w.lives[pod.UID] = l
	}
	if pod.Spec.NodeName != "" {
		if l.bound.IsZero() {
			l.bound = now
		}
		return
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && l.refused == "" {
			l.refused = c.Reason + ": " + c.Message
		}
	}
}

// livesSince returns the lives of the pods for which when returns a time after t.
func (w *watch) livesSince(t time.Time, when func(*life) time.Time) map[types.UID]life {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[types.UID]life{}
	for uid, l := range w.lives {
		if when(l).After(t) {
			out[uid] = *l
		}
	}
	return out
}

func created(l *life) time.Time { return l.created }
func bound(l *life) time.Time   { return l.bound }

// quietFor returns how long no pod has been bound.
func (w *watch) quietFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var last time.Time
	for _, l := range w.lives {
		if l.bound.After(last) {
			last = l.bound
		}
	}
	return time.Since(last)
}

// waits returns the median and the 99th percentile of the times from created to bound.
func (w *watch) waits() (median, most time.Duration) {
	var all []time.Duration
	for _, l := range w.livesSince(time.Time{}, bound) {
		all = append(all, l.bound.Sub(l.created))
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// list returns the known objects of a kind. They are shared, and must not be modified.
func list[L client.ObjectList](w *watch, into L, opts ...client.ListOption) L {
	// Listing from a synced cache does not fail.
	_ = w.reader.List(context.Background(), into, opts...)
	return into
}

func (w *watch) nodes() []corev1.Node { return list(w, &corev1.NodeList{}).Items }

func (w *watch) pods() []corev1.Pod { return list(w, &corev1.PodList{}).Items }
