// Package build makes the pods and nodes of tests: the smallest object that the scheduler takes for a real one, and
// options that add what a test is about. A test's own helpers only say what its pods and nodes have in common.
//
// Objects have their name as UID, which an API server replaces, so that a test may refer to them by either. An amount
// that is no quantity panics: it is a fault of the test.
package build

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podGroupLabel is v1alpha1.PodGroupLabel of scheduler-plugins, which the pure cores' tests do not import.
const podGroupLabel = "scheduling.x-k8s.io/pod-group"

// Pod makes a pod of the default scheduler in the namespace "default", with one container that requests cpu; "" for
// none.
func Pod(name, cpu string, options ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID(name), Labels: map[string]string{},
		},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers:    []v1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
	if cpu != "" {
		Request(v1.ResourceCPU, cpu)(pod)
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// Pods makes n pods that are alike, named name-0, name-1 and on.
func Pods(n int, name, cpu string, options ...func(*v1.Pod)) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = Pod(fmt.Sprintf("%s-%d", name, i), cpu, options...)
	}
	return pods
}

// Namespace puts the pod into a namespace.
func Namespace(name string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Namespace = name } }

// Request has the pod's container request so much of a resource.
func Request(name v1.ResourceName, amount string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		resources := &pod.Spec.Containers[0].Resources
		resources.Requests = maps.Clone(resources.Requests)
		if resources.Requests == nil {
			resources.Requests = v1.ResourceList{}
		}
		resources.Requests[name] = resource.MustParse(amount)
	}
}

// Label adds a label.
func Label(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Labels = maps.Clone(pod.Labels)
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[key] = value
	}
}

// App labels the pod as one of a workload.
func App(name string) func(*v1.Pod) { return Label("app", name) }

// Member makes the pod a member of a PodGroup.
func Member(group string) func(*v1.Pod) { return Label(podGroupLabel, group) }

// Bound has the pod bound to a node.
func Bound(node string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.NodeName = node } }

// Selects lets the pod run only on nodes with a label.
func Selects(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

// Scheduler gives the pod to a profile.
func Scheduler(name string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.SchedulerName = name } }

// PriorityClass gives the pod a class, which an API server turns into a priority.
func PriorityClass(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.PriorityClassName = name }
}

// Spread adds a constraint over the zones, which counts the pods of an app.
func Spread(app string, maxSkew int32, action v1.UnsatisfiableConstraintAction) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, OverZones(app, maxSkew, action))
	}
}

// OverZones is a constraint over the zones, which counts the pods of an app.
func OverZones(app string, maxSkew int32, action v1.UnsatisfiableConstraintAction) v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{
		MaxSkew:           maxSkew,
		TopologyKey:       v1.LabelTopologyZone,
		WhenUnsatisfiable: action,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
}

// Node makes a node that is ready, with so many CPUs, 256Gi of memory and room for 110 pods; zone "" for none.
func Node(name, zone, cpu string, options ...func(*v1.Node)) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
	if zone != "" {
		node.Labels[v1.LabelTopologyZone] = zone
	}
	for name, amount := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: "256Gi", v1.ResourcePods: "110"} {
		Capacity(name, amount)(node)
	}
	for _, option := range options {
		option(node)
	}
	return node
}

// Capacity gives the node so much of a resource, all of it allocatable.
func Capacity(name v1.ResourceName, amount string) func(*v1.Node) {
	return func(node *v1.Node) {
		for _, list := range []*v1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
			if *list == nil {
				*list = v1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(amount)
		}
	}
}
