package workload

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
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

	// BatchName is that of the Deployment of the batch workers, and the value of their AppLabel.
	BatchName = "batch-workers"
	// BatchNamespace is its namespace.
	BatchNamespace = "batch"
	// ReservationName is that of the ZoneReservation.
	ReservationName = "failover"

	// sharedLabel is the label and the taint of the nodes for the reserved service and batch work.
	sharedLabel = "demo.zonewise.dev/shared"
	// rolloutAnnotation in a pod template changes with each rollout.
	rolloutAnnotation = "demo.zonewise.dev/release"

	// GPUResource is an extended resource in whole devices.
	GPUResource corev1.ResourceName = "nvidia.com/gpu"
	// RDMAResource is an extended resource in hundredths of a network card.
	RDMAResource corev1.ResourceName = "rdma.zonewise.dev/percent"

	gpuModelLabel = "nvidia.com/gpu.product"
	region        = "demo"
	image         = "registry.k8s.io/pause:3.10" // never pulled: the nodes are simulated
)

// worker is what a batch worker requests. The traces have none; this one is made up.
var worker = Resources{MilliCPU: 8000, MemoryMiB: 32 * 1024}

var sharedTaint = corev1.Taint{Key: sharedLabel, Value: "true", Effect: corev1.TaintEffectNoSchedule}

var gpuTaint = corev1.Taint{Key: string(GPUResource), Value: "present", Effect: corev1.TaintEffectNoSchedule}

// list returns r as requests or as capacity.
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
	if n.Shared {
		node.Labels[sharedLabel] = sharedTaint.Value
		node.Spec.Taints = []corev1.Taint{sharedTaint}
	}
	return node
}

// Deployment returns the service role as a Deployment, spread over the zones by a hard constraint unless a policy does that,
// with at most MaxPerNode replicas on one node.
func (p *Plan) Deployment(s Service) *appsv1.Deployment {
	labels := s.labels()
	pod := podSpec(s.Each)
	if s.Part != Weighted {
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew:           1,
			TopologyKey:       corev1.LabelTopologyZone,
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: labels},
			// Count each revision separately, so that a rollout is spread well whatever it replaces.
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
			// The nodes of a lost zone are tainted and must not count.
			NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
		})
	}
	if s.MaxPerNode > 0 {
		// With minDomains above the number of nodes the global minimum is zero, so maxSkew limits the number of replicas on a node.
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew:           int32(s.MaxPerNode),
			TopologyKey:       corev1.LabelHostname,
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: labels},
			MinDomains:        ptr.To(int32(len(p.Nodes) + 1)),
		})
	}
	if s.Part == Reserved {
		onShared(&pod)
	}
	return deployment(ServiceNamespace, s.Name(), s.Replicas, labels, pod)
}

func (s Service) labels() map[string]string {
	return map[string]string{AppLabel: s.App, RoleLabel: string(s.Role)}
}

// Batch returns the batch workers: as many as fill what is not held, and some more.
func (p *Plan) Batch() *appsv1.Deployment {
	pod := podSpec(worker)
	onShared(&pod)
	return deployment(BatchNamespace, BatchName, p.Workers, map[string]string{AppLabel: BatchName}, pod)
}

func deployment(namespace, name string, replicas int, labels map[string]string, pod corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// RolloutPatch is a strategic merge patch for a Deployment that replaces all of its pods.
func RolloutPatch(release string) []byte {
	return fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, rolloutAnnotation, release)
}

// onShared restricts a pod to the shared nodes.
func onShared(pod *corev1.PodSpec) {
	pod.NodeSelector = map[string]string{sharedLabel: sharedTaint.Value}
	pod.Tolerations = append(pod.Tolerations, sharedToleration)
}

var sharedToleration = corev1.Toleration{Key: sharedTaint.Key, Operator: corev1.TolerationOpEqual, Value: sharedTaint.Value, Effect: sharedTaint.Effect}

// Policy gives the first zone twice the share of each of the others. A zone is closed after a few seconds,
// since the default of two minutes is long to watch.
func (p *Plan) Policy() *v1alpha1.ZoneSpreadPolicy {
	s := p.The(Weighted)
	policy := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: ServiceNamespace, Name: s.Name()},
		Spec: v1alpha1.ZoneSpreadPolicySpec{
			PodSelector:      metav1.LabelSelector{MatchLabels: s.labels()},
			UnavailableZones: v1alpha1.UnavailableZones{DownAfter: &metav1.Duration{Duration: closedAfter}},
		},
	}
	for i, zone := range p.Zones {
		weight := int32(1)
		if i == 0 {
			weight = 2
		}
		policy.Spec.Zones = append(policy.Spec.Zones, v1alpha1.ZoneSpreadZone{Name: zone, Weight: ptr.To(weight)})
	}
	return policy
}

// closedAfter is the policy's downAfter.
const closedAfter = 5 * time.Second

// Reservation holds room for the reserved service in each zone. The slots of a lost zone are not held elsewhere, where batch
// work runs.
func (p *Plan) Reservation() *v1alpha1.ZoneReservation {
	s := p.The(Reserved)
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: ReservationName},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: ServiceNamespace, PodSelector: metav1.LabelSelector{MatchLabels: s.labels()}}},
			Slot: v1alpha1.ReservationSlot{
				Requests: s.Each.list(), NodeSelector: map[string]string{sharedLabel: sharedTaint.Value},
				// Admission gives every pod the last two. Without them batch work could enter a returning zone a moment before
				// slots are held there.
				Tolerations: []corev1.Toleration{
					sharedToleration,
					{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
					{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				},
			},
			Mode:       v1alpha1.ModeGuarantee,
			OnZoneLoss: v1alpha1.ZoneLossKeep,
		},
	}
	for _, zone := range p.Zones {
		r.Spec.Zones = append(r.Spec.Zones, v1alpha1.ReservationZone{Name: zone, Slots: int32(p.SlotsPerZone)})
	}
	return r
}

// PodGroup returns the gang's PodGroup: all members or none.
func (g Gang) PodGroup() *schedv1alpha1.PodGroup {
	return &schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: GangNamespace, Name: g.Name},
		Spec:       schedv1alpha1.PodGroupSpec{MinMember: int32(g.Members)},
	}
}

// StatefulSet runs the gang's members, all at once. Unlike a Job, it
// replaces an evicted member at once, under the same name.
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

// Probe returns a pod without requests. Placing it takes a scheduling cycle, in which the ledger is compared with the
// scheduler's snapshot.
func Probe(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name, Labels: map[string]string{AppLabel: "probe"}},
		Spec:       podSpec(Resources{}),
	}
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
		if each.GPU > 0 || each.RDMAPercent > 0 { // limits and requests of extended resources must be equal
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
