package survival_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// protecting is a ZoneSurvival for the pods with these labels app, and the loss of any zone.
func protecting(apps ...string) *v1alpha1.ZoneSurvival {
	s := &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services", Generation: 3}}
	for _, app := range apps {
		s.Spec.Workloads = append(s.Spec.Workloads, v1alpha1.SurvivalWorkload{
			Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		})
	}
	s.Spec.Survive.Zones = ptr.To[int32](1)
	return s
}

// owned adds a pod of the app web on node b, with a controller of its name.
func owned(c *clitest.Cluster, name, apiVersion, kind string) {
	clitest.Owned(c.Pod(name, "b", clitest.Plain("1", "1Gi"), map[string]string{"app": "web"}), apiVersion, kind, name)
}

func priority(value int32) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) { t.Spec.Priority = &value }
}

func certify(t *testing.T, c *clitest.Cluster, asked *v1alpha1.ZoneSurvival, options survival.Options) v1alpha1.ZoneSurvivalStatus {
	t.Helper()
	options.Sim.Now = clitest.Now
	objects := c.Objects()
	before, err := json.Marshal(objects)
	require.NoError(t, err)
	out, err := survival.Certify(t.Context(), objects, []*v1alpha1.ZoneSurvival{asked}, options)
	require.NoError(t, err)
	after, err := json.Marshal(objects)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the copies share the objects of the cluster, and change none")
	require.Len(t, out, 1)
	require.Equal(t, int64(3), out[0].ObservedGeneration)
	require.Equal(t, clitest.Now, out[0].ComputedAt.Time)
	return out[0]
}

// TestCertify has a small cluster for each reason to survive or not.
func TestCertify(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		asked   func(s *v1alpha1.ZoneSurvival)
		missing []string
		// want is the condition; waiting is in which losses how many protected pods wait, of those that displace any.
		status  metav1.ConditionStatus
		reason  string
		message string
		waiting map[string]int64
	}{
		{
			name:    "there is room in the other zones",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a", "b", "c") },
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced,
			message: "without any one of the zones a, b, c, all 4 pods run again; at most 2 are displaced, without zone a",
			waiting: map[string]int64{"a": 0, "b": 0, "c": 0},
		},
		{
			name:    "there is none",
			cluster: func(c *clitest.Cluster) { c.Running("web", "4", nil, "a", "b", "b", "c", "c") },
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait,
			message: "without zone a, 1 of 1 displaced pods would wait, first shop/web-1-1: 0/2 nodes are available: 2 Insufficient cpu",
			waiting: map[string]int64{"a": 1, "b": 1, "c": 1},
		},
		{
			name: "batch work of a lower priority gives way",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "4", priority(100), "a", "b", "c")
				c.Running("batch", "4", nil, "a", "b", "c")
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0, "b": 0, "c": 0},
		},
		{
			name: "batch work of the same priority does not",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "4", nil, "a", "b", "c")
				c.Running("batch", "4", nil, "a", "b", "c")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1, "b": 1, "c": 1},
		},
		{
			name: "a pod in another zone is evicted for one that is not protected",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "8", nil, "b")
				c.Running("other", "8", priority(100), "a", "c")
			},
			asked:  func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
			message: "without zone a, 1 of 1 displaced pods would wait, first shop/web-1-1: ",
		},
		{
			name: "a pod of a lower priority is there first, and none is evicted",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "4", func(t *v1.PodTemplateSpec) {
					t.Spec.Priority, t.Spec.PreemptionPolicy = ptr.To[int32](100), ptr.To(v1.PreemptNever)
				}, "a")
				c.Running("other", "4", nil, "a", "b", "c", "c")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
		},
		{
			name: "pods that are not protected take the room first",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "4", nil, "a")
				c.Running("other", "4", nil, "a", "b", "c", "c")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
		},
		{
			name: "small pods scatter the room for a large one",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "6", nil, "a")
				c.Running("api", "1", nil, "a", "a")
				c.Running("other", "1500m", nil, "b", "c")
			},
			asked: func(s *v1alpha1.ZoneSurvival) {
				*s = *protecting("web", "api")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
			message: "without zone a, 1 of 3 displaced pods would wait, first shop/web-1-1: 0/2 nodes are available: 2 Insufficient cpu",
		},
		{
			name: "a volume stays in the lost zone",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(p *v1.PodTemplateSpec) { p.Spec.Volumes = clitest.Claiming("data") }, "a")
				c.ZonalVolume("data", "a")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
			message: "without zone a, 1 of 1 displaced pods would wait, first shop/web-1-1: 0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity",
		},
		{
			name: "a pod without a controller is lost",
			cluster: func(c *clitest.Cluster) {
				c.Pod("bare", "b", clitest.Plain("1", "1Gi"), map[string]string{"app": "web"})
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"b": 1},
			message: "without zone b, 1 of 1 displaced pods would wait, first shop/bare: no controller replaces it",
		},
		{
			name:    "a controller that the caller knows",
			cluster: func(c *clitest.Cluster) { owned(c, "web", "ray.io/v1", "RayCluster") },
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"b": 0},
			message: "without any one of the zones a, b, c, all 1 pods run again; at most 1 are displaced, without zone b; it is taken for granted that RayCluster.ray.io replace their pods",
		},
		{
			name:    "a StatefulSet's pod waits for the end of its node",
			cluster: func(c *clitest.Cluster) { owned(c, "web", "apps/v1", "StatefulSet") },
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"b": 0},
			message: "without any one of the zones a, b, c, all 1 pods run again; at most 1 are displaced, without zone b; those of StatefulSets once the lost nodes are deleted",
		},
		{
			name: "a pod of a DaemonSet belongs to its node",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a")
				owned(c, "agent", "apps/v1", "DaemonSet")
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0},
			message: "without any one of the zones a, b, c, all 1 pods run again; at most 1 are displaced, without zone a",
		},
		{
			name: "a constraint counts the nodes of the lost zone while they exist",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", clitest.Spread("web"), "a", "a", "b", "b", "c", "c")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 2, "b": 2, "c": 2},
			message: "while the nodes of zone a still exist, 2 of 2 displaced pods would wait, first shop/web-1-1: 0/3 nodes are available: " +
				"1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints",
		},
		{
			name: "a constraint that honors taints",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(p *v1.PodTemplateSpec) {
					constraint := clitest.ZoneSpread("web", 1)
					constraint.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor)
					p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
				}, "a", "a", "b", "b", "c", "c")
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0, "b": 0, "c": 0},
		},
		{
			name: "pods that are to be in one zone wait for the end of those that terminate in another",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(p *v1.PodTemplateSpec) {
					p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
						TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					}}}}
				}, "a", "a")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 2},
			message: "while the nodes of zone a still exist, 2 of 2 displaced pods would wait, first shop/web-1-1: ",
		},
		{
			name: "a pod that tolerates the taint stays on its dead node",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(p *v1.PodTemplateSpec) {
					p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
				}, "a")
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
			message: "while the nodes of zone a still exist, 1 of 1 displaced pods would wait, first shop/web-1-1: it tolerates the taint " +
				"node.kubernetes.io/unreachable and is on node a, which does not run it; once the nodes are deleted, all run again",
		},
		{
			name: "a zone is down already",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "3", nil, "a", "b", "b")
				snapshot.List[*v1.Node](c.Snapshot)[1].Status.Conditions[0].Status = v1.ConditionUnknown
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1, "b": 0, "c": 1},
			message: "without zone a, 1 of 3 displaced pods would wait, first shop/web-1-3: ",
		},
		{
			name: "a pod that waits evicts a protected pod before any loss",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "5", nil, "a")
				c.Running("api", "1", priority(200), "b", "c")
				c.Running("other", "6", priority(200), "b", "c")
				c.Running("urgent", "8", priority(100), "")
			},
			asked:  func(s *v1alpha1.ZoneSurvival) { *s = *protecting("web", "api") },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1, "b": 1, "c": 1},
		},
		{
			name: "a pod that waits already breaks nothing",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a")
				c.Running("api", "16", nil, "")
			},
			asked:  func(s *v1alpha1.ZoneSurvival) { *s = *protecting("web", "api") },
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0},
		},
		{
			name: "other pods that wait break nothing",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a")
				c.Running("other", "16", nil, "")
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0},
		},
		{
			name:    "only the named zones are lost",
			cluster: func(c *clitest.Cluster) { c.Running("web", "4", nil, "a", "a", "b", "c") },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"c", "b"}}
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced,
			message: "without any one of the zones b, c, all 4 pods run again; at most 1 are displaced, without zone c",
			waiting: map[string]int64{"b": 0, "c": 0},
		},
		{
			name:    "a named zone has no node",
			cluster: func(c *clitest.Cluster) { c.Running("web", "1", nil, "a") },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a", "z"}}
			},
			status: metav1.ConditionUnknown, reason: v1alpha1.ReasonNoZones, message: "spec.survive.zoneNames: no node is in z", waiting: map[string]int64{"a": 0},
		},
		{
			name:    "no pod runs",
			cluster: func(c *clitest.Cluster) { c.Running("web", "16", nil, "") },
			status:  metav1.ConditionUnknown, reason: v1alpha1.ReasonNoPods, message: "spec.workloads select no pod that runs; 1 wait",
		},
		{
			name: "another scheduler has to place the pod",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a")
				c.Pods()[0].Spec.SchedulerName = "mine"
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllPlaced, waiting: map[string]int64{"a": 0},
			message: "at most 1 are displaced, without zone a; those of mine are placed as kube-scheduler would",
		},
		{
			name: "pods of another scheduler take the room",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "8", nil, "a")
				c.Running("full", "8", nil, "b")
				c.Running("batch", "8", nil, "c")
				c.Node("a2", "a", "8", "32Gi")
				c.Node("b2", "b", "8", "32Gi").Spec.Unschedulable = true
				c.Node("c2", "c", "8", "32Gi")
				c.Running("other", "8", nil, "a2")
				c.Pods()[3].Spec.SchedulerName = "volcano"
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonPodsWait, waiting: map[string]int64{"a": 1},
			message: "without zone a, 1 of 1 displaced pods would wait, first shop/web-1-1: ",
		},
		{
			name:    "a selector is invalid",
			cluster: func(c *clitest.Cluster) { c.Running("web", "1", nil, "a") },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
			},
			status: metav1.ConditionUnknown, reason: v1alpha1.ReasonInvalid, message: `spec.workloads[0].podSelector: "Is" is not a valid label selector operator`,
		},
		{
			name:    "something could not be read",
			cluster: func(c *clitest.Cluster) { c.Running("web", "1", nil, "a") },
			missing: []string{"the controller may not list services"},
			status:  metav1.ConditionUnknown, reason: v1alpha1.ReasonSnapshotIncomplete, message: "the controller may not list services",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, asked := clitest.Zones("a", "b", "c"), protecting("web")
			tc.cluster(c)
			if tc.asked != nil {
				tc.asked(asked)
			}
			is := certify(t, c, asked, survival.Options{Missing: tc.missing, Sim: sim.Options{Controllers: []string{"RayCluster.ray.io"}}})
			condition := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionSurvives)
			require.Equal(t, []string{string(tc.status), tc.reason}, []string{string(condition.Status), condition.Reason}, condition.Message)
			if tc.message != "" {
				require.Contains(t, condition.Message, tc.message)
			}
			var waiting map[string]int64
			for _, loss := range is.Losses {
				require.Equal(t, loss.Displaced, loss.Placed+loss.Waiting)
				require.Len(t, loss.Witnesses, int(loss.Waiting))
				if loss.Displaced > 0 {
					if waiting == nil {
						waiting = map[string]int64{}
					}
					waiting[loss.Zone] = loss.Waiting
				}
			}
			require.Equal(t, tc.waiting, waiting)
		})
	}
}

// TestMargin: the margin is the least that is free after the loss, on nodes that may take pods.
func TestMargin(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	c.Node("a2", "a", "8", "32Gi").Spec.Unschedulable = true
	c.Running("web", "2", nil, "a", "b", "b", "c")
	is := certify(t, c, protecting("web"), survival.Options{})
	require.Equal(t, v1alpha1.SurvivalSnapshot{Nodes: 4, Pods: 4, Hash: survival.Fingerprint(c.Objects())}, is.Snapshot)
	require.Len(t, is.Losses, 3)
	loss := is.Losses[1]
	require.Equal(t, []string{"b", "a", "c"}, []string{loss.Zone, loss.Margin[0].Zone, loss.Margin[1].Zone})
	for _, m := range loss.Margin {
		require.Equal(t, []string{"4", "8"}, []string{m.Free.Cpu().String(), m.Allocatable.Cpu().String()}, m.Zone)
		require.Equal(t, []string{"30Gi", "32Gi"}, []string{m.Free.Memory().String(), m.Allocatable.Memory().String()}, m.Zone)
	}
}

// TestHistory: the transition time of the condition stays while the answer does.
func TestHistory(t *testing.T) {
	c, asked := clitest.Zones("a", "b", "c"), protecting("web")
	c.Running("web", "1", nil, "a")
	before := metav1.NewTime(clitest.Now.Add(-time.Hour))
	asked.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPlaced, LastTransitionTime: before}}
	is := certify(t, c, asked, survival.Options{})
	require.Equal(t, before, is.Conditions[0].LastTransitionTime)
	require.Equal(t, int64(3), is.Conditions[0].ObservedGeneration)
	c.Running("other", "8", nil, "b", "c")
	is = certify(t, c, asked, survival.Options{})
	require.Equal(t, metav1.ConditionFalse, is.Conditions[0].Status)
	require.Equal(t, clitest.Now, is.Conditions[0].LastTransitionTime.Time)
}
