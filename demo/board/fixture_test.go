package board

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// world builds the objects of a small cluster.
type world struct {
	Evidence
	serial int
}

func newWorld() *world {
	return &world{Evidence: Evidence{AppLabel: "app", FitsAnnotation: "fits", Version: "v1.37.1"}}
}

// node adds a node of four cores, 8 GiB and ten pods.
func (w *world) node(name, zone string, change ...func(*corev1.Node)) *world {
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy()},
	}
	for _, c := range change {
		c(&n)
	}
	w.Nodes = append(w.Nodes, n)
	return w
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

// deployment adds one that is spread over zones as a hard constraint.
func (w *world) deployment(name, app string, replicas int32, change ...func(*appsv1.Deployment)) *world {
	labels := map[string]string{"deployment": name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	d := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
						LabelSelector: selector, NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
					}},
				},
			},
		},
	}
	for _, c := range change {
		c(&d)
	}
	w.Deployments = append(w.Deployments, d)
	return w
}

// atMost adds the constraint that caps the replicas on one node.
func atMost(n int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: n, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: d.Spec.Selector, MinDomains: ptr.To[int32](1000),
		})
	}
}

// replicas adds pods of the Deployment added last, one for each node named; ""
// is a pod that waits.
func (w *world) replicas(nodes ...string) *world {
	d := w.Deployments[len(w.Deployments)-1]
	for _, node := range nodes {
		w.pod(d.Namespace, d.Spec.Template.Labels, d.Spec.Template.Spec, node)
	}
	return w
}

// gang adds a PodGroup and a member for each node named; "" is a member that
// waits, "!node" one that waits with a nomination.
func (w *world) gang(name string, minMember int32, fits string, nodes ...string) *world {
	w.PodGroups = append(w.PodGroups, schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "train", Name: name, Annotations: map[string]string{"fits": fits}},
		Spec:       schedv1alpha1.PodGroupSpec{MinMember: minMember},
	})
	for _, node := range nodes {
		w.pod("train", map[string]string{schedv1alpha1.PodGroupLabel: name}, corev1.PodSpec{}, node)
	}
	return w
}

func (w *world) pod(namespace string, labels map[string]string, spec corev1.PodSpec, node string) *world {
	w.serial++
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("p%d", w.serial), UID: types.UID(fmt.Sprint(w.serial)), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Controller: ptr.To(true)}},
		},
		Spec: *spec.DeepCopy(),
	}
	if nominated, ok := strings.CutPrefix(node, "!"); ok {
		p.Status.NominatedNodeName = nominated
	} else {
		p.Spec.NodeName = node
	}
	if p.Spec.NodeName == "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: none."}}
	}
	w.Pods = append(w.Pods, p)
	return w
}

// last changes the pod added last.
func (w *world) last(change func(*corev1.Pod)) *world {
	change(&w.Pods[len(w.Pods)-1])
	return w
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// honest makes the metrics say what the objects say.
func (w *world) honest() *world {
	bound := 0
	for i := range w.Pods {
		if w.Pods[i].Spec.NodeName != "" && !finished(&w.Pods[i]) {
			bound++
		}
	}
	w.Metrics = Metrics{Pods: float64(bound), Nodes: float64(len(w.Nodes)), Checks: 3}
	return w
}

func (w *world) build() *Board { return Build(w.Evidence) }
