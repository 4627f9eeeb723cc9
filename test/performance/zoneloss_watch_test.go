package performance

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"zonewise.dev/demo/workload"
)

// watcher sees when replicas of the services are created and bound after a loss.
type watcher struct {
	loss *loss
	// displaced is how many replicas run in the zone that is to be lost.
	displaced int

	mu sync.Mutex // guards seen
	// seen are the replicas that were created since.
	seen map[types.UID]*replica
}

// replica is one that was created after the loss.
type replica struct {
	app            string
	created, bound time.Time // bound is zero while it waits
}

// watch begins to watch.
func (l *loss) watch() *watcher {
	w := &watcher{loss: l, seen: map[types.UID]*replica{}}
	for _, p := range l.census().PodsIn(workload.ServiceNamespace) {
		if p.On != nil && p.On.Zone == l.zone {
			w.displaced++
		}
	}
	kube, err := kubernetes.NewForConfig(l.cluster.Config)
	require.NoError(l, err)
	pods := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(workload.ServiceNamespace)).Core().V1().Pods().Informer()
	handle, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				w.add(obj.(*corev1.Pod)) //nolint:forcetypeassert // the informer's
			}
		},
		UpdateFunc: func(_, obj any) { w.update(obj.(*corev1.Pod)) }, //nolint:forcetypeassert // the informer's
	})
	require.NoError(l, err)
	go pods.Run(l.ctx.Done())
	require.True(l, cache.WaitForCacheSync(l.ctx.Done(), handle.HasSynced))
	return w
}

func (w *watcher) add(pod *corev1.Pod) {
	w.mu.Lock()
	w.seen[pod.UID] = &replica{app: pod.Labels[appLabel], created: time.Now()}
	w.mu.Unlock()
	w.update(pod)
}

func (w *watcher) update(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.seen[pod.UID]; r != nil && r.bound.IsZero() && pod.Spec.NodeName != "" {
		r.bound = time.Now()
	}
}

// until waits until all displaced replicas have been created again and are bound, or until the deadline.
func (w *watcher) until(deadline time.Time) {
	ctx, stop := context.WithDeadline(w.loss.ctx, deadline)
	defer stop()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		bound := 0
		for _, r := range w.seen {
			if !r.bound.IsZero() {
				bound++
			}
		}
		return len(w.seen) >= w.displaced && bound == len(w.seen), nil
	})
	if err != nil {
		w.loss.require(nil, "the displaced replicas are bound")
	}
}

// results are seconds after the loss, and counts.
type results struct {
	// created is when the last replica was created, plain and spread when the last one without and with a policy was
	// bound, and queued how long after its creation a replica was bound, at most.
	created, plain, spread, queued float64
	withPolicy, waiting            int
}

func (w *watcher) results(lostAt time.Time, spread map[string]bool) results {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := results{waiting: max(0, w.displaced-len(w.seen))}
	for _, is := range w.seen {
		r.created, r.queued = max(r.created, is.created.Sub(lostAt).Seconds()), max(r.queued, is.bound.Sub(is.created).Seconds())
		if spread[is.app] {
			r.withPolicy++
		}
		switch after := is.bound.Sub(lostAt).Seconds(); {
		case is.bound.IsZero():
			r.waiting++
		case spread[is.app]:
			r.spread = max(r.spread, after)
		default:
			r.plain = max(r.plain, after)
		}
	}
	return r
}
