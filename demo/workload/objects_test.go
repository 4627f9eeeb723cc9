package workload

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

func TestNodeObject(t *testing.T) {
	got := Node{Name: "node-1", Zone: "zone-a", Shape: Shape{Instance: "t4-2x", Model: "T4", Capacity: Resources{CPU: 104_000, Memory: 1024, GPU: 2, RDMA: 100, Disk: 7680}}}.Object()
	want := corev1.ResourceList{
		"cpu": resource.MustParse("104"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("7680Gi"), "nvidia.com/gpu": resource.MustParse("2"), "rdma.zonewise.dev/percent": resource.MustParse("100"),
	}
	require.Empty(t, cmp.Diff(want, got.Status.Allocatable))
	require.Empty(t, cmp.Diff(want, got.Status.Capacity))
	require.Equal(t, "zone-a", got.Labels[corev1.LabelTopologyZone])
	require.Equal(t, "node-1", got.Labels[corev1.LabelHostname])
	require.Equal(t, []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}}, got.Spec.Taints)
	require.Empty(t, Node{Name: "node-1", Shape: Shape{Capacity: Resources{CPU: 1}}}.Object().Spec.Taints)
}

func TestDeployment(t *testing.T) {
	d := Service{App: "app-3", Role: "hn", Each: Resources{CPU: 8000, Memory: 40 << 10, GPU: 1, RDMA: 25, Disk: 85}, MaxPerNode: 4, Replicas: 5, Domains: 13}.Deployment()
	require.Equal(t, "services/app-3-hn", d.Namespace+"/"+d.Name)
	require.Equal(t, ptr.To[int32](5), d.Spec.Replicas)

	pod := d.Spec.Template.Spec
	selector := &metav1.LabelSelector{MatchLabels: d.Spec.Template.Labels}
	require.Equal(t, selector, d.Spec.Selector)
	require.Empty(t, cmp.Diff([]corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: selector, MatchLabelKeys: []string{"pod-template-hash"}, NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor)},
		// One domain more than there are nodes: maxSkew is then a cap.
		{MaxSkew: 4, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: selector, MinDomains: ptr.To[int32](13)},
	}, pod.TopologySpreadConstraints))
	require.Empty(t, cmp.Diff(corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			"cpu": resource.MustParse("8"), "memory": resource.MustParse("40Gi"), "ephemeral-storage": resource.MustParse("85Gi"),
			"nvidia.com/gpu": resource.MustParse("1"), "rdma.zonewise.dev/percent": resource.MustParse("25"),
		},
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "rdma.zonewise.dev/percent": resource.MustParse("25")},
	}, pod.Containers[0].Resources))
	require.Len(t, pod.Tolerations, 1)

	unlimited := Service{App: DefaultPolicyApp, Role: "cn", Each: Resources{CPU: 1, Memory: 1}, Replicas: 1}.Deployment()
	require.Len(t, unlimited.Spec.Template.Spec.TopologySpreadConstraints, 1)
	require.Nil(t, unlimited.Spec.Template.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy)
	require.Empty(t, unlimited.Spec.Template.Spec.Tolerations)
}

// One service and batch work may be on the shared nodes, and nothing else.
func TestAServiceSharesItsNodesWithBatchWork(t *testing.T) {
	p := NewPlan(0.01, 1)
	shared := p.Nodes[len(p.Nodes)-1].Object()
	require.Equal(t, []corev1.Taint{{Key: "demo.zonewise.dev/shared", Value: "true", Effect: corev1.TaintEffectNoSchedule}}, shared.Spec.Taints)
	for _, spec := range []corev1.PodSpec{p.Shared().Deployment().Spec.Template.Spec, p.Batch().Spec.Template.Spec} {
		require.Equal(t, map[string]string{"demo.zonewise.dev/shared": "true"}, spec.NodeSelector)
		require.Subset(t, shared.Labels, spec.NodeSelector)
		require.Len(t, spec.Tolerations, 1)
		require.True(t, spec.Tolerations[0].ToleratesTaint(klog.Background(), &shared.Spec.Taints[0], false))
	}
}

func TestEveryServiceIsProtectedAndTheOneOnSharedNodesHasItsRoomHeld(t *testing.T) {
	p := NewPlan(0.01, 1)
	selects := func(asked *v1alpha1.ZoneSurvival, set *appsv1.Deployment) bool {
		return slices.ContainsFunc(asked.Spec.Workloads, func(w v1alpha1.SurvivalWorkload) bool {
			selector, err := metav1.LabelSelectorAsSelector(&w.PodSelector)
			require.NoError(t, err)
			return w.Namespace == set.Namespace && selector.Matches(labels.Set(set.Spec.Template.Labels))
		})
	}
	for _, s := range p.Services {
		d := s.Deployment()
		require.Equal(t, s.DefaultPolicy(), !selects(p.Survival(), d), d.Name)
		require.Equal(t, s.DefaultPolicy(), selects(p.DefaultPolicySurvival(), d), d.Name)
		require.Equal(t, s.Shared(), selects(p.Hold(), d), d.Name)
	}
	require.False(t, selects(p.Survival(), p.Batch()))
	require.True(t, selects(p.BatchSurvival(), p.Batch()))
	require.Contains(t, Zones[:2], p.BatchSurvival().Spec.Survive.ZoneNames[0], "one that the demo does not lose")
}

func TestThePolicyHasAShareForEachZone(t *testing.T) {
	p := NewPlan(0.01, 1)
	policy, service := p.Policy(), p.Weighted().Deployment()
	require.Equal(t, service.Spec.Template.Labels, policy.Spec.PodSelector.MatchLabels)
	require.Equal(t, service.Namespace, policy.Namespace)
	for i, zone := range policy.Spec.Zones {
		require.Equal(t, Zones[i], zone.Name)
	}
	require.Len(t, policy.Spec.Zones, 3)
	require.EqualValues(t, 2, *policy.Spec.Zones[0].Weight)
	for _, c := range service.Spec.Template.Spec.TopologySpreadConstraints {
		require.NotEqual(t, corev1.LabelTopologyZone, c.TopologyKey)
	}
}

func TestGangObjects(t *testing.T) {
	g := Gang{Name: "train", Members: 6, Each: Resources{CPU: 1000, Memory: 1, GPU: 2}, Fits: true}
	group, set := g.PodGroup(), g.StatefulSet()
	require.EqualValues(t, 6, group.Spec.MinMember)
	require.Equal(t, group.Namespace, set.Namespace)
	require.Equal(t, "train", set.Spec.Template.Labels["scheduling.x-k8s.io/pod-group"])
	require.Equal(t, ptr.To[int32](6), set.Spec.Replicas)
	require.Len(t, set.Spec.Template.Spec.Tolerations, 1)
	require.Equal(t, set.Spec.Selector.MatchLabels, set.Spec.Template.Labels)
}
