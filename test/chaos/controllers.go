package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// tick is the pause between two looks of the controllers at the cluster.
const tick = 250 * time.Millisecond

// controllers make the cluster what is asked for, as workload controllers, kubelets and the collector of the pods of
// lost nodes do. They look at all of it again and again, so that nothing is lost with a request that failed.
type controllers struct {
	client client.Client

	mu     sync.Mutex // guards what follows
	demand *demand
	made   int
	// steady is how many looks in a row have found nothing to do.
	steady  int
	pending int // pods that wait, at the last look
	ended   bool
}

// run works until ctx ends.
func (c *controllers) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.look(ctx)
		_ = pause(ctx, tick)
	}
}

// stop has them do nothing any more.
func (c *controllers) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// apply changes the demand by a step.
func (c *controllers) apply(s step) { c.change(func(d *demand) { d.apply(s) }) }

// change changes the demand.
func (c *controllers) change(edit func(*demand)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edit(c.demand)
	c.steady = 0
}

// isSteady reports whether the cluster has been what is asked for, for a while.
func (c *controllers) isSteady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steady >= 3
}

// waiting is how many pods waited at the last look.
func (c *controllers) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

// look compares the cluster with the demand, and does what is to do.
func (c *controllers) look(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	objects, errObjects := c.objects(ctx)
	pods, nodes := &v1.PodList{}, &v1.NodeList{}
	// Nodes last: a pod's node that is not among them is gone.
	if err := errors.Join(c.client.List(ctx, pods, client.InNamespace(namespace)), c.client.List(ctx, nodes)); err != nil {
		c.steady = 0
		return
	}
	there := map[string]bool{}
	for _, n := range nodes.Items {
		there[n.Name] = true
	}
	var errs []error
	live := map[string][]*v1.Pod{}
	changes := objects
	for i := range pods.Items {
		pod := &pods.Items[i]
		kept, err := c.kubelet(ctx, pod, there)
		errs = append(errs, err)
		if kept {
			live[pod.Labels[appLabel]] = append(live[pod.Labels[appLabel]], pod)
		}
	}
	c.pending = 0
	for _, pods := range live {
		for _, pod := range pods {
			if pod.Spec.NodeName == "" {
				c.pending++
			}
		}
	}
	wanted := map[string]bool{}
	for _, s := range c.demand.all() {
		wanted[s.name] = true
		n, err := c.scale(ctx, s, live[s.name])
		changes += n
		errs = append(errs, err)
	}
	for _, app := range slices.Sorted(maps.Keys(live)) {
		for _, pod := range live[app] {
			if !wanted[app] {
				changes++
				errs = append(errs, c.delete(ctx, pod))
			}
		}
	}
	c.steady++
	if changes > 0 || errors.Join(append(errs, errObjects)...) != nil {
		c.steady = 0
	}
}

// kubelet does what kubelets do for a pod, and what is done for pods whose node is gone. It reports whether the pod
// lives on.
func (c *controllers) kubelet(ctx context.Context, pod *v1.Pod, nodes map[string]bool) (bool, error) {
	node := pod.Spec.NodeName
	switch {
	case pod.DeletionTimestamp != nil, node != "" && !nodes[node], pod.Status.Phase == v1.PodSucceeded:
		return false, c.delete(ctx, pod)
	case node != "" && pod.Status.Phase == v1.PodPending:
		before := client.MergeFrom(pod.DeepCopy())
		pod.Status.Phase = v1.PodRunning
		return true, client.IgnoreNotFound(c.client.Status().Patch(ctx, pod, before))
	case pod.Status.Phase == v1.PodRunning && c.demand.finishes[pod.Labels[appLabel]] > 0:
		before := client.MergeFrom(pod.DeepCopy())
		pod.Status.Phase = v1.PodSucceeded
		c.demand.finishes[pod.Labels[appLabel]]--
		return false, client.IgnoreNotFound(c.client.Status().Patch(ctx, pod, before))
	}
	return true, nil
}

// scale creates and deletes pods of a service, and says how many.
func (c *controllers) scale(ctx context.Context, s *service, live []*v1.Pod) (changes int, err error) {
	var errs []error
	surplus := max(0, len(live)-s.replicas)
	replaced := min(c.demand.restarts[s.name], len(live)-surplus)
	for _, pod := range live[:surplus+replaced] {
		changes++
		errs = append(errs, c.delete(ctx, pod))
	}
	c.demand.restarts[s.name] = 0
	for range s.replicas - (len(live) - surplus - replaced) {
		changes++
		c.made++
		errs = append(errs, c.client.Create(ctx, s.pod(fmt.Sprintf("%s-%d", s.name, c.made))))
	}
	return changes, errors.Join(errs...)
}

func (c *controllers) delete(ctx context.Context, pod *v1.Pod) error {
	return client.IgnoreNotFound(c.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

// wantedObjects are those that are wanted of a kind.
type wantedObjects struct {
	list   client.ObjectList
	wanted []client.Object
}

// objects brings PodGroups, policies and reservations to what is asked for, and says how many it has changed.
func (c *controllers) objects(ctx context.Context) (changes int, err error) {
	var groups []client.Object
	for _, g := range c.demand.gangs {
		if !g.native {
			groups = append(groups, g.group())
		}
	}
	var errs []error
	for _, k := range append([]wantedObjects{
		{&schedulingv1alpha1.PodGroupList{}, groups},
		{&v1alpha1.ZoneSpreadPolicyList{}, asObjects(c.demand.policies)},
		{&v1alpha1.ZoneReservationList{}, asObjects(c.demand.reservations)},
	}, nativeObjects(c.demand.gangs)...) {
		n, err := c.bring(ctx, k.list, k.wanted)
		changes += n
		errs = append(errs, err)
	}
	return changes, errors.Join(errs...)
}

func asObjects[T client.Object](in []T) (out []client.Object) {
	for _, o := range in {
		out = append(out, o)
	}
	return out
}

// bring makes the objects of a kind those that are wanted.
func (c *controllers) bring(ctx context.Context, list client.ObjectList, wanted []client.Object) (changes int, err error) {
	if err := c.client.List(ctx, list); err != nil {
		return 0, err
	}
	there := map[client.ObjectKey]client.Object{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		there[client.ObjectKeyFromObject(o.(client.Object))] = o.(client.Object)
		return nil
	}); err != nil {
		return 0, err
	}
	var errs []error
	for _, want := range wanted {
		key := client.ObjectKeyFromObject(want)
		have := there[key]
		delete(there, key)
		switch {
		case have == nil:
			changes++
			errs = append(errs, c.client.Create(ctx, want.DeepCopyObject().(client.Object)))
		case have.GetDeletionTimestamp() == nil:
			changed, err := c.update(ctx, have, want)
			if changed {
				changes++
			}
			errs = append(errs, err)
		}
	}
	for _, o := range there {
		changes++
		errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, o)))
	}
	return changes, errors.Join(errs...)
}

// update changes what steps can change.
func (c *controllers) update(ctx context.Context, have, want client.Object) (bool, error) {
	before := client.MergeFrom(have.DeepCopyObject().(client.Object))
	switch have := have.(type) {
	case *schedulingv1alpha1.PodGroup:
		want := want.(*schedulingv1alpha1.PodGroup)
		if have.Spec.MinMember == want.Spec.MinMember {
			return false, nil
		}
		have.Spec.MinMember = want.Spec.MinMember
	case *v1alpha1.ZoneSpreadPolicy:
		want := want.(*v1alpha1.ZoneSpreadPolicy)
		if reflect.DeepEqual(have.Spec.MaxPerZone, want.Spec.MaxPerZone) {
			return false, nil
		}
		have.Spec.MaxPerZone = want.Spec.MaxPerZone
	case *v1alpha1.ZoneReservation:
		want := want.(*v1alpha1.ZoneReservation)
		if reflect.DeepEqual(have.Spec.Zones, want.Spec.Zones) {
			return false, nil
		}
		have.Spec.Zones = want.Spec.Zones
	default:
		if !updateNativeGroup(have, want) {
			return false, nil
		}
	}
	return true, c.client.Patch(ctx, have, before)
}

// deleteAll deletes all that there is but the nodes, and waits until it is gone.
func (c *controllers) deleteAll(ctx context.Context) error {
	return persist(ctx, func() error {
		for _, o := range append([]client.Object{&v1.Pod{}, &schedulingv1alpha1.PodGroup{}, &v1alpha1.ZoneSpreadPolicy{}}, nativeKinds...) {
			if err := c.client.DeleteAllOf(ctx, o, client.InNamespace(namespace), client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if err := c.client.DeleteAllOf(ctx, &v1alpha1.ZoneReservation{}); err != nil {
			return err
		}
		pods := &v1.PodList{}
		if err := c.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return nil
	})
}

// newNode makes a node.
func newNode(zone string, number int) *v1.Node {
	name := fmt.Sprintf("%s%d", zone, number)
	node := build.Node(name, zone, fmt.Sprintf("%dm", nodeMilliCPU), build.Capacity(v1.ResourceMemory, nodeMemory),
		build.Capacity(v1.ResourcePods, fmt.Sprint(nodePods)))
	node.Status.Conditions[0].LastTransitionTime = metav1.Now()
	return node
}
