package integration

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watcher keeps what a watch of all pods shows, so that a test that waits for pods need not ask the API server again
// and again.
type watcher struct {
	mu      sync.Mutex    // guards all fields below
	changed chan struct{} // closed, and replaced, with each change
	pods    map[types.UID]*v1.Pod
}

// startWatcher starts a watch of all pods, until ctx ends.
func startWatcher(ctx context.Context, t *testing.T, kube kubernetes.Interface) *watcher {
	t.Helper()
	w := &watcher{changed: make(chan struct{}), pods: map[types.UID]*v1.Pod{}}
	pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items, "an earlier test has left pods behind")
	// The API server ends the watch of a client that is slow. It goes on where it ended, so that nothing is missed.
	changes, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: kube.CoreV1().Pods("").Watch,
	})
	require.NoError(t, err)
	go w.run(changes)
	return w
}

func (w *watcher) run(changes watch.Interface) {
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if pod, ok := change.Object.(*v1.Pod); ok {
			w.see(change.Type, pod)
		}
	}
}

// see takes in one change.
func (w *watcher) see(change watch.EventType, pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[pod.UID] = pod; change == watch.Deleted {
		delete(w.pods, pod.UID)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// changes returns a channel that is closed when the watch shows the next change.
func (w *watcher) changes() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// latest returns the pods as the watch has shown them last, nil for one that it has not shown or that is
// gone.
func (w *watcher) latest(pods []*v1.Pod) []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := make([]*v1.Pod, len(pods))
	for i, pod := range pods {
		latest[i] = w.pods[pod.UID]
	}
	return latest
}
