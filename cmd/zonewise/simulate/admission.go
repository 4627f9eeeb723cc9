package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/apis/core"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim/kinds"
)

// admission changes new pods as an API server does. It lets a server do so by a dry run, or calls upstream's own
// plugins: default requests and limits of LimitRanges, overhead, node selector and tolerations of RuntimeClasses, the
// priority of PriorityClasses.
type admission struct {
	snapshot *snapshot.Snapshot
	ranges   []*corev1.LimitRange
	runtimes map[string]*nodev1.RuntimeClass
	classes  map[string]*schedulingv1.PriorityClass
	// server is asked with a dry run; nil if the plugins answer.
	server client.Client
}

func newAdmission(s *snapshot.Snapshot, server client.Client) *admission {
	a := &admission{
		snapshot: s, ranges: snapshot.List[*corev1.LimitRange](s), runtimes: map[string]*nodev1.RuntimeClass{},
		classes: map[string]*schedulingv1.PriorityClass{}, server: server,
	}
	for _, class := range snapshot.List[*schedulingv1.PriorityClass](s) {
		a.classes[class.Name] = class
	}
	for _, class := range snapshot.List[*nodev1.RuntimeClass](s) {
		a.runtimes[class.Name] = class
	}
	return a
}

// addRule adds an object of the file, in place of the cluster's of that name.
func (a *admission) addRule(obj client.Object) {
	switch o := obj.(type) {
	case *corev1.LimitRange:
		apiv1.SetObjectDefaults_LimitRange(o)
		a.ranges = slices.DeleteFunc(slices.Clone(a.ranges), func(r *corev1.LimitRange) bool { return placeOf(r) == placeOf(o) })
		a.ranges = append(a.ranges, o)
	case *nodev1.RuntimeClass:
		a.runtimes[o.Name] = o
	case *schedulingv1.PriorityClass:
		a.classes[o.Name] = o
	}
}

// admitPod returns what the API server makes of a pod, or why it refuses it.
func (a *admission) admitPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if a.server != nil {
		return a.admitByServer(ctx, pod)
	}
	priority, policy, err := a.priority(&pod.Spec)
	if err != nil {
		return nil, err
	}
	apiv1.SetObjectDefaults_Pod(pod) // missing requests are set to the limits, and so on
	pod.Spec.Priority = priority
	if policy != nil {
		pod.Spec.PreemptionPolicy = policy
	}
	internal := &core.Pod{}
	if err := apiv1.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return nil, err
	}
	if err := a.applyRuntimeClass(ctx, pod, internal); err != nil {
		return nil, err
	}
	var limits []*corev1.LimitRange
	for _, r := range a.ranges {
		if r.Namespace == pod.Namespace {
			limits = append(limits, r)
		}
	}
	for _, r := range limits {
		if err := limitranger.PodMutateLimitFunc(r, internal); err != nil {
			return nil, err
		}
	}
	for _, r := range limits {
		if err := checkLimits(r, internal); err != nil {
			return nil, fmt.Errorf("LimitRange %s refuses its pods: %w", r.Name, err)
		}
	}
	out := &corev1.Pod{}
	err = apiv1.Convert_core_Pod_To_v1_Pod(internal, out, nil)
	return out, err
}

// applyRuntimeClass applies the pod's RuntimeClass.
func (a *admission) applyRuntimeClass(ctx context.Context, pod *corev1.Pod, internal *core.Pod) error {
	name := ptr.Deref(pod.Spec.RuntimeClassName, "")
	if name == "" {
		return nil
	}
	class := a.runtimes[name]
	resource, _ := kinds.ResourceOf(&nodev1.RuntimeClass{})
	switch {
	case class == nil && !a.snapshot.Has(resource.String()):
		return fmt.Errorf("runtimeClassName %q: the cluster's RuntimeClasses could not be read", name)
	case class == nil:
		return fmt.Errorf("the cluster has no runtimeClassName %q", name)
	}
	factory := informers.NewSharedInformerFactory(nil, 0) // it is never started
	if err := factory.Node().V1().RuntimeClasses().Informer().GetIndexer().Add(class); err != nil {
		return err
	}
	plugin := runtimeclass.NewRuntimeClass()
	plugin.SetExternalKubeInformerFactory(factory)
	err := plugin.Admit(ctx, creation(internal), nil)
	if status, ok := err.(apierrors.APIStatus); ok {
		return fmt.Errorf("RuntimeClass %s refuses its pods: %s", name, status.Status().Message)
	}
	return err
}

// creation is what admission plugins are told of a new pod.
func creation(pod *core.Pod) upstream.Attributes {
	return upstream.NewAttributesRecord(
		pod, nil, core.Kind("Pod").WithVersion("v1"), pod.Namespace, pod.Name, core.Resource("pods").WithVersion("v1"), "", upstream.Create, &metav1.CreateOptions{}, false, nil,
	)
}

// priority returns the priority that the API server would give a pod, and its class' preemption policy (nil if the
// class has none).
func (a *admission) priority(spec *corev1.PodSpec) (*int32, *corev1.PreemptionPolicy, error) {
	name := spec.PriorityClassName
	resource, _ := kinds.ResourceOf(&schedulingv1.PriorityClass{})
	switch read := a.snapshot.Has(resource.String()); {
	case !read && spec.Priority != nil:
		return spec.Priority, nil, nil
	case !read && name != "" && a.classes[name] == nil:
		return nil, nil, fmt.Errorf("priorityClassName %q: the cluster's PriorityClasses could not be read; with spec.priority in the file they are not needed", name)
	case name != "" && a.classes[name] == nil:
		return nil, nil, fmt.Errorf("the cluster has no priorityClassName %q", name)
	}
	factory := informers.NewSharedInformerFactory(nil, 0) // it is never started
	known := factory.Scheduling().V1().PriorityClasses().Informer().GetIndexer()
	for _, class := range a.classes {
		if err := known.Add(class); err != nil {
			return nil, nil, err
		}
	}
	plugin := priority.NewPlugin()
	plugin.SetExternalKubeInformerFactory(factory)
	pod := &core.Pod{Spec: core.PodSpec{PriorityClassName: name, Priority: spec.Priority}}
	if err := plugin.Admit(context.Background(), creation(pod), nil); err != nil {
		if status, ok := err.(apierrors.APIStatus); ok {
			return nil, nil, errors.New(status.Status().Message)
		}
		return nil, nil, err
	}
	return pod.Spec.Priority, (*corev1.PreemptionPolicy)(pod.Spec.PreemptionPolicy), nil
}

// admitByServer has the API server make a pod by a dry run. Its service account, which the file may only be about to
// make, does not matter to a scheduler.
func (a *admission) admitByServer(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	asked := pod.DeepCopy()
	asked.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "-", Labels: pod.Labels, Annotations: pod.Annotations}
	asked.Spec.ServiceAccountName, asked.Spec.DeprecatedServiceAccount = "", ""
	if err := a.server.Create(ctx, asked, client.DryRunAll); err != nil {
		return nil, fmt.Errorf("the API server refuses its pods: %w", err)
	}
	out := &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: asked.Spec}
	out.Labels, out.Annotations = asked.Labels, asked.Annotations
	return out, nil
}
