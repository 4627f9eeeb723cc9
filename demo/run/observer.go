package run

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/demo/board"
)

// observer watches nodes and pods.
type observer struct {
	nodes listers.NodeLister
	pods  listers.PodLister

	mu       sync.Mutex // guards the fields below
	bindings map[types.UID]*board.Binding
	lastBind time.Time
	// members are the bound members of each gang at this moment, mostBound
	// is the most that there were of them.
	members   map[string]map[types.UID]bool
	mostBound map[string]int
}

func newObserver(nodes listers.NodeLister, pods listers.PodLister) *observer {
	return &observer{
		nodes: nodes, pods: pods,
		bindings: map[types.UID]*board.Binding{}, members: map[string]map[types.UID]bool{}, mostBound: map[string]int{},
	}
}

// observe starts watching and returns once the first lists are in.
func observe(ctx context.Context, clients kubernetes.Interface) (*observer, error) {
	factory := informers.NewSharedInformerFactory(clients, 0)
	nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
	o := newObserver(nodes.Lister(), pods.Lister())
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { o.see(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { o.see(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				o.gone(pod)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	nodes.Informer()
	factory.Start(ctx.Done())
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, errors.Join(errors.New("watching nodes and pods"), context.Cause(ctx))
		}
	}
	return o, nil
}

// see notes when a pod appeared and when it was bound. The probes are not
// part of the workload.
func (o *observer) see(pod *corev1.Pod) {
	if pod.Namespace == corev1.NamespaceDefault {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.bindings[pod.UID]
	if b == nil {
		b = &board.Binding{UID: pod.UID, Created: now}
		o.bindings[pod.UID] = b
	}
	if pod.Spec.NodeName != "" && b.Bound.IsZero() {
		b.Bound, o.lastBind = now, now
	}
	gang := pod.Labels[schedv1alpha1.PodGroupLabel]
	if gang == "" || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		delete(o.members[gang], pod.UID)
		return
	}
	if o.members[gang] == nil {
		o.members[gang] = map[types.UID]bool{}
	}
	o.members[gang][pod.UID] = true
	o.mostBound[gang] = max(o.mostBound[gang], len(o.members[gang]))
}

func (o *observer) gone(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.members[pod.Labels[schedv1alpha1.PodGroupLabel]], pod.UID)
}

// peaks returns the most members of each gang that were bound together.
func (o *observer) peaks() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.mostBound)
}

// seen returns all bindings so far, in the order in which the pods appeared.
func (o *observer) seen() []board.Binding {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]board.Binding, 0, len(o.bindings))
	for b := range maps.Values(o.bindings) {
		out = append(out, *b)
	}
	slices.SortFunc(out, func(a, b board.Binding) int { return a.Created.Compare(b.Created) })
	return out
}

// quietFor is how long nothing has been bound.
func (o *observer) quietFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.lastBind)
}

// boundSince is how many pods were bound after t.
func (o *observer) boundSince(t time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, b := range o.bindings {
		if b.Bound.After(t) {
			n++
		}
	}
	return n
}

// lists returns what the watches know. The objects are shared: read only.
func (o *observer) lists() ([]*corev1.Node, []*corev1.Pod) {
	nodes, err := o.nodes.List(labels.Everything())
	if err != nil {
		return nil, nil // a lister over a cache does not fail
	}
	pods, err := o.pods.List(labels.Everything())
	if err != nil {
		return nil, nil
	}
	return nodes, pods
}
