// Package clitest builds snapshots for the tests of the packages under cmd/zonewise, and compares their output with
// files.
package clitest

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/build"
)

// Now is when the snapshots are taken.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Cluster builds a snapshot. Its objects are in the namespace shop; see In.
type Cluster struct {
	*snapshot.Snapshot
	namespace string // that of its objects if it is not Namespace
	uids      *int   // how many UIDs were given; nil before the first
}

// Namespace is where the objects are.
const Namespace = "shop"

// New returns a cluster without nodes.
func New() *Cluster {
	return (&Cluster{Snapshot: snapshot.New(Now)}).In(Namespace)
}

// In adds a namespace, and returns the same cluster, to which objects of that namespace are added.
func (c *Cluster) In(namespace string) *Cluster {
	c.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	c.uids = cmp.Or(c.uids, new(int))
	return &Cluster{Snapshot: c.Snapshot, namespace: namespace, uids: c.uids}
}

// Pods returns the pods, which tests may still change.
func (c *Cluster) Pods() []*corev1.Pod { return snapshot.List[*corev1.Pod](c.Snapshot) }

func (c *Cluster) inNamespace() string { return cmp.Or(c.namespace, Namespace) }

func (c *Cluster) uid() types.UID {
	c.uids = cmp.Or(c.uids, new(int))
	*c.uids++
	return types.UID(fmt.Sprintf("uid-%d", *c.uids))
}

// Requests is a list of cpu and memory.
func Requests(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// Node adds a ready node.
func (c *Cluster) Node(name, zone, cpu, memory string, taints ...corev1.Taint) *corev1.Node {
	node := build.Node(name, zone, cpu, build.Capacity(corev1.ResourceMemory, memory))
	node.UID, node.Spec.Taints = c.uid(), taints
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(Now.Add(-time.Hour))
	c.Add(node)
	return node
}

// Deployment adds a Deployment with its ReplicaSet, and returns a function that adds a pod of it on a node, or one
// that waits when the node is empty.
func (c *Cluster) Deployment(name string, replicas int32, cpu, memory string, change func(*corev1.PodTemplateSpec)) func(node string) *corev1.Pod {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: Requests(cpu, memory)}}}},
	}
	if change != nil {
		change(&template)
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: name, UID: c.uid()},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template},
	}
	c.Add(d)
	hashed := *template.DeepCopy()
	hashed.Labels["pod-template-hash"] = "1"
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.inNamespace(), Name: name + "-1", UID: c.uid(),
			Annotations:     map[string]string{"deployment.kubernetes.io/desired-replicas": strconv.Itoa(int(replicas))},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: hashed.Labels}, Template: hashed},
	}
	c.Add(set)
	owner := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	serial := 0
	return func(node string) *corev1.Pod {
		serial++
		pod := c.Pod(fmt.Sprintf("%s-1-%d", name, serial), node, hashed.Spec, hashed.Labels)
		pod.OwnerReferences = []metav1.OwnerReference{owner}
		return pod
	}
}

// Zones is a cluster of zones with one node of 8 CPUs each, named as its zone.
func Zones(names ...string) *Cluster {
	c := New()
	for _, zone := range names {
		c.Node(zone, zone, "8", "32Gi")
	}
	return c
}

// ZonalVolume adds a claim with its volume, which only nodes of one zone reach.
func (c *Cluster) ZonalVolume(claim, zone string) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.inNamespace(), Name: claim, UID: types.UID(claim)}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
	}}}}
	c.Add(volume, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.inNamespace(), Name: claim, UID: types.UID(claim),
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
		},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: claim, StorageClassName: ptr.To("")},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
}

// Claiming is the volume of a claim, for a pod's spec.
func Claiming(claim string) []corev1.Volume {
	return []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
}

// Running adds a Deployment with a pod on each of the nodes, which asks for CPUs and 1Gi of memory.
func (c *Cluster) Running(name, cpu string, change func(*corev1.PodTemplateSpec), nodes ...string) []*corev1.Pod {
	add := c.Deployment(name, int32(len(nodes)), cpu, "1Gi", change) //nolint:gosec // small
	var pods []*corev1.Pod
	for _, node := range nodes {
		pods = append(pods, add(node))
	}
	return pods
}

// InTurn takes the names in turn until there are n.
func InTurn(n int, names ...string) (out []string) {
	for i := range n {
		out = append(out, names[i%len(names)])
	}
	return out
}

// Owned makes an object the controller of a pod.
func Owned(pod *corev1.Pod, apiVersion, kind, name string) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}}
	return pod
}

// Pod adds a pod on a node, ready, or one that has waited for five minutes when the node is empty.
func (c *Cluster) Pod(name, node string, spec corev1.PodSpec, labels map[string]string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: name, UID: c.uid(), Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(Now.Add(-5 * time.Minute))},
		Spec:       *spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	maps.Copy(pod.Labels, labels)
	pod.Spec.NodeName = node
	pod.Spec.SchedulerName = "default-scheduler"
	if node != "" {
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &pod.CreationTimestamp, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	}
	c.Add(pod)
	return pod
}

// Plain is the spec of a pod that asks for cpu and memory.
func Plain(cpu, memory string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: Requests(cpu, memory)}}}}
}

// ZoneSpread is a hard constraint over zones for the pods with the label app.
func ZoneSpread(app string, maxSkew int32) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		TopologyKey: corev1.LabelTopologyZone, MaxSkew: maxSkew, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
}

// Spread gives pods such a constraint, with a maxSkew of 1.
func Spread(app string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{ZoneSpread(app, 1)}
	}
}

// Policy adds a ZoneSpreadPolicy for the pods with the label app.
func (c *Cluster) Policy(app string, change func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: app, UID: c.uid(), Generation: 1},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	if change != nil {
		change(&p.Spec)
	}
	c.Add(p)
	return p
}

// Gang adds a PodGroup.
func (c *Cluster) Gang(name string, minMember int32) *schedv1alpha1.PodGroup {
	group := &schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: name, UID: c.uid()}, Spec: schedv1alpha1.PodGroupSpec{MinMember: minMember},
	}
	c.Add(group)
	return group
}

// Member adds a pod of a Job, which asks for CPUs and 1Gi of memory, to the PodGroup of the Job's name. It waits if the
// node is empty.
func (c *Cluster) Member(group, name, cpu, node string) *corev1.Pod {
	pod := c.Pod(name, node, Plain(cpu, "1Gi"), map[string]string{"app": group, schedv1alpha1.PodGroupLabel: group})
	return Owned(pod, "batch/v1", "Job", group)
}

// Members adds such pods, one on each of the nodes.
func (c *Cluster) Members(group, cpu string, nodes ...string) {
	for i, node := range nodes {
		c.Member(group, fmt.Sprintf("%s-%d", group, i), cpu, node)
	}
}

// Budget adds a PodDisruptionBudget for the existing pods with the label app, with the status that its controller would
// write.
func (c *Cluster) Budget(app string, minAvailable int32) *policyv1.PodDisruptionBudget {
	healthy := int32(0)
	for _, pod := range c.Pods() {
		if pod.Labels["app"] == app && pod.Spec.NodeName != "" {
			healthy++
		}
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: app, UID: c.uid()},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
		Status: policyv1.PodDisruptionBudgetStatus{
			ExpectedPods: healthy, CurrentHealthy: healthy, DesiredHealthy: minAvailable, DisruptionsAllowed: max(0, healthy-minAvailable),
		},
	}
	c.Add(budget)
	return budget
}

// Reservation adds a ZoneReservation for the pods with the label app, with unused slots on nodes.
func (c *Cluster) Reservation(name, app, cpu string, priority int32, unused map[string]int64) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid(), Generation: 1, CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour))},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners:   []v1alpha1.ReservationOwner{{Namespace: c.inNamespace(), PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Slot:     v1alpha1.ReservationSlot{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
			Priority: &priority,
		},
	}
	zones := map[string]*v1alpha1.ReservationZoneStatus{}
	for _, node := range snapshot.List[*corev1.Node](c.Snapshot) {
		n := unused[node.Name]
		if n == 0 {
			continue
		}
		name := node.Labels[corev1.LabelTopologyZone]
		if zones[name] == nil {
			zones[name] = &v1alpha1.ReservationZoneStatus{Name: name}
		}
		z := zones[name]
		z.Desired, z.Held = z.Desired+n, z.Held+n
		z.Nodes = append(z.Nodes, v1alpha1.ReservationNodeStatus{Name: node.Name, Slots: n})
		r.Status.Slots.Desired += n
		r.Status.Slots.Held += n
	}
	for _, name := range []string{"a", "b", "c"} {
		if zones[name] != nil {
			r.Status.Zones = append(r.Status.Zones, *zones[name])
			r.Spec.Zones = append(r.Spec.Zones, v1alpha1.ReservationZone{Name: name, Slots: int32(zones[name].Desired)})
		}
	}
	r.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted},
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllHeld},
	}
	c.Add(r)
	return r
}

// Large returns a cluster of three zones with equal nodes of 32 CPUs, and pods of Deployments of 150 replicas that are
// spread over the zones: every other one by a constraint, every tenth by a policy.
func Large(nodes, pods int) *snapshot.Snapshot {
	c := New()
	for i := range nodes {
		c.Node(fmt.Sprintf("node-%04d", i), string(rune('a'+i%3)), "32", "128Gi")
	}
	const replicas = 150
	for d, placed := 0, 0; placed < pods; d++ {
		name := fmt.Sprintf("app-%04d", d)
		var change func(*corev1.PodTemplateSpec)
		if d%2 == 0 {
			change = Spread(name)
		}
		add := c.Deployment(name, replicas, "500m", "2Gi", change)
		if d%10 == 1 {
			c.Policy(name, nil)
		}
		for range min(replicas, pods-placed) {
			add(fmt.Sprintf("node-%04d", placed%nodes))
			placed++
		}
	}
	return c.Snapshot
}
