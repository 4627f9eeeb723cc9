package workload

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Names that the objects carry.
const (
	// ServiceNamespace holds the Deployments.
	ServiceNamespace = "services"
	// GangNamespace holds the PodGroups and their StatefulSets.
	GangNamespace = "training"

	// AppLabel and RoleLabel select the pods of one Deployment; AppLabel
	// alone those of one service.
	AppLabel  = "app.kubernetes.io/name"
	RoleLabel = "app.kubernetes.io/component"

	// FitsAnnotation on a PodGroup says whether the nodes were chosen so
	// that it fits.
	FitsAnnotation = "demo.zonewise.dev/fits"

	// GPUResource is an extended resource in whole devices.
	GPUResource corev1.ResourceName = "nvidia.com/gpu"
	// RDMAResource is an extended resource in hundredths of a network card.
	RDMAResource corev1.ResourceName = "rdma.zonewise.dev/percent"

	gpuModelLabel = "nvidia.com/gpu.product"
	region        = "demo"
	image         = "registry.k8s.io/pause:3.10" // never pulled: the nodes are simulated
)

var gpuTaint = corev1.Taint{Key: string(GPUResource), Value: "present", Effect: corev1.TaintEffectNoSchedule}

// list is r as requests or as capacity.
func (r Resources) list() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(r.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(r.MemoryMiB<<20, resource.BinarySI),
	}
	if r.DiskGiB > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(r.DiskGiB<<30, resource.BinarySI)
	}
	if r.GPU > 0 {
		list[GPUResource] = *resource.NewQuantity(r.GPU, resource.DecimalSI)
	}
	if r.RDMAPercent > 0 {
		list[RDMAResource] = *resource.NewQuantity(r.RDMAPercent, resource.DecimalSI)
	}
	return list
}

// Object is the node as it registers: ready, with its whole capacity
// allocatable.
func (n Node) Object() *corev1.Node {
	capacity := n.Capacity.list()
	capacity[corev1.ResourcePods] = *resource.NewQuantity(podsPerNode, resource.DecimalSI)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				corev1.LabelHostname:           n.Name,
				corev1.LabelTopologyZone:       n.Zone,
				corev1.LabelTopologyRegion:     region,
				corev1.LabelInstanceTypeStable: n.Instance,
				corev1.LabelOSStable:           "linux",
				corev1.LabelArchStable:         "amd64",
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
	}
	if n.Capacity.GPU > 0 {
		node.Labels[gpuModelLabel] = n.Model
		node.Spec.Taints = []corev1.Taint{gpuTaint}
	}
	return node
}

// Deployment is the service role as a Deployment: spread over the zones as a
// hard constraint, and at most MaxPerNode replicas on one node.
func (p *Plan) Deployment(s Service) *appsv1.Deployment {
	labels := map[string]string{AppLabel: s.App, RoleLabel: string(s.Role)}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	pod := podSpec(s.Each)
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector:     selector,
		// A drained zone is tainted unschedulable and must stop counting.
		NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}}
	if s.MaxPerNode > 0 {
		// With more domains demanded than there are nodes the global
		// minimum counts as zero, so maxSkew caps the number itself.
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew:           int32(s.MaxPerNode),
			TopologyKey:       corev1.LabelHostname,
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     selector,
			MinDomains:        ptr.To(int32(len(p.Nodes) + 1)),
		})
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ServiceNamespace, Name: s.Name(), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(s.Replicas)),
			Selector: selector,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// PodGroup is the gang's group: all members or none.
func (g Gang) PodGroup() *schedv1alpha1.PodGroup {
	return &schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: GangNamespace, Name: g.Name,
			Annotations: map[string]string{FitsAnnotation: strconv.FormatBool(g.Fits)},
		},
		Spec: schedv1alpha1.PodGroupSpec{MinMember: int32(g.Members)},
	}
}

// StatefulSet runs the gang's members, all at once. It replaces a member that
// is evicted without delay, under the same name, which a Job would not.
func (g Gang) StatefulSet() *appsv1.StatefulSet {
	labels := map[string]string{schedv1alpha1.PodGroupLabel: g.Name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: GangNamespace, Name: g.Name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To(int32(g.Members)),
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(g.Each)},
		},
	}
}

// Probe is a pod that asks for nothing. Placing one costs a scheduling cycle,
// and the ledger is compared with the scheduler's snapshot in such cycles.
func Probe(serial int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: fmt.Sprintf("probe-%d", serial), Labels: map[string]string{AppLabel: "probe"}},
		Spec:       podSpec(Resources{}),
	}
	return pod
}

func podSpec(each Resources) corev1.PodSpec {
	spec := corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		Containers: []corev1.Container{{
			Name:      "main",
			Image:     image,
			Resources: corev1.ResourceRequirements{},
		}},
	}
	if each != (Resources{}) {
		requests := each.list()
		spec.Containers[0].Resources.Requests = requests
		if each.GPU > 0 || each.RDMAPercent > 0 { // extended resources: limit and request are one
			spec.Containers[0].Resources.Limits = corev1.ResourceList{}
			for _, name := range []corev1.ResourceName{GPUResource, RDMAResource} {
				if q, ok := requests[name]; ok {
					spec.Containers[0].Resources.Limits[name] = q
				}
			}
		}
	}
	if each.GPU > 0 {
		spec.Tolerations = []corev1.Toleration{{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists, Effect: gpuTaint.Effect}}
	}
	return spec
}
