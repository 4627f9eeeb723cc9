package integration

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// podOption changes a pod that newPod makes.
type podOption func(*v1.Pod)

// newPod makes a pod that asks for cpu, to be placed by the default scheduler.
func newPod(name, cpu string, options ...podOption) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name:  "main",
				Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceCPU:    resource.MustParse(cpu),
					v1.ResourceMemory: resource.MustParse("64Mi"),
				}},
			}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// newPods makes n pods that are alike, with names that end in -0, -1 and on.
func newPods(n int, name, cpu string, options ...podOption) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("%s-%d", name, i), cpu, options...)
	}
	return pods
}

// withLabel adds a label.
func withLabel(key, value string) podOption {
	return func(pod *v1.Pod) { pod.Labels[key] = value }
}

// labelled is the selector of the pods of an app: the label tells workloads apart.
func labelled(name string) map[string]string { return map[string]string{"app": name} }

// ofApp makes the pod one of an app that is spread over the zones.
func ofApp(name string, maxSkew int32, action v1.UnsatisfiableConstraintAction) podOption {
	return func(pod *v1.Pod) {
		pod.Labels["app"] = name
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, spreadOverZones(name, maxSkew, action))
	}
}

func spreadOverZones(name string, maxSkew int32, action v1.UnsatisfiableConstraintAction) v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{
		MaxSkew:           maxSkew,
		TopologyKey:       v1.LabelTopologyZone,
		WhenUnsatisfiable: action,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: labelled(name)},
	}
}

// inGroup makes the pod a member of a PodGroup.
func inGroup(name string) podOption {
	return withLabel(schedulingv1alpha1.PodGroupLabel, name)
}

// byScheduler gives the pod to another profile.
func byScheduler(name string) podOption {
	return func(pod *v1.Pod) { pod.Spec.SchedulerName = name }
}

// ofPriority gives the pod a PriorityClass.
func ofPriority(class string) podOption {
	return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
}

// onNode lets the pod run only on a node.
func onNode(name string) podOption {
	return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: name} }
}

// newDeployment makes a Deployment of pods like pod.
func newDeployment(namespace, name string, replicas int32, pod *v1.Pod) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
}

// unschedulable returns what the scheduler last said about a pod that it could not place.
func unschedulable(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func contains(text, part string) bool { return strings.Contains(text, part) }
