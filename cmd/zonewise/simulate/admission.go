package simulate

import (
	"context"
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
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim/kinds"
)

// admission changes new pods as an API server does, by its own plugins: default requests and limits of LimitRanges,
// overhead, node selector and tolerations of RuntimeClasses, the priority of PriorityClasses.
type admission struct {
	snapshot *snapshot.Snapshot
	ranges   []*corev1.LimitRange
	runtimes map[string]*nodev1.RuntimeClass
	classes  []*schedulingv1.PriorityClass
}

func newAdmission(s *snapshot.Snapshot) *admission {
	a := &admission{
		snapshot: s, ranges: snapshot.List[*corev1.LimitRange](s), classes: snapshot.List[*schedulingv1.PriorityClass](s), runtimes: map[string]*nodev1.RuntimeClass{},
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
		a.classes = append([]*schedulingv1.PriorityClass{o}, a.classes...)
	}
}

// admitPod returns what the API server makes of a pod, or why it refuses it.
func (a *admission) admitPod(pod *corev1.Pod) (*corev1.Pod, error) {
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
	if err := a.applyRuntimeClass(pod, internal); err != nil {
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
		if err := limitranger.PodValidateLimitFunc(r, internal); err != nil {
			return nil, fmt.Errorf("LimitRange %s refuses its pods: %w", r.Name, err)
		}
	}
	out := &corev1.Pod{}
	err = apiv1.Convert_core_Pod_To_v1_Pod(internal, out, nil)
	return out, err
}

// applyRuntimeClass applies the pod's RuntimeClass.
func (a *admission) applyRuntimeClass(pod *corev1.Pod, internal *core.Pod) error {
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
	err := plugin.Admit(context.Background(), upstream.NewAttributesRecord(
		internal, nil, core.Kind("Pod").WithVersion("v1"), pod.Namespace, pod.Name, core.Resource("pods").WithVersion("v1"), "", upstream.Create, &metav1.CreateOptions{}, false, nil,
	), nil)
	if status, ok := err.(apierrors.APIStatus); ok {
		return fmt.Errorf("RuntimeClass %s refuses its pods: %s", name, status.Status().Message)
	}
	return err
}

// priority returns the priority that the API server would give a pod, and its class' preemption policy (nil if the class
// has none), as admitPod of upstream's Priority plugin.
func (a *admission) priority(spec *corev1.PodSpec) (*int32, *corev1.PreemptionPolicy, error) {
	if spec.Priority != nil {
		return spec.Priority, nil, nil
	}
	name := spec.PriorityClassName
	for _, class := range a.classes {
		if class.Name == name || name == "" && class.GlobalDefault {
			return &class.Value, class.PreemptionPolicy, nil
		}
	}
	resource, _ := kinds.ResourceOf(&schedulingv1.PriorityClass{})
	switch {
	case name == "":
		return ptr.To[int32](0), nil, nil
	case !a.snapshot.Has(resource.String()):
		return nil, nil, fmt.Errorf("priorityClassName %q: the cluster's PriorityClasses could not be read; with spec.priority in the file they are not needed", name)
	}
	return nil, nil, fmt.Errorf("the cluster has no priorityClassName %q", name)
}
