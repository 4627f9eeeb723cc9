package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

const (
	driver     = "csi.example.com"
	gpus       = "gpu.example.com"
	noStorage  = ""
	taintKey   = "dedicated"
	taintValue = "batch"
	// elsewhere is another scheduler, see lane.startScheduler.
	elsewhere = "elsewhere"
	// defaultClass is the StorageClass of claims that name none.
	defaultClass = "standard"
	// scratch is the name of pods' own volumes.
	scratch = "scratch"
	// downAfter is when policies give up a zone without nodes.
	downAfter = time.Second
)

// cluster is a random cluster. Its names begin with its own, so that clusters follow one another on one API server.
type cluster struct {
	*rand.Rand
	name  string
	zones []string
	nodes []*v1.Node
	// before is what there is at first, in the order in which it is created; bound pods are among it.
	before []client.Object
	// waiting is the pods that come then.
	waiting []*v1.Pod
	// features says what is in it, for the log.
	features map[string]int
	serial   int
}

func generate(seed uint64) *cluster {
	c := &cluster{Rand: rand.New(rand.NewPCG(seed, 1)), name: fmt.Sprintf("c%d", seed), features: map[string]int{}}
	c.before = append(c.before, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.name}})
	c.makeNodes()
	for range 1 + c.IntN(3) {
		c.workload(true)
	}
	for range 3 + c.IntN(4) {
		c.workload(false)
	}
	return c
}

func (c *cluster) chance(percent int) bool { return c.IntN(100) < percent }

func pick[T any](c *cluster, values ...T) T { return values[c.IntN(len(values))] }

func (c *cluster) id(what string) string {
	c.serial++
	return fmt.Sprintf("%s-%s-%03d", c.name, what, c.serial)
}

func (c *cluster) makeNodes() {
	for i := range 2 + c.IntN(3) {
		c.zones = append(c.zones, fmt.Sprintf("%s-z%d", c.name, i))
	}
	for range 4 + c.IntN(6) {
		name := c.id("node")
		allocatable := v1.ResourceList{
			"cpu": resource.MustParse(pick(c, "2", "4", "8")), "memory": resource.MustParse(pick(c, "8Gi", "16Gi")), "pods": resource.MustParse(pick(c, "6", "110", "110")),
		}
		node := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				v1.LabelHostname: name, v1.LabelTopologyZone: pick(c, c.zones...), "disk": pick(c, "ssd", "hdd"),
			}},
			Status: v1.NodeStatus{Capacity: allocatable, Allocatable: allocatable, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		}
		if c.chance(15) {
			node.Spec.Taints = []v1.Taint{{Key: taintKey, Value: taintValue, Effect: pick(c, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule)}}
		}
		node.Spec.Unschedulable = c.chance(7)
		c.nodes = append(c.nodes, node)
		c.before = append(c.before, node)
		if c.chance(60) {
			c.before = append(c.before, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: driver, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(1 + c.IntN(2)))},
			}}}})
		}
		if c.chance(50) {
			slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
				Driver: gpus, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1},
			}}
			for i := range 1 + c.IntN(2) {
				slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
			}
			c.before = append(c.before, slice)
		}
	}
}

// workload adds a ReplicaSet with its pods, which are on nodes or wait.
func (c *cluster) workload(bound bool) {
	name := c.id("app")
	labels := map[string]string{"app": name}
	n := 1 + c.IntN(5)
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
		Priority: pick(c, ptr.To[int32](0), ptr.To[int32](0), ptr.To[int32](0), ptr.To[int32](100)),
		Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			"cpu": resource.MustParse(pick(c, "100m", "500m", "1", "2")), "memory": resource.MustParse(pick(c, "64Mi", "1Gi", "4Gi")),
		}}}},
	}}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *template.DeepCopy()}, //nolint:gosec // small
	}
	set.Spec.Template.Spec.Priority = nil
	c.before = append(c.before, set)
	if !bound {
		c.constrain(&template, labels, n)
	} else if c.chance(40) {
		c.budget(labels, n)
	}
	if c.chance(15) && template.Labels[schedulingv1alpha1.PodGroupLabel] == "" { // gangs are this scheduler's own
		c.features["another scheduler"]++
		template.Spec.SchedulerName = elsewhere
	}
	for range n {
		pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = c.name, c.id("pod")
		// The owner's UID is filled in when the object is created.
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, Controller: ptr.To(true)}}
		if bound {
			pod.Spec.NodeName = pick(c, c.nodes...).Name
			pod.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &metav1.Time{Time: time.Now().Add(-day - time.Duration(c.serial)*time.Minute).Truncate(time.Second)}}
			c.before = append(c.before, pod)
			continue
		}
		c.claim(pod, &template)
		c.waiting = append(c.waiting, pod)
	}
}

// constrain gives a workload one or two of all the things that a scheduler looks at.
func (c *cluster) constrain(t *v1.PodTemplateSpec, labels map[string]string, n int) {
	selector := &metav1.LabelSelector{MatchLabels: labels}
	all := []struct {
		name  string
		apply func()
	}{
		{"spread over zones", func() {
			t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
				TopologyKey: v1.LabelTopologyZone, MaxSkew: int32(1 + c.IntN(2)), LabelSelector: selector, //nolint:gosec // small
				WhenUnsatisfiable: pick(c, v1.DoNotSchedule, v1.DoNotSchedule, v1.ScheduleAnyway),
				NodeTaintsPolicy:  pick(c, nil, ptr.To(v1.NodeInclusionPolicyHonor)),
			})
		}},
		{"spread over hosts", func() {
			t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
				TopologyKey: v1.LabelHostname, MaxSkew: 1, LabelSelector: selector, WhenUnsatisfiable: v1.DoNotSchedule, MinDomains: pick(c, nil, ptr.To[int32](4)),
			})
		}},
		{"node selector", func() { t.Spec.NodeSelector = map[string]string{"disk": pick(c, "ssd", "hdd", "ssd", "tape")} }},
		{"node affinity", func() {
			c.affinity(t).NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{pick(c, c.zones...), pick(c, c.zones...)}}},
			}}}}
		}},
		{"toleration", func() {
			t.Spec.Tolerations = []v1.Toleration{{Key: taintKey, Operator: v1.TolerationOpExists}}
		}},
		{"affinity", func() {
			c.affinity(t).PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: v1.LabelTopologyZone, LabelSelector: selector}}}
		}},
		{"anti-affinity", func() {
			key := pick(c, v1.LabelHostname, v1.LabelTopologyZone)
			c.affinity(t).PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: key, LabelSelector: selector}}}
		}},
		{"host port", func() {
			t.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: pick(c, int32(8080), int32(8081))}}
		}},
		{"volume in a zone", func() { t.Spec.Volumes = append(t.Spec.Volumes, v1.Volume{Name: "zonal"}) }},
		{"volume that is attached", func() { t.Spec.Volumes = append(t.Spec.Volumes, v1.Volume{Name: "attached"}) }},
		{"volume of its own", func() {
			t.Spec.Volumes = append(t.Spec.Volumes, v1.Volume{Name: scratch, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
				VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
					AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
				}},
			}}})
		}},
		{"device", func() { t.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} }},
		{"priority", func() { t.Spec.Priority = ptr.To[int32](1000) }},
		{"gang", func() { c.gang(t, n) }},
		{"policy", func() { c.policy(labels, n) }},
		{"reservation", func() { c.reservation(labels) }},
	}
	c.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, chosen := range all[:1+c.IntN(2)] {
		if slices.Contains(strings.Split(*without, ","), chosen.name) {
			continue
		}
		c.features[chosen.name]++
		chosen.apply()
	}
}

func (c *cluster) affinity(t *v1.PodTemplateSpec) *v1.Affinity {
	if t.Spec.Affinity == nil {
		t.Spec.Affinity = &v1.Affinity{}
	}
	return t.Spec.Affinity
}

// claim makes the volumes and claims that the template of a pod only names.
func (c *cluster) claim(pod *v1.Pod, t *v1.PodTemplateSpec) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral != nil {
			continue // its claim comes with the pod
		}
		name := c.id(v.Name)
		storage := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
			Capacity: storage, AccessModes: modes, ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.name, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
		}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
		if v.Name == "zonal" {
			pv.Spec.CSI.Driver = "zonal.example.com"
			pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{pick(c, c.zones...)}}},
			}}}}
		}
		c.before = append(c.before, pv, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: modes, VolumeName: name, StorageClassName: ptr.To(noStorage), Resources: v1.VolumeResourceRequirements{Requests: storage},
			},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		})
		v.VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	for i := range t.Spec.ResourceClaims {
		name := c.id("claim")
		c.before = append(c.before, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: name}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: gpus}}}},
		}})
		pod.Spec.ResourceClaims[i].ResourceClaimName = &name
	}
}

func (c *cluster) gang(t *v1.PodTemplateSpec, n int) {
	name := c.id("gang")
	t.Labels = map[string]string{"app": t.Labels["app"], schedulingv1alpha1.PodGroupLabel: name}
	var annotations map[string]string
	if c.chance(40) {
		c.features["packed gang"]++
		annotations = map[string]string{"zonewise.dev/required-topology": v1.LabelTopologyZone}
	}
	c.before = append(c.before, &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: name, Annotations: annotations}, Spec: schedulingv1alpha1.PodGroupSpec{MinMember: int32(max(1, n-c.IntN(2)))}, //nolint:gosec // small
	})
}

// budget gives a workload a PodDisruptionBudget that allows all disruptions or none, however many of its pods run: no
// controller counts them.
func (c *cluster) budget(labels map[string]string, n int) {
	c.features["budget"]++
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: c.id("budget")}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, MinAvailable: pick(c, ptr.To(intstr.FromString("0%")), ptr.To(intstr.FromInt32(1000))),
	}}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: int32(n), ExpectedPods: int32(n), DesiredHealthy: b.Spec.MinAvailable.IntVal} //nolint:gosec // small
	b.Status.DisruptionsAllowed = max(0, b.Status.CurrentHealthy-b.Status.DesiredHealthy)
	c.before = append(c.before, b)
}

func (c *cluster) policy(labels map[string]string, n int) {
	p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: c.id("policy")}, Spec: v1alpha1.ZoneSpreadPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: labels},
	}}
	// A zone that is full shows by attempts over time, which are not the same ones.
	p.Spec.UnavailableZones.DownAfter = &metav1.Duration{Duration: downAfter}
	p.Spec.UnavailableZones.FullAfter = &metav1.Duration{Duration: time.Hour}
	for _, zone := range c.zones {
		z := v1alpha1.ZoneSpreadZone{Name: zone, Weight: ptr.To(int32(1 + c.IntN(3)))} //nolint:gosec // small
		if c.chance(30) {
			z.MaxPods = ptr.To(int32(1 + c.IntN(n))) //nolint:gosec // small
		}
		p.Spec.Zones = append(p.Spec.Zones, z)
	}
	if c.chance(30) {
		p.Spec.MaxPerZone = ptr.To(intstr.FromString(pick(c, "40%", "60%")))
	}
	p.Spec.QuorumSafe = c.chance(20)
	c.before = append(c.before, p)
}

func (c *cluster) reservation(labels map[string]string) {
	r := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: c.id("reservation")}, Spec: v1alpha1.ZoneReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{Namespace: c.name, PodSelector: metav1.LabelSelector{MatchLabels: labels}}},
		Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{"cpu": resource.MustParse(pick(c, "500m", "1")), "memory": resource.MustParse("1Gi")}},
		Mode:   pick(c, v1alpha1.ModeHeadroom, v1alpha1.ModeGuarantee),
		// No pod is above it: whether a slot that was lost is still an owner's depends on how soon the loss is seen.
		Priority: ptr.To[int32](1000),
	}}
	for _, zone := range c.zones {
		if c.chance(60) {
			r.Spec.Zones = append(r.Spec.Zones, v1alpha1.ReservationZone{Name: zone, Slots: int32(1 + c.IntN(2))}) //nolint:gosec // small
		}
	}
	if len(r.Spec.Zones) > 0 {
		c.before = append(c.before, r)
	}
}
