package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/workload"
)

var (
	zones  = workload.Zones
	lostAt = time.Date(2026, 1, 1, 0, 0, 0, 7, time.UTC)
)

// scene is a small cluster of which everything is true that must be.
type scene struct {
	t       *testing.T
	plan    *workload.Plan
	objects *snapshot.Snapshot
	moment  Moment
	metrics map[string]float64
	policy  *v1alpha1.ZoneSpreadPolicy
	held    *v1alpha1.ZoneReservation
	refused map[types.UID]string
}

func newScene(t *testing.T, at Moment) *scene {
	t.Helper()
	s := &scene{t: t, moment: at, objects: snapshot.New(time.Now()), refused: map[types.UID]string{}}
	s.plan = &workload.Plan{
		Slots: 2, Workers: 2,
		Services: []workload.Service{
			{App: "web", Role: "cn", Replicas: 3},
			{App: "app-0", Role: "hn", Replicas: 4},
			{App: "app-14", Role: "cn", Replicas: 3},
		},
		Gangs: []workload.Gang{{Name: "train", Members: 1, Fits: true}, {Name: "large", Members: 2}},
	}
	for _, zone := range zones {
		have := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("20")}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "in-" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Status:     corev1.NodeStatus{Allocatable: have, Capacity: have, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if at == Lost && zone == "zone-c" {
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		}
		s.objects.Add(node)
	}
	s.policy = s.plan.Policy()
	s.policy.Status = v1alpha1.ZoneSpreadPolicyStatus{
		Pods: 4, Replicas: 4, Skew: 1,
		Zones: []v1alpha1.ZoneStatus{
			{Name: "zone-a", Pods: 2, Desired: 2, State: v1alpha1.ZoneAvailable},
			{Name: "zone-b", Pods: 1, Desired: 1, State: v1alpha1.ZoneAvailable},
			{Name: "zone-c", Pods: 1, Desired: 1, State: v1alpha1.ZoneAvailable},
		},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionSatisfied, Status: metav1.ConditionTrue}},
	}
	s.held = s.plan.Reservation()
	s.held.Status = v1alpha1.ZoneReservationStatus{
		Slots:      v1alpha1.SlotCounts{Desired: 6, Held: 6, Used: 3},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
	}
	for _, zone := range zones {
		s.held.Status.Zones = append(s.held.Status.Zones, v1alpha1.ReservationZoneStatus{Name: zone, SlotCounts: v1alpha1.SlotCounts{Desired: 2, Held: 2, Used: 1}})
	}
	here := zones
	if at == Lost {
		s.policy.Status.Zones[0].Pods, s.policy.Status.Zones[2].Pods, s.policy.Status.Zones[2].State = 3, 0, v1alpha1.ZoneState("Closed")
		s.held.Status.Zones[0].Used, s.held.Status.Zones[2].SlotCounts = 2, v1alpha1.SlotCounts{Desired: 2}
		s.held.Status.Slots.Held = 4
		here = []string{"zone-a", "zone-b", "zone-a"}
	}
	for i, zone := range here {
		for _, service := range s.plan.Services {
			s.add(workload.ServiceNamespace, service.Deployment().Spec.Template, fmt.Sprintf("%s-%d", service.App, i), "in-"+zone)
		}
	}
	s.add(workload.ServiceNamespace, s.plan.Services[1].Deployment().Spec.Template, "app-0-3", "in-zone-a")
	if at == Lost { // app-14-2 was in the lost zone
		moved := s.pod("app-14-2")
		moved.CreationTimestamp = metav1.NewTime(lostAt.Truncate(time.Second))
		moved.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(lostAt.Add(2 * time.Second))}}
	}
	batch := s.plan.Batch().Spec.Template
	s.add(workload.BatchNamespace, batch, "batch-0", "in-zone-b")
	s.refuse(s.add(workload.BatchNamespace, batch, "batch-1", ""), "held for ZoneReservation failover")
	for _, g := range s.plan.Gangs {
		s.objects.Add(g.PodGroup())
		for i := range g.Members {
			node := ""
			if g.Fits {
				node = "in-zone-a"
			}
			s.add(workload.GangNamespace, g.StatefulSet().Spec.Template, fmt.Sprintf("%s-%d", g.Name, i), node)
		}
	}
	s.objects.Add(s.policy, s.held)
	s.metrics = map[string]float64{
		"zonewise_reservecache_pods": 12, "zonewise_reservecache_nodes": 3, "zonewise_reservecache_assumed_pods": 0,
		"zonewise_reservecache_drift_checks_total": 5, "zonewise_reservecache_drift_nodes": 0, "zonewise_reservecache_unsettled_nodes": 0,
		`scheduler_cache_size{type="assumed_pods"}`: 0, "scheduler_preemption_victims": 0,
	}
	return s
}

func (s *scene) add(namespace string, template corev1.PodTemplateSpec, name, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName = namespace, name, types.UID(name), node
	owner := strings.TrimRight(name, "-0123456789")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: types.UID("of-" + owner), Controller: new(bool)}}
	*pod.OwnerReferences[0].Controller = true
	s.objects.Add(pod)
	return pod
}

func (s *scene) refuse(pod *corev1.Pod, message string) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
}

func (s *scene) pod(name string) *corev1.Pod {
	for _, pod := range snapshot.List[*corev1.Pod](s.objects) {
		if pod.Name == name {
			return pod
		}
	}
	s.t.Fatalf("no pod %s", name)
	return nil
}

func (s *scene) checks() []Check {
	var text strings.Builder
	for series, value := range s.metrics {
		name, _, _ := strings.Cut(series, "{")
		fmt.Fprintf(&text, "# TYPE %s gauge\n%s %v\n", name, series, value)
	}
	metrics, err := ParseMetrics([]byte(text.String()))
	require.NoError(s.t, err)
	counted := census.Take(s.objects)
	return All(&Evidence{
		Moment: s.moment, Plan: s.plan, Census: counted, Status: status.Build(counted, ""), Metrics: metrics, LostAt: lostAt, Refused: s.refused,
	})
}

func TestASoundClusterIsSoundAtEveryMoment(t *testing.T) {
	for at, want := range map[Moment]string{
		Before: "slots used/held: zone-a 1/2, zone-b 1/2, zone-c 1/2",
		Lost:   "slots used/held: zone-a 2/2, zone-b 1/2, zone-c 0/0",
		Back:   "1 whole, 1 waits",
	} {
		checks := newScene(t, at).checks()
		require.Empty(t, Broken(checks), at.String())
		var evidence []string
		for _, c := range checks {
			require.NotEmpty(t, c.Evidence, c.Name)
			evidence = append(evidence, c.Evidence)
		}
		require.Contains(t, evidence, want)
	}
}

// Each fault is found by its check, and by that one alone.
func TestEachFaultIsFound(t *testing.T) {
	for _, tc := range []struct {
		name  string
		at    Moment
		harm  func(*scene)
		check string
		want  string
	}{
		{"a replica waits", Before, func(s *scene) {
			s.pod("app-0-0").Spec.NodeName = ""
			s.refuse(s.pod("app-0-0"), "0/3 nodes are available")
			s.metrics["zonewise_reservecache_pods"]--
		}, "every replica of every service is bound", "services/app-0-0 waits: 0/3 nodes are available"},
		{"a replica does not exist", Before, func(s *scene) { s.plan.Services[0].Replicas++ }, "every replica of every service is bound", "10 replicas exist, want 11"},
		{"uneven zones", Back, func(s *scene) {
			s.pod("web-1").Spec.NodeName, s.pod("web-2").Spec.NodeName = "in-zone-a", "in-zone-a"
		}, "native constraints over zones hold", "ReplicaSet services/web: skew 3 above maxSkew 1"},
		{"the policy is not satisfied", Before, func(s *scene) {
			s.policy.Status.Conditions[1].Status, s.policy.Status.Conditions[1].Message = metav1.ConditionFalse, "zone-b has too many"
		}, "each zone has its share of app-0-hn", "the policy is Violated: zone-b has too many"},
		{"the lost zone counts as there", Lost, func(s *scene) { s.policy.Status.Zones[2].State = v1alpha1.ZoneAvailable }, "each zone has its share of app-0-hn", `zone-c is lost and has 0 pods, state "Available"`},
		{"nothing went back", Back, func(s *scene) { s.policy.Status.Zones[2].Pods = 0 }, "each zone has its share of app-0-hn", "zone-c has no pod of it"},
		{"a slot is missing", Back, func(s *scene) { s.held.Status.Zones[2].Held = 1 }, "room is held for app-14-cn", "zone-c holds 1 slots of 2"},
		{"a replica is in no slot", Lost, func(s *scene) { s.held.Status.Slots.Used = 2 }, "room is held for app-14-cn", "2 slots are used by 3 replicas"},
		{"a second attempt", Lost, func(s *scene) { s.refused["app-14-2"] = "0/3 nodes" }, "displaced replicas of app-14-cn were bound at the first attempt", "services/app-14-2 was refused first: 0/3 nodes"},
		{"none was displaced", Lost, func(s *scene) { s.pod("app-14-2").CreationTimestamp = metav1.Time{} }, "displaced replicas of app-14-cn were bound at the first attempt", "no replica was displaced"},
		{"all batch work has room", Before, func(s *scene) {
			s.pod("batch-1").Spec.NodeName = "in-zone-c"
			s.metrics["zonewise_reservecache_pods"]++
		}, "batch work fills what is not held", "no worker waits: nothing shows that room is held"},
		{"a gang in part", Before, func(s *scene) {
			s.pod("large-0").Spec.NodeName = "in-zone-c"
			s.metrics["zonewise_reservecache_pods"]++
		}, "gangs are whole, or wait and hold nothing", "gang large cannot be whole and has 1 of 2 bound"},
		{"a gang that waits holds a node", Before, func(s *scene) { s.pod("large-0").Status.NominatedNodeName = "in-zone-c" }, "gangs are whole, or wait and hold nothing", "training/large-0 waits and has the node in-zone-c nominated"},
		{"an overcommitted node", Before, func(s *scene) {
			for _, n := range snapshot.List[*corev1.Node](s.objects) {
				n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("4")
			}
		}, "allocated never exceeds allocatable", "in-zone-a: 5 of pods allocated, 4 allocatable"},
		{"a victim", Lost, func(s *scene) { s.metrics["scheduler_preemption_victims"] = 2 }, "nothing was preempted", "2 pods were"},
		{"drift", Before, func(s *scene) { s.metrics["zonewise_reservecache_drift_nodes"] = 1 }, "ledger, scheduler snapshot and API server agree", "nodes with drift: 1, want 0"},
		{"an unknown number", Before, func(s *scene) { delete(s.metrics, "zonewise_reservecache_drift_nodes") }, "ledger, scheduler snapshot and API server agree", "nodes with drift: unknown, want 0"},
		{"an assumed pod", Before, func(s *scene) { s.metrics[`scheduler_cache_size{type="assumed_pods"}`] = 1 }, "ledger, scheduler snapshot and API server agree", "assumed pods in kube-scheduler's cache: 1, want 0"},
		{"no comparison", Before, func(s *scene) { s.metrics["zonewise_reservecache_drift_checks_total"] = 0 }, "ledger, scheduler snapshot and API server agree", "ledger and snapshot were not compared"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t, tc.at)
			tc.harm(s)
			broken := Broken(s.checks())
			require.Len(t, broken, 1)
			require.Equal(t, tc.check, broken[0].Name)
			require.Contains(t, broken[0].Violations, tc.want)
		})
	}
}
