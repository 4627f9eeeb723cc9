package integration

import (
	"context"
	"fmt"
	"slices"
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
	"k8s.io/component-helpers/resource"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/reservecache/ledger"
)

// watcher sees every change of every pod in the order in which the API server made it, and adds up what is
// bound to each node. A state that lasts for a moment only is seen too, which looking at the end is not.
// An informer would not do: it keeps the order of the changes of one pod, not of all.
//
// When it sees a member of a gang bound, it also asks the ledger whether enough of the others are bound or
// assumed at that moment.
//
// It keeps what it has seen, so that a test that waits for pods need not ask the API server again and again.
type watcher struct {
	mu          sync.Mutex    // guards all fields below
	changed     chan struct{} // closed, and replaced, with each change
	pods        map[types.UID]*v1.Pod
	allocatable map[string]v1.ResourceList
	bound       map[types.UID]*v1.Pod
	minMember   map[string]int // of the test's gangs by name
	ledger      *ledger.Ledger // of the scheduler that runs, nil when none does or it has none
	violations  []string
}

func newWatcher() *watcher {
	return &watcher{
		changed: make(chan struct{}), pods: map[types.UID]*v1.Pod{}, allocatable: map[string]v1.ResourceList{},
		bound: map[types.UID]*v1.Pod{}, minMember: map[string]int{},
	}
}

// startWatcher starts a watch of all pods, until ctx ends.
func startWatcher(ctx context.Context, t *testing.T, kube kubernetes.Interface) *watcher {
	t.Helper()
	w := newWatcher()
	pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items, "an earlier test has left pods behind")
	// The API server ends the watch of a client that is slow. It goes on where it ended, so that nothing is missed.
	changes, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: kube.CoreV1().Pods("").Watch,
	})
	require.NoError(t, err)
	go w.run(ctx, changes)
	return w
}

func (w *watcher) run(ctx context.Context, changes watch.Interface) {
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if pod, ok := change.Object.(*v1.Pod); ok {
			w.see(change.Type, pod)
		}
	}
	if ctx.Err() == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.violations = append(w.violations, "the watch of the pods ended before the test")
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
	finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case change == watch.Deleted || finished:
		delete(w.bound, pod.UID)
	case pod.Spec.NodeName != "":
		_, known := w.bound[pod.UID]
		w.bound[pod.UID] = pod
		if !known {
			w.checkNodeLocked(pod.Spec.NodeName)
			w.checkGangLocked(pod)
		}
	}
}

// checkGangLocked counts the members of a gang that are bound or assumed when one of them is bound.
func (w *watcher) checkGangLocked(pod *v1.Pod) {
	name := pod.Labels[schedulingv1alpha1.PodGroupLabel]
	if w.ledger == nil || w.minMember[name] == 0 {
		return
	}
	prepared := 0
	for _, other := range w.ledger.Dump().Pods() {
		if other.Pod.Namespace == pod.Namespace && other.Pod.Labels[schedulingv1alpha1.PodGroupLabel] == name {
			prepared++
		}
	}
	if prepared < w.minMember[name] {
		w.violations = append(w.violations, fmt.Sprintf("%s was bound when %d of the %d members of gang %s were bound or assumed", pod.Name, prepared, w.minMember[name], name))
	}
}

// checkNodeLocked adds up one node.
func (w *watcher) checkNodeLocked(node string) {
	allocatable, ok := w.allocatable[node]
	if !ok {
		w.violations = append(w.violations, fmt.Sprintf("a pod was bound to node %s, which was never there", node))
		return
	}
	used := v1.ResourceList{}
	count := int64(0)
	for _, pod := range w.bound {
		if pod.Spec.NodeName != node {
			continue
		}
		count++
		for name, amount := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(amount)
			used[name] = sum
		}
	}
	for name, sum := range used {
		if limit := allocatable[name]; sum.Cmp(limit) > 0 {
			w.violations = append(w.violations, fmt.Sprintf("node %s was given %s of %s, it has %s", node, sum.String(), name, limit.String()))
		}
	}
	if limit := allocatable.Pods().Value(); count > limit {
		w.violations = append(w.violations, fmt.Sprintf("node %s was given %d pods, it takes %d", node, count, limit))
	}
}

// setNode tells what a node has, before anything can be bound to it.
func (w *watcher) setNode(node *v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allocatable[node.Name] = node.Status.Allocatable
}

// setGang tells how many members a gang must have.
func (w *watcher) setGang(name string, minMember int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.minMember[name] = minMember
}

// setLedger tells whose ledger to ask.
func (w *watcher) setLedger(l *ledger.Ledger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger = l
}

// changes returns a channel that is closed when the watch shows the next change.
func (w *watcher) changes() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// latest returns the pods as the watch has shown them last, nil in the place of one that it has not shown or that is gone.
func (w *watcher) latest(pods []*v1.Pod) []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := make([]*v1.Pod, len(pods))
	for i, pod := range pods {
		latest[i] = w.pods[pod.UID]
	}
	return latest
}

// hasSeen reports whether the watch has shown the pod bound.
func (w *watcher) hasSeen(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.bound[uid]
	return ok
}

// found returns what has been wrong so far.
func (w *watcher) found() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}
