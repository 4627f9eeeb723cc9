package worlds

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/build"
)

const (
	poolLabel     = "worlds.zonewise.dev/pool"
	workloadLabel = "worlds.zonewise.dev/workload"
	revisionLabel = "worlds.zonewise.dev/revision"
)

func (n Node) build() *v1.Node {
	return build.Node(n.Name, n.Zone, fmt.Sprint(n.CPU), func(node *v1.Node) {
		node.Status.Conditions[0].LastTransitionTime = metav1.Now()
		if n.Pool != "" {
			node.Labels[poolLabel] = n.Pool
			node.Spec.Taints = []v1.Taint{{Key: poolLabel, Value: n.Pool, Effect: v1.TaintEffectNoSchedule}}
		}
	})
}

func cpu(n int) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

func (r Reservation) build() *v1alpha1.ZoneReservation {
	spec := v1alpha1.ZoneReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{
			Namespace: metav1.NamespaceDefault, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": r.App}},
		}},
		Slot: v1alpha1.ReservationSlot{Requests: cpu(r.CPU)}, Mode: v1alpha1.ModeHeadroom, OwnerPolicy: v1alpha1.OwnerPreferred, Priority: &r.Priority,
	}
	if r.Guarantee {
		spec.Mode = v1alpha1.ModeGuarantee
	}
	if r.Required {
		spec.OwnerPolicy = v1alpha1.OwnerRequired
	}
	if r.SlotsPerNode > 0 {
		spec.SlotsPerNode = ptr.To(int32(r.SlotsPerNode))
	}
	for _, zone := range r.Zones {
		spec.Zones = append(spec.Zones, v1alpha1.ReservationZone{Name: zone, Slots: int32(r.Slots)})
	}
	if len(r.Zones) == 0 {
		spec.Slots = ptr.To(int32(r.Slots))
	}
	return &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: types.UID("uid-" + r.Name)}, Spec: spec}
}

func (policy Policy) build() *v1alpha1.ZoneSpreadPolicy {
	spec := v1alpha1.ZoneSpreadPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": policy.App}},
		TopologyKey: v1alpha1.DefaultTopologyKey, MaxSkew: int32(policy.MaxSkew), QuorumSafe: policy.QuorumSafe,
		Unit: v1alpha1.UnitPod,
	}
	if policy.Gangs {
		spec.Unit = v1alpha1.UnitPodGroup
		spec.Replicas = ptr.To(intstr.FromString("Matching"))
	}
	if policy.MinZones > 0 {
		spec.MinZones = ptr.To(int32(policy.MinZones))
	}
	if policy.MaxPerZone != "" {
		spec.MaxPerZone = ptr.To(intstr.Parse(policy.MaxPerZone))
	}
	if policy.Soft {
		spec.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
	}
	for _, zone := range slices.Sorted(maps.Keys(policy.Weights)) {
		spec.Zones = append(spec.Zones, v1alpha1.ZoneSpreadZone{Name: zone, Weight: ptr.To(int32(policy.Weights[zone]))})
	}
	return &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: policy.Name}, Spec: spec}
}

// app returns the value of the label by which reservations and policies select the workload's pods.
func (w Workload) app() string {
	if w.App != "" {
		return w.App
	}
	return w.Name
}

func (w Workload) gang() bool { return w.Kind == Gang || w.Kind == NativeGang }

// quorum is how many members of a gang bind together.
func (w *workload) quorum() int {
	if w.MinMember > 0 {
		return w.MinMember
	}
	return w.started
}

// podName returns the name of a pod that has a number of its own.
func (w *workload) podName(i int) string { return numbered(w.Name, i) }

func numbered(workload string, i int) string { return fmt.Sprintf("%s-%d", workload, i) }

// pod makes a pod of the workload.
func (w *workload) pod(name string) *v1.Pod {
	pod := build.Pod(name, fmt.Sprint(w.CPU), build.App(w.app()), build.Label(workloadLabel, w.Name), func(pod *v1.Pod) {
		pod.Labels[revisionLabel] = fmt.Sprint(w.revision)
		pod.Spec.Priority = &w.Priority
		if w.NeverPreempts {
			pod.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
		}
		if w.Pool != "" {
			pod.Spec.NodeSelector = map[string]string{poolLabel: w.Pool}
			pod.Spec.Tolerations = []v1.Toleration{{Key: poolLabel, Operator: v1.TolerationOpEqual, Value: w.Pool}}
		}
	})
	if w.Volume != "" {
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: w.Name},
		}}}
	}
	w.askForDevice(pod)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.app()}}
	switch w.Spread {
	case OverZones:
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{build.OverZones(w.app(), 1, v1.DoNotSchedule)}
	case OverZonesIfFree:
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{build.OverZones(w.app(), 1, v1.ScheduleAnyway)}
	case OnePerNode:
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: v1.LabelHostname, LabelSelector: selector}},
		}}
	}
	switch w.Kind {
	case Gang:
		build.Member(w.Name)(pod)
	case NativeGang:
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &w.Name}
	case Deployment:
		pod.Labels[v1alpha1.DefaultPodTemplateHash] = fmt.Sprint(w.revision)
	}
	if owner := w.owner(); owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return pod
}

// claim makes the claim of the workload's pods, and its volume, nil if there is none: all nodes of a zone, or a node by
// its host name, may use it.
func (w *workload) claim() (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.Name, UID: types.UID("claim-" + w.Name)},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: ptr.To(""), Resources: v1.VolumeResourceRequirements{Requests: size},
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
	if w.Volume == Unprovisioned {
		return claim, nil
	}
	anyOf := func(label string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{w.Volume}}}}
	}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, UID: types.UID("volume-" + w.Name)},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "worlds.zonewise.dev", VolumeHandle: w.Name}},
			ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{anyOf(v1.LabelTopologyZone), anyOf(v1.LabelHostname)},
			}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
	claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, v1.ClaimBound
	return claim, volume
}

// podGroup makes the PodGroup of a gang of scheduling.x-k8s.io.
func (w *workload) podGroup() *schedulingv1alpha1.PodGroup {
	group := &schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.Name, Annotations: w.packing()}}
	group.Spec.MinMember = int32(w.quorum())
	if w.Timeout > 0 {
		group.Spec.ScheduleTimeoutSeconds = ptr.To(int32(w.Timeout.Seconds()))
	}
	if w.MinResources {
		group.Spec.MinResources = cpu(w.CPU * w.quorum())
	}
	return group
}

// nativeGroup makes the PodGroup of a gang of scheduling.k8s.io.
func (w *workload) nativeGroup() *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.Name, UID: types.UID("uid-" + w.Name), Annotations: w.packing()},
		Spec: schedulingv1beta1.PodGroupSpec{
			Priority: &w.Priority,
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(w.quorum())},
			},
		},
	}
}

func (w *workload) packing() map[string]string {
	switch w.Packing {
	case RequiredZone:
		return map[string]string{podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone}
	case PreferredZone:
		return map[string]string{podgroup.PreferredTopologyAnnotation: v1.LabelTopologyZone}
	}
	return nil
}
