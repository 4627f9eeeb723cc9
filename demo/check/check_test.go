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
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/workload"
	"zonewise.dev/test/build"
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
	victims string // the scheduler's metrics of them
	policy  *v1alpha1.ZoneSpreadPolicy
	// says, defaults and batch are what was said before the loss, and held what was said of the one with held room.
	says, defaults, batch, held *status.Survival
	refused                     map[types.UID]string
	// rebalanced is there after the moves.
	rebalanced *v1alpha1.ZoneRebalance
	// reservation holds room for one of the services.
	reservation *v1alpha1.ZoneReservation
}

func newScene(t *testing.T, at Moment) *scene {
	t.Helper()
	s := &scene{t: t, moment: at, objects: snapshot.New(time.Now()), victims: victims(0), refused: map[types.UID]string{}}
	if at == Moved {
		s.rebalanced = &v1alpha1.ZoneRebalance{Status: v1alpha1.ZoneRebalanceStatus{
			Moves: []v1alpha1.RebalanceMove{
				{MovedPod: v1alpha1.MovedPod{Namespace: "services", Name: "app-0-8", From: "zone-a", To: []string{"zone-c"}}, State: v1alpha1.MoveMoved},
				{MovedPod: v1alpha1.MovedPod{Namespace: "services", Name: "app-0-9", From: "zone-b", To: []string{"zone-c"}}, State: v1alpha1.MoveMoved},
			},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionBalanced, Status: metav1.ConditionTrue}},
		}}
	}
	s.plan = &workload.Plan{
		Workers: 2,
		Services: []workload.Service{
			{App: "web", Role: "cn", Replicas: 3},
			{App: "app-0", Role: "hn", Replicas: 4},
			{App: "app-14", Role: "cn", Replicas: 3},
			{App: "app-20", Role: "cn", Replicas: 3},
		},
		Gangs: []workload.Gang{{Name: "train", Members: 1, Fits: true}, {Name: "large", Members: 2}},
	}
	for _, zone := range zones {
		if at == Gone && zone == "zone-c" {
			continue
		}
		node := build.Node("in-"+zone, zone, "64", build.Capacity(corev1.ResourceMemory, "64Gi"), build.Capacity(corev1.ResourcePods, "20"))
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
	s.says = &status.Survival{Name: "services", State: status.OK, Pods: 10}
	s.held = &status.Survival{Name: "app-14-cn", State: status.OK, Holds: true, Reservations: []v1alpha1.SurvivalReservation{{Name: "survival-app-14-cn"}}, Held: corev1.ResourceList{"cpu": resource.MustParse("8")}}
	s.reservation = &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "survival-app-14-cn"},
		Status:     v1alpha1.ZoneReservationStatus{Slots: v1alpha1.SlotCounts{Desired: 6, Held: 6, Used: 4}},
	}
	s.objects.Add(s.reservation)
	s.defaults = &status.Survival{Name: "app-20", State: status.Breaks, Pods: 3, Message: "while the nodes exist"}
	s.batch = &status.Survival{Name: "batch-workers", State: status.Breaks, Message: "pods would wait"}
	for _, zone := range zones {
		s.says.Losses = append(s.says.Losses, v1alpha1.SurvivalLoss{Zone: zone, Displaced: 3, Placed: 3})
		s.defaults.Losses = append(s.defaults.Losses, v1alpha1.SurvivalLoss{Zone: zone, Displaced: 1, Waiting: 1, NodesStay: true})
	}
	here, lost := zones, at == Lost || at == Gone
	if lost {
		s.policy.Status.Zones[0].Pods, s.policy.Status.Zones[2].Pods, s.policy.Status.Zones[2].State = 3, 0, v1alpha1.ZoneState("Closed")
		here = []string{"zone-a", "zone-b", "zone-a"}
	}
	for i, zone := range here {
		for _, service := range s.plan.Services {
			s.add(workload.ServiceNamespace, service.Deployment().Spec.Template, fmt.Sprintf("%s-%d", service.App, i), "in-"+zone)
		}
	}
	s.add(workload.ServiceNamespace, s.plan.Services[1].Deployment().Spec.Template, "app-0-3", "in-zone-a")
	if lost { // what was in the lost zone has been made again
		for _, name := range []string{"web-2", "app-0-2", "app-14-2", "app-20-2"} {
			s.pod(name).CreationTimestamp = metav1.NewTime(lostAt.Truncate(time.Second))
			s.pod(name).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(lostAt.Truncate(time.Second).Add(4 * time.Second))}}
		}
	}
	if at == Lost {
		s.refuse(s.pod("app-20-2"), "2 node(s) didn't match pod topology spread constraints").Spec.NodeName = ""
	}
	batch := s.plan.Batch().Spec.Template
	s.add(workload.BatchNamespace, batch, "batch-0", "in-zone-b")
	s.refuse(s.add(workload.BatchNamespace, batch, "batch-1", ""), "held for ZoneReservation survival-app-14-cn")
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
	s.objects.Add(s.policy)
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

func (s *scene) refuse(pod *corev1.Pod, message string) *corev1.Pod {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
	return pod
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

func victims(n int) string {
	return fmt.Sprintf("# TYPE scheduler_preemption_victims histogram\nscheduler_preemption_victims_sum %d\n", n)
}

func (s *scene) checks() []Check {
	metrics, err := ParseMetrics([]byte(s.victims))
	require.NoError(s.t, err)
	counted, said := census.Take(s.objects), map[string]*status.Survival{}
	for _, answer := range []*status.Survival{s.says, s.defaults, s.batch, s.held} {
		said[answer.Name] = answer
	}
	return All(&Evidence{
		Moment: s.moment, Plan: s.plan, Census: counted, Status: status.Build(counted, ""), Metrics: metrics,
		Certificates: said, LostAt: lostAt, Refused: s.refused, Rebalanced: s.rebalanced,
	})
}

func TestASoundClusterIsSoundAtEveryMoment(t *testing.T) {
	for at, want := range map[Moment]string{
		Before: "yes: zone-a displaces 3, zone-b displaces 3, zone-c displaces 3 of 10 replicas; held for app-14-cn: 8 cpu",
		Lost: "services: 0 of 3 displaced replicas wait, the certificate said 0; " +
			"app-20: 1 of 1 displaced replicas wait, the certificate said 1; the slowest was bound 4s after it was created",
		Gone: "services: 0 of 3 displaced replicas wait, the certificate said 0; " +
			"app-20: 0 of 1 displaced replicas wait, the certificate said 0; the slowest was bound 4s after it was created",
		Moved: "2 moves",
		Back:  "1 workers run, 1 wait, 1 of them for held room",
	} {
		checks := newScene(t, at).checks()
		require.Empty(t, Broken(checks), at.String())
		var evidence []string
		for _, c := range checks {
			require.NotEmpty(t, c.Evidence, c.Name)
			evidence = append(evidence, c.Evidence)
		}
		require.Contains(t, evidence, want)
		if at == Before {
			require.Contains(t, evidence, "no: pods would wait")
			require.Contains(t, evidence, "no: while the nodes exist")
		}
	}
}

// A displaced replica that waits, although the certificates said that it would run, breaks two checks.
func TestACertificateThatWasWrongIsFound(t *testing.T) {
	s := newScene(t, Lost)
	s.pod("web-2").Spec.NodeName = ""
	s.refuse(s.pod("web-2"), "0/3 nodes are available")
	broken := Broken(s.checks())
	require.Len(t, broken, 2)
	require.Equal(t, []string{"services/web-2 waits: 0/3 nodes are available"}, broken[0].Violations)
	require.Equal(t, cameTrue, broken[1].Name)
	require.Equal(t, []string{"services: 1 of 3 displaced replicas wait, not 0 of 3"}, broken[1].Violations)
}

const (
	notSurvive = "batch work, for which nothing is held, would not survive"

	survives  = "the services survive the loss of any zone"
	onceGone  = "app-20, with the default nodeTaintsPolicy, survives once the lost nodes are deleted"
	cameTrue  = "what the certificates said came true"
	movedBack = "app-0-hn is moved back"
	atFirst   = "displaced replicas of app-14-cn were bound at the first attempt"
)

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
		}, "every replica of every service is bound", "services/app-0-0 waits: 0/3 nodes are available"},
		{"a replica does not exist", Lost, func(s *scene) { s.plan.Services[0].Replicas++ }, "every replica of every service is bound", "10 replicas exist, want 11"},
		{"uneven zones", Before, func(s *scene) {
			s.pod("web-1").Spec.NodeName, s.pod("web-2").Spec.NodeName = "in-zone-a", "in-zone-a"
		}, "native constraints over zones hold", "ReplicaSet services/web: skew 3 above maxSkew 1"},
		{"the policy is not satisfied", Before, func(s *scene) {
			s.policy.Status.Conditions[1].Status, s.policy.Status.Conditions[1].Message = metav1.ConditionFalse, "zone-b has too many"
		}, "each zone has its share of app-0-hn", "the policy is Violated: zone-b has too many"},
		{"the lost zone counts as there", Lost, func(s *scene) { s.policy.Status.Zones[2].State = v1alpha1.ZoneAvailable }, "each zone has its share of app-0-hn", `zone-c is lost and has 0 pods, state "Available"`},
		{"a zone has none", Before, func(s *scene) { s.policy.Status.Zones[2].Pods = 0 }, "each zone has its share of app-0-hn", "zone-c has no pod of it"},
		{"the certificate says no", Before, func(s *scene) { s.says.State, s.says.Message = status.Breaks, "without zone-a" }, survives, "ZoneSurvival services: Breaks: without zone-a"},
		{"the room is not held", Before, func(s *scene) { s.held.Message = "room is missing for 3 pods" }, survives, "ZoneSurvival app-14-cn: OK: room is missing for 3 pods"},
		{"a loss was not replayed", Before, func(s *scene) { s.says.Losses = s.says.Losses[:2] }, survives, "13 replicas are protected of 13, against 2 losses"},
		{"not all are protected", Before, func(s *scene) { s.says.Pods = 9 }, survives, "12 replicas are protected of 13, against 3 losses"},
		{"none was displaced", Lost, func(s *scene) { s.pod("app-14-2").CreationTimestamp = metav1.Time{} }, atFirst, "no replica was displaced"},
		{"held room was taken", Lost, func(s *scene) { s.refused["app-14-2"] = "Insufficient cpu" }, atFirst, "services/app-14-2 was refused first: Insufficient cpu"},
		{"the certificate leaves the loss out", Lost, func(s *scene) { s.says.Losses = s.says.Losses[:2] }, cameTrue, "the certificate of services says nothing about the loss of zone-c"},
		{"a replica runs that was to wait", Lost, func(s *scene) { s.pod("app-20-2").Spec.NodeName = "in-zone-b" }, cameTrue, "app-20: 0 of 1 displaced replicas wait, not 1 of 1"},
		{"a replica was to wait in either form", Gone, func(s *scene) { s.defaults.Losses[2].NodesStay = false }, cameTrue, "app-20: 0 of 1 displaced replicas wait, not 1 of 1"},
		{"the default policy is said to do", Before, func(s *scene) { s.defaults.State = status.OK }, onceGone, "ZoneSurvival app-20: OK"},
		{"the form of a loss is not said", Before, func(s *scene) { s.defaults.Losses[0].NodesStay = false }, onceGone, "that is said of the loss of 2 of 3 zones"},
		{"all batch work has room", Before, func(s *scene) { s.pod("batch-1").Spec.NodeName = "in-zone-c" }, "batch work fills what is not held", "no worker waits for held room"},
		{"batch work waits for something else", Before, func(s *scene) { s.refuse(s.pod("batch-1"), "Insufficient cpu") }, "batch work fills what is not held", "no worker waits for held room"},
		{"the hold has no reservation", Before, func(s *scene) { s.held.Reservations = nil }, "batch work fills what is not held", "app-14-cn names no reservation"},
		{"a gang in part", Before, func(s *scene) { s.pod("large-0").Spec.NodeName = "in-zone-c" }, "gangs are whole, or wait and hold nothing", "gang large cannot be whole and has 1 of 2 bound"},
		{"a gang that waits holds a node", Before, func(s *scene) { s.pod("large-0").Status.NominatedNodeName = "in-zone-c" }, "gangs are whole, or wait and hold nothing", "training/large-0 waits and has the node in-zone-c nominated"},
		{"an overcommitted node", Before, func(s *scene) {
			for _, n := range snapshot.List[*corev1.Node](s.objects) {
				n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("5")
			}
		}, "allocated never exceeds allocatable", "in-zone-a: 6 of pods allocated, 5 allocatable"},
		{"a move went elsewhere", Moved, func(s *scene) {
			s.rebalanced.Status.Moves[1].State, s.rebalanced.Status.Moves[1].Why = v1alpha1.MoveNotBetter, "it is in zone zone-b"
		}, movedBack, "services/app-0-9, from zone-b to [zone-c], is NotBetter: it is in zone zone-b"},
		{"too many are left", Moved, func(s *scene) { s.rebalanced.Status.Conditions = nil }, movedBack, "2 moves, balanced: false"},
		{"no moves are known", Moved, func(s *scene) { s.rebalanced = nil }, movedBack, "there is no ZoneRebalance"},
		{"others have the room of the zone that is back", Moved, func(s *scene) { s.reservation.Status.Slots.Held = 4 }, "room for app-14-cn is held again", "4 of 6 slots are held"},
		{"batch work is said to survive", Before, func(s *scene) { s.batch.State = status.OK }, notSurvive, "ZoneSurvival batch-workers: OK"},
		{"batch work is not asked about", Before, func(s *scene) { s.batch.Name = "other" }, notSurvive, "ZoneSurvival batch-workers: there is no answer"},
		{"a victim", Lost, func(s *scene) { s.victims = victims(2) }, "nothing was preempted", "2 pods were"},
		{"unknown victims", Lost, func(s *scene) { s.victims = "" }, "nothing was preempted", "NaN pods were"},
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
