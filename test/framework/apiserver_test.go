package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"zonewise.dev/test/build"
)

var pods, nodes = v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithResource("nodes")

// serve has the fake clientset do what schedulers need of an API server and it does not by itself.
func (c *cluster) serve() {
	// The scheduler tells updates from repetitions by versions.
	c.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := action.(clienttesting.CreateAction); ok { // updates are, too
			c.version(a.GetObject())
			if o, err := meta.Accessor(a.GetObject()); err == nil && o.GetName() == "" && o.GetGenerateName() != "" {
				o.SetName(o.GetGenerateName() + o.GetResourceVersion())
				o.SetUID(types.UID(o.GetName()))
			}
		}
		return false, nil, nil
	})
	// What a watch begins with, the clientset does not copy, and informers change it.
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		a := action.(clienttesting.WatchActionImpl)
		w, err := c.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.ListOptions)
		if err != nil {
			return true, nil, err
		}
		return true, copied(w), nil
	})
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding, isBinding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if !isBinding {
			return false, nil, nil
		}
		return true, binding, c.bindPod(binding)
	})
	c.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteActionImpl)
		if len(a.DeleteOptions.DryRun) > 0 {
			return true, nil, nil
		}
		if !c.graceful.Load() {
			return false, nil, nil
		}
		return true, nil, c.editPod(a.Namespace, a.Name, func(pod *v1.Pod) {
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: c.clock.Now()}
			}
		})
	})
	react := clienttesting.ObjectReaction(c.client.Tracker())
	c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		var fields map[string]any
		if err := json.Unmarshal(patch.Patch, &fields); err != nil {
			return true, nil, err
		}
		metadata, _ := fields["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			fields["metadata"] = metadata
		}
		metadata["resourceVersion"] = strconv.FormatInt(c.versions.Add(1), 10)
		var err error
		if patch.Patch, err = json.Marshal(fields); err != nil {
			return true, nil, err
		}
		c.patches.Add(1)
		return react(patch)
	})
}

// copiedWatch passes on copies of the objects of a watch.
type copiedWatch struct {
	watch.Interface
	copies chan watch.Event
	stop   func()
}

func copied(w watch.Interface) *copiedWatch {
	stopped := make(chan struct{})
	c := &copiedWatch{w, make(chan watch.Event), sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(c.copies)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
			select {
			case c.copies <- e:
			case <-stopped:
				return
			}
		}
	}()
	return c
}

func (c *copiedWatch) ResultChan() <-chan watch.Event { return c.copies }

func (c *copiedWatch) Stop() {
	c.stop()
	c.Interface.Stop()
}

func (c *cluster) version(o runtime.Object) {
	if accessor, err := meta.Accessor(o); err == nil {
		accessor.SetResourceVersion(strconv.FormatInt(c.versions.Add(1), 10))
	}
}

func (c *cluster) bindPod(binding *v1.Binding) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onBind != nil {
		if err := c.onBind(binding.Name); err != nil {
			return err
		}
	}
	err := c.editPod(binding.Namespace, binding.Name, func(pod *v1.Pod) {
		pod.Spec.NodeName = binding.Target.Name
		podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	}, func(pod *v1.Pod) error {
		if pod.UID != binding.UID || pod.Spec.NodeName != "" {
			return fmt.Errorf("pod %s cannot be bound", pod.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.binds = append(c.binds, binding.Name)
	if c.afterBind != nil {
		return c.afterBind(binding.Name)
	}
	return nil
}

// editPod changes a pod unless one of the checks fails.
func (c *cluster) editPod(namespace, name string, edit func(*v1.Pod), checks ...func(*v1.Pod) error) error {
	o, err := c.client.Tracker().Get(pods, namespace, name)
	if err != nil {
		return err
	}
	pod := o.(*v1.Pod).DeepCopy()
	for _, check := range checks {
		if err := check(pod); err != nil {
			return err
		}
	}
	edit(pod)
	c.version(pod)
	return c.client.Tracker().Update(pods, pod, namespace)
}

// refuseBinds asks f before each bind; nil has all pass.
func (c *cluster) refuseBinds(f func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBind = f
}

// newNode makes a node that is ready, with so many CPUs; zone "" for none.
func newNode(name, zone, cpu string) *v1.Node {
	return build.Node(name, zone, cpu, build.Capacity(v1.ResourcePods, "200"), func(node *v1.Node) {
		node.Status.Conditions[0].LastTransitionTime = metav1.Now()
	})
}

// add puts an object into the API server and, but for benchmarks, waits until that is seen: pods come by another watch.
func (c *cluster) add(o runtime.Object) {
	c.t.Helper()
	c.version(o)
	require.NoError(c.t, c.client.Tracker().Add(o))
	if _, benchmark := c.t.(*testing.B); !benchmark {
		c.settle()
	}
}

// createPods creates pods, each a little later than the one before.
func (c *cluster) createPods(pods ...*v1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		if pod.CreationTimestamp.IsZero() {
			c.created++
			pod.CreationTimestamp = metav1.Time{Time: c.clock.Now().Add(time.Duration(c.created))}
		}
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

// getPod returns what the API server has of a pod.
func (c *cluster) getPod(name string) *v1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod.DeepCopy()
}

// listPods returns the pods of all namespaces with a name that begins so.
func (c *cluster) listPods(prefix string) []v1.Pod {
	o, err := c.client.Tracker().List(pods, v1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	require.NoError(c.t, err)
	return slices.DeleteFunc(o.(*v1.PodList).Items, func(pod v1.Pod) bool { return !strings.HasPrefix(pod.Name, prefix) })
}

// editNode changes a node and waits until that is seen: pods come by another watch.
func (c *cluster) editNode(name string, edit func(*v1.Node)) {
	c.t.Helper()
	o, err := c.client.Tracker().Get(nodes, "", name)
	require.NoError(c.t, err)
	node := o.(*v1.Node).DeepCopy()
	edit(node)
	c.version(node)
	require.NoError(c.t, c.client.Tracker().Update(nodes, node, ""))
	c.settle()
}

// delete asks for the deletion of pods.
func (c *cluster) delete(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// finish takes pods away, as the kubelet does at the end of their grace period.
func (c *cluster) finish(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.Tracker().Delete(pods, metav1.NamespaceDefault, name))
	}
}

// schedulerClient is the scheduler's client of the API server. It serves what the fake clientset does not know, and what would have all
// other requests wait there.
type schedulerClient struct {
	*fake.Clientset
	stage *stage
	jobs  chan struct{} // Jobs can be listed when it is closed; nil for at once
}

func (c schedulerClient) CoreV1() coreclient.CoreV1Interface {
	return schedulerCore{c.Clientset.CoreV1(), c.stage}
}

type schedulerCore struct {
	coreclient.CoreV1Interface
	stage *stage
}

func (c schedulerCore) Pods(namespace string) coreclient.PodInterface {
	return schedulerPods{c.CoreV1Interface.Pods(namespace), c.stage}
}

type schedulerPods struct {
	coreclient.PodInterface
	stage *stage
}

func (p schedulerPods) Bind(ctx context.Context, binding *v1.Binding, opts metav1.CreateOptions) error {
	if slices.Contains(opts.DryRun, metav1.DryRunAll) {
		return p.stage.rehearse(binding)
	}
	return p.PodInterface.Bind(ctx, binding, opts)
}

func (p schedulerPods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if p.stage.onDelete != nil {
		if err := p.stage.onDelete(name); err != nil {
			return err
		}
	}
	return p.PodInterface.Delete(ctx, name, opts)
}

func (c schedulerClient) BatchV1() batchclient.BatchV1Interface {
	return schedulerBatch{c.Clientset.BatchV1(), c.jobs}
}

type schedulerBatch struct {
	batchclient.BatchV1Interface
	jobs chan struct{}
}

func (b schedulerBatch) Jobs(namespace string) batchclient.JobInterface {
	return schedulerJobs{b.BatchV1Interface.Jobs(namespace), b.jobs}
}

type schedulerJobs struct {
	batchclient.JobInterface
	until chan struct{}
}

func (l schedulerJobs) List(ctx context.Context, options metav1.ListOptions) (*batchv1.JobList, error) {
	if l.until != nil {
		select {
		case <-l.until:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.JobInterface.List(ctx, options)
}
