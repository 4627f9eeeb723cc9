package explain_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

func pod(t *testing.T, c *clitest.Cluster, name string, events ...eventsv1.Event) *explain.Report {
	t.Helper()
	s, err := sim.Of(t.Context(), c, sim.Options{})
	require.NoError(t, err)
	defer s.Close()
	counted := census.Take(c.Snapshot)
	p := counted.FindPod(clitest.Namespace, name)
	require.NotNil(t, p)
	r, err := explain.Explain(t.Context(), counted, s, p, events)
	require.NoError(t, err)
	return r
}

func gang(t *testing.T, c *clitest.Cluster, name string, events ...eventsv1.Event) *explain.Report {
	t.Helper()
	r, err := explain.Gang(t.Context(), census.Take(c.Snapshot), sim.Options{}, clitest.Namespace+"/"+name, events)
	require.NoError(t, err)
	return r
}

func text(t *testing.T, r *explain.Report, width int) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.Text(&out, show.Style{Width: width}, clitest.Now))
	return out.String()
}

func TestGolden(t *testing.T) {
	event := eventsv1.Event{
		Reason: "FailedScheduling", Note: "0/6 nodes are available: 6 policy shop/web", EventTime: metav1.NewMicroTime(clitest.Now.Add(-time.Hour)),
		Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(clitest.Now.Add(-time.Minute))},
	}
	c := clitest.Story()
	for name, report := range map[string]*explain.Report{
		"capped": pod(t, c, "web-1-7", event), "bound": pod(t, c, "web-1-1"), "member": pod(t, c, "train-0"), "gang": gang(t, c, "train"),
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Golden(t, name+".txt", text(t, report, 0))
			clitest.Golden(t, name+"-40.txt", text(t, report, 40))
			var out bytes.Buffer
			require.NoError(t, show.Object(&out, show.JSON, report))
			clitest.Golden(t, name+".json", out.String())
		})
	}
}

func TestWhatWouldLetItGo(t *testing.T) {
	plain := func(change func(p *corev1.Pod)) func(c *clitest.Cluster) *corev1.Pod {
		return func(c *clitest.Cluster) *corev1.Pod {
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), map[string]string{"app": "p"})
			change(p)
			return p
		}
	}
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}}
	for _, tc := range []struct {
		name  string
		build func(c *clitest.Cluster) *corev1.Pod
		want  []string
	}{
		{"a scheduler", plain(func(p *corev1.Pod) { p.Spec.SchedulerName = "zonewize" }), []string{
			`No scheduler has reported on it: is a scheduler called "zonewize" running?`,
		}},
		{"time", plain(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1"}}
		}), []string{"about its last attempt; it tries again when something changes"}},
		{"a gate", plain(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }), []string{
			"its scheduling gates must be removed: quota",
		}},
		{"room", func(c *clitest.Cluster) *corev1.Pod { return c.Pod("p", "", clitest.Plain("10", "1Gi"), nil) }, []string{
			"in zone a: 2 more cpu (8 free, 10 asked for) on node node-a",
		}},
		{"room, which another node has", func(c *clitest.Cluster) *corev1.Pod {
			c.Pod("other", "node-a", clitest.Plain("6", "1Gi"), nil)
			return c.Pod("p", "", clitest.Plain("3", "1Gi"), nil)
		}, []string{"in zone a: 1 more cpu (2 free, 3 asked for) on node node-a", "in zone a: another node like node-a"}},
		{"a taint", func(c *clitest.Cluster) *corev1.Pod {
			c.Node("node-b", "b", "8", "8Gi", corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule})
			c.Pod("other", "node-a", clitest.Plain("6", "1Gi"), nil)
			return c.Pod("p", "", clitest.Plain("7", "7Gi"), nil)
		}, []string{"in zone b: a toleration of the taint gpu=yes:NoSchedule (1 node would take it)"}},
		{"a cordon", func(c *clitest.Cluster) *corev1.Pod {
			c.Node("node-b", "b", "8", "8Gi").Spec.Unschedulable = true
			c.Pod("other", "node-a", clitest.Plain("6", "1Gi"), nil)
			return c.Pod("p", "", clitest.Plain("7", "7Gi"), nil)
		}, []string{"in zone b: the node uncordoned (1 node would take it)"}},
		{"a node selector", plain(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }), []string{
			"in zone a: without its nodeSelector (1 node would take it)",
		}},
		{"affinity", plain(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}), []string{"in zone a: without its affinity to other pods (1 node would take it)"}},
		{"anti-affinity", func(c *clitest.Cluster) *corev1.Pod {
			c.Pod("other", "node-a", clitest.Plain("1", "1Gi"), map[string]string{"app": "other"})
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), nil)
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
			return p
		}, []string{"in zone a: without its anti-affinity to other pods (1 node would take it)"}},
		{"a volume in another zone", func(c *clitest.Cluster) *corev1.Pod {
			c.Add(volume("elsewhere")...)
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), nil)
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			return p
		}, []string{"in zone a: without its volume data (1 node would take it)"}},
		{"a device", plain(func(p *corev1.Pod) {
			name := "gpu"
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		}), []string{"DynamicResources must let it into the queue"}},
		{"a constraint", func(c *clitest.Cluster) *corev1.Pod {
			c.Node("node-b", "b", "1", "8Gi")
			c.Pod("full", "node-b", clitest.Plain("1", "1Gi"), nil)
			for _, name := range []string{"first", "second"} {
				c.Pod(name, "node-a", clitest.Plain("1", "1Gi"), map[string]string{"app": "p"})
			}
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), map[string]string{"app": "p"})
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("p", 1)}
			return p
		}, []string{"in zone a: without its topologySpreadConstraint over topology.kubernetes.io/zone (maxSkew 1)", "in zone b: 1 more cpu (0 free, 1 asked for) on node node-b"}},
		{"slots of others", func(c *clitest.Cluster) *corev1.Pod {
			c.Reservation("failover", "web", "6", 0, map[string]int64{"node-a": 1})
			return c.Pod("p", "", clitest.Plain("4", "1Gi"), nil)
		}, []string{"in zone a: without the slots that ZoneReservation failover holds (1 node would take it)"}},
		{"two things at once", func(c *clitest.Cluster) *corev1.Pod {
			p := c.Pod("p", "", clitest.Plain("10", "1Gi"), nil)
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			return p
		}, []string{"in zone a: without its nodeSelector (1 node would take it), and 2 more cpu (8 free, 10 asked for) on node node-a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node-a", "a", "8", "8Gi")
			p := tc.build(c)
			r := pod(t, c, p.Name)
			for _, want := range tc.want {
				require.Contains(t, strings.Join(r.Next, "\n"), want)
			}
		})
	}
}

// volume is a claim of the name data and its volume, which is in a zone.
func volume(zone string) []client.Object {
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	none := ""
	return []client.Object{
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "data", UID: "data", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "data", StorageClassName: &none, Resources: corev1.VolumeResourceRequirements{Requests: storage}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: storage, ClaimRef: &corev1.ObjectReference{Namespace: clitest.Namespace, Name: "data", UID: "data"},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
				}}}},
			},
		},
	}
}

func TestWhatWouldLetAGangGo(t *testing.T) {
	labels := map[string]string{"app": "p", "scheduling.x-k8s.io/pod-group": "gang"}
	members := func(n int, cpu string) func(c *clitest.Cluster) {
		return func(c *clitest.Cluster) {
			for i := range n {
				c.Pod(fmt.Sprintf("p-%d", i), "", clitest.Plain(cpu, "1Gi"), labels)
			}
		}
	}
	for _, tc := range []struct {
		name      string
		minMember int32
		build     func(c *clitest.Cluster)
		want      []string
	}{
		{"a PodGroup", 0, members(1, "1"), []string{"PodGroup shop/gang must exist"}},
		{"members", 3, members(1, "1"), []string{"PodGroup shop/gang needs 3 members and has 1: 2 more pods must be created"}},
		{"room for all members", 2, members(2, "5"), []string{
			"PodGroup shop/gang needs 2 more members at once, and 1 of them fit now; p-1 is the first that does not", "in zone a: 1 more node like node-a",
		}},
		{"slots of others", 2, func(c *clitest.Cluster) {
			c.Reservation("failover", "web", "4", 0, map[string]int64{"node-a": 1})
			members(2, "4")(c)
		}, []string{"without the slots that are held by ZoneReservation failover"}},
		{"time", 2, members(2, "4"), []string{"no change is needed: PodGroup shop/gang needs 2 more members at once, and they fit now"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node-a", "a", "8", "8Gi")
			if tc.minMember > 0 {
				c.Gang("gang", tc.minMember)
			}
			tc.build(c)
			r := gang(t, c, "gang")
			for _, want := range tc.want {
				require.Contains(t, strings.Join(r.Next, "\n"), want)
			}
		})
	}
}

func TestTheWordsOfMostMembersComeFirst(t *testing.T) {
	c := clitest.Story()
	for _, p := range c.Pods() {
		for i, words := range []string{"first", "second", "first", "third"} {
			if p.Name == fmt.Sprintf("train-%d", i) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: words}}
			}
		}
	}
	r := gang(t, c, "train", eventsv1.Event{Reason: "GangRolledBack", Note: "of long ago"})
	var words []string
	for _, s := range r.Said {
		words = append(words, s.Words)
	}
	require.Equal(t, []string{"first", "second", "of long ago"}, words)
}

func TestAGangThatIsNotThereOrWhole(t *testing.T) {
	c := clitest.Story()
	require.Nil(t, gang(t, c, "none"))
	whole := gang(t, c, "whole")
	require.Zero(t, whole.Gang.Missing)
	require.Empty(t, whole.Next)
}

func TestExplainingChangesNothing(t *testing.T) {
	c := clitest.Story()
	text := func() string {
		var out bytes.Buffer
		require.NoError(t, snapshot.Encode(&out, c.Snapshot))
		return out.String()
	}
	before := text()
	gang(t, c, "train")
	pod(t, c, "web-1-7")
	require.Equal(t, before, text())
}

// TestWhereABoundPodWouldGo: its own room is free again, and what has changed since it was placed shows.
func TestWhereABoundPodWouldGo(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(c *clitest.Cluster)
		node    string
		fit     int
		refusal string
		text    string
	}{
		"nothing has changed": {change: func(*clitest.Cluster) {}, node: "node-a", fit: 1, text: "it would get the same node: 1 node would take it"},
		"a better node": {change: func(c *clitest.Cluster) {
			c.Node("node-b", "b", "32", "64Gi")
			c.Pod("other", "node-a", clitest.Plain("3", "1Gi"), nil)
		}, node: "node-b", fit: 2, text: "it would go to node node-b in zone b: 2 nodes would take it"},
		"its node is cordoned": {change: func(c *clitest.Cluster) {
			c.Node("node-b", "b", "4", "8Gi")
			snapshot.List[*corev1.Node](c.Snapshot)[0].Spec.Unschedulable = true
		}, node: "node-b", fit: 1, refusal: "NodeUnschedulable: node(s) were unschedulable", text: "its own node would not take it"},
		"no node": {change: func(c *clitest.Cluster) {
			snapshot.List[*corev1.Node](c.Snapshot)[0].Spec.Unschedulable = true
		}, refusal: "NodeUnschedulable: node(s) were unschedulable", text: "it would wait: no node would take it"},
		"room that it alone leaves": {change: func(c *clitest.Cluster) { c.Pod("other", "node-a", clitest.Plain("6", "1Gi"), nil) }, node: "node-a", fit: 1, text: "the same node"},
	} {
		t.Run(name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node-a", "a", "8", "8Gi")
			c.Pod("p", "node-a", clitest.Plain("2", "1Gi"), map[string]string{"app": "p"})
			test.change(c)
			r := pod(t, c, "p")
			require.Equal(t, explain.Bound, r.Pod.Verdict)
			require.Equal(t, []any{test.node, test.node == "node-a", test.fit, test.refusal}, []any{r.Now.Node, r.Now.Stays, r.Now.Fit, r.Now.Refusal})
			require.Contains(t, text(t, r, 0), test.text)
			for _, n := range r.Now.Nodes {
				sum := int64(0)
				for _, points := range n.Plugins {
					sum += points
				}
				require.Equal(t, sum, n.Score)
				require.Equal(t, n.Node == "node-a", n.Own)
			}
		})
	}
}

// TestMoves: what ZoneRebalances would do with a pod, have done with it, or why they leave it where it is.
func TestMoves(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "8", "8Gi")
	add := c.Deployment("web", 2, "1", "1Gi", nil)
	first := add("node-a")
	r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "services"}}
	c.Add(r)
	moved := v1alpha1.MovedPod{Namespace: clitest.Namespace, Name: first.Name, From: "a", To: []string{"b", "c"}}
	for state, want := range map[v1alpha1.RebalanceMoveState]string{
		v1alpha1.MoveEvicting: "ZoneRebalance services: is being evicted, from zone a to b or c",
		v1alpha1.MoveEvicted:  "ZoneRebalance services: is evicted, from zone a to b or c",
		v1alpha1.MoveRefused:  "ZoneRebalance services: was not moved from zone a to b or c: Refused: a webhook",
	} {
		r.Status.Moves = []v1alpha1.RebalanceMove{{MovedPod: moved, UID: first.UID, State: state, Why: "a webhook"}}
		report := pod(t, c, first.Name)
		require.Equal(t, []string{want}, report.Moves)
		require.Contains(t, text(t, report, 0), want)
	}
	r.Status.Moves, r.Status.Plan = nil, []v1alpha1.PlannedMove{{MovedPod: moved, Batch: 2, Rules: "topologySpreadConstraint"}}
	require.Equal(t, []string{"ZoneRebalance services: would move from zone a to b or c, in batch 2, with mode Evict; topologySpreadConstraint"}, pod(t, c, first.Name).Moves)
	r.Status.Plan = nil
	r.Status.Moves, r.Status.Stays = nil, []v1alpha1.RebalanceStay{
		{Workload: "Deployment shop/web", Zone: "a", Why: "its replacement would wait"}, {Workload: "Deployment shop/web", Zone: "b", Why: "another"}, {Pods: 2, Why: "each is a member of a gang"},
	}
	require.Equal(t, []string{"ZoneRebalance services: pods of its workload stay in zone a: its replacement would wait"}, pod(t, c, first.Name).Moves)
	r.Status.Stays = nil
	require.Empty(t, pod(t, c, first.Name).Moves)
}

// Events of kubelets and of other controllers are not what the scheduler said, however new they are.
func TestEventsByReporter(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "8", "8Gi")
	c.Pod("p", "node-a", clitest.Plain("1", "1Gi"), nil)
	var events []eventsv1.Event
	for i, e := range [][2]string{
		{"Scheduled", "default-scheduler"},
		{"NotTriggerScaleUp", "cluster-autoscaler"},
		{"Nominated", "karpenter"},
		{"Pulling", "kubelet"},
		{"Pulled", "kubelet"},
		{"Created", "kubelet"},
		{"Started", "kubelet"},
		{"BackOff", "kubelet"},
		{"SuccessfulAttachVolume", "attachdetach-controller"},
	} {
		event := eventsv1.Event{Reason: e[0], Note: "of " + e[1], EventTime: metav1.NewMicroTime(clitest.Now.Add(time.Duration(i-20) * time.Second))}
		if i%2 == 0 {
			event.ReportingController = e[1]
		} else {
			event.DeprecatedSource.Component = e[1] // by the core API's recorder
		}
		events = append(events, event)
	}
	r := pod(t, c, "p", events...)
	reasons := func(messages []explain.SchedulerMessage) (all []string) {
		for _, m := range messages {
			all = append(all, m.Reason)
		}
		return all
	}
	require.Equal(t, []string{"Scheduled"}, reasons(r.Said), "only the scheduler is quoted as the scheduler")
	require.Equal(t, []string{"Nominated", "NotTriggerScaleUp"}, reasons(r.Autoscalers), "autoscalers have their own list")
	require.Contains(t, text(t, r, 0), "What the autoscaler said")
}

// TestPodsOfKubeSchedulerBesideTheSecond have kube-scheduler's verdicts: it knows no holds.
func TestPodsOfKubeSchedulerBesideTheSecond(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "8", "8Gi")
	c.Reservation("failover", "web", "6", 0, map[string]int64{"node-a": 1})
	c.Pod("p", "", clitest.Plain("4", "1Gi"), nil)
	require.Contains(t, text(t, pod(t, c, "p"), 0), "ReserveCache", "Zonewise replaces kube-scheduler")

	c.Pod("web-0", "node-a", clitest.Plain("1", "1Gi"), map[string]string{"app": "web"}).Spec.SchedulerName = "zonewise-scheduler"
	r := pod(t, c, "p")
	require.NotContains(t, text(t, r, 0), "ReserveCache")
	require.Contains(t, r.Gaps, `the configuration has no profile for the scheduler "default-scheduler", but for zonewise-scheduler; the verdicts are those of a plain kube-scheduler (see --config)`)
}
