package integration

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/test/build"
)

const hard = v1.DoNotSchedule

// podOption changes a pod that newPod makes.
type podOption = func(*v1.Pod)

// newPod makes a pod that asks for cpu and 64Mi, to be placed by the default scheduler; the world puts it into its
// namespace.
func newPod(name, cpu string, options ...podOption) *v1.Pod {
	return build.Pod(name, cpu, append([]podOption{build.Namespace(""), build.Request(v1.ResourceMemory, "64Mi")}, options...)...)
}

// newPods makes n pods that are alike, with names that end in -0, -1 and on.
func newPods(n int, name, cpu string, options ...podOption) []*v1.Pod {
	return build.Pods(n, name, cpu, append([]podOption{build.Namespace(""), build.Request(v1.ResourceMemory, "64Mi")}, options...)...)
}

// labelled is the selector of the pods of an app: the label tells workloads apart.
func labelled(name string) map[string]string { return map[string]string{"app": name} }

// ofApp makes the pod one of an app that is spread over the zones.
func ofApp(name string, maxSkew int32, action v1.UnsatisfiableConstraintAction) podOption {
	return func(pod *v1.Pod) {
		build.App(name)(pod)
		build.Spread(name, maxSkew, action)(pod)
	}
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
