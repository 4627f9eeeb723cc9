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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/test/clitest"
)

func pod(t *testing.T, c *clitest.Cluster, name string, events ...eventsv1.Event) *explain.Report {
	t.Helper()
	x := explain.Explainer{Census: census.Take(c.Snapshot), Command: "zonewise"}
	p := x.Census.FindPod(clitest.Namespace, name)
	require.NotNil(t, p)
	r, err := x.Pod(t.Context(), p, events)
	require.NoError(t, err)
	return r
}

func gang(t *testing.T, c *clitest.Cluster, name string, events ...eventsv1.Event) *explain.Report {
	t.Helper()
	x := explain.Explainer{Census: census.Take(c.Snapshot), Command: "zonewise"}
	r, err := x.Gang(t.Context(), clitest.Namespace+"/"+name, events)
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
			require.NoError(t, show.Object(&out, show.JSON, "Explanation", report))
			clitest.Golden(t, name+".json", out.String())
		})
	}
}

func TestWhatWouldLetItGo(t *testing.T) {
	waiting := func(cpu string, change func(p *corev1.Pod)) func(c *clitest.Cluster) {
		return func(c *clitest.Cluster) {
			p := c.Pod("p", "", clitest.Plain(cpu, "1Gi"), map[string]string{"app": "p"})
			if change != nil {
				change(p)
			}
		}
	}
	full := func(node string) func(c *clitest.Cluster) {
		return func(c *clitest.Cluster) { c.Pod("full-"+node, node, clitest.Plain("8", "1Gi"), nil) }
	}
	controlPlane := func(c *clitest.Cluster) {
		c.Node("cp-1", "a", "8", "8Gi", corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})
	}
	urgent := func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1000) }
	for _, tc := range []struct {
		name  string
		build []func(c *clitest.Cluster)
		want  []string
	}{
		{"a scheduler", []func(*clitest.Cluster){waiting("1", func(p *corev1.Pod) { p.Spec.SchedulerName = "zonewize" })}, []string{
			`no change is needed: 1 node would take it. No scheduler has reported on it: is a scheduler called "zonewize" running?`,
		}},
		{"time", []func(*clitest.Cluster){waiting("1", func(p *corev1.Pod) { refused(p, "0/1") })}, []string{"no change is needed: 1 node would take it. What the scheduler said is about its last attempt; it tries again when something changes"}},
		{"a gate", []func(*clitest.Cluster){waiting("1", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} })}, []string{
			"its scheduling gates must be removed: quota",
		}},
		{"a device", []func(*clitest.Cluster){waiting("1", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		})}, []string{"DynamicResources must let it into the queue: "}},
		{"another node", []func(*clitest.Cluster){waiting("4", nil), full("node-a")}, []string{"in zone a: 1 more node like node-a"}},
		{"a node of a kind that is large enough", []func(*clitest.Cluster){waiting("10", nil)}, []string{
			"more nodes like those of the cluster would not: see above what is in the way",
		}},
		{"a worker, not the node of the control plane, which has the first name", []func(*clitest.Cluster){waiting("4", nil), full("node-a"), controlPlane}, []string{"in zone a: 1 more node like node-a"}},
		{"a node of a rare kind, of which it selects", []func(*clitest.Cluster){waiting("4", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"shared": "true"}
		}), full("node-a"), func(c *clitest.Cluster) {
			c.Node("node-a-2", "a", "8", "8Gi").Labels["shared"] = "true"
			c.Pod("full-node-a-2", "node-a-2", clitest.Plain("8", "1Gi"), nil)
			for i, cpu := range []string{"16", "32", "64"} {
				for j := range 2 {
					c.Node(fmt.Sprintf("other-%d-%d", i, j), "a", cpu, "8Gi")
				}
			}
		}}, []string{"in zone a: 1 more node like node-a-2"}},
		{"a node in the zone of its volume", []func(*clitest.Cluster){waiting("4", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}), full("node-a"), full("node-b"), func(c *clitest.Cluster) {
			c.Node("node-b", "b", "8", "8Gi")
			c.Add(volume("b")...)
		}}, []string{"in zone b: 1 more node like node-b"}},
		{"a DaemonSet's own node", []func(*clitest.Cluster){full("node-a"), waiting("1", func(p *corev1.Pod) {
			clitest.Owned(p, "apps/v1", "DaemonSet", "agent")
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}},
				}}},
			}}}
		}), func(c *clitest.Cluster) { c.Node("node-b", "b", "8", "8Gi") }}, []string{"room on the node that its controller has made it for"}},
		{"preemption", []func(*clitest.Cluster){waiting("4", urgent), full("node-a")}, []string{
			"no change is needed: it preempts shop/full-node-a on node node-a. No scheduler has reported on it",
		}},
		{"the end of those that it has preempted", []func(*clitest.Cluster){waiting("4", func(p *corev1.Pod) {
			urgent(p)
			p.Status.NominatedNodeName = "node-a"
		}), full("node-a"), func(c *clitest.Cluster) { terminate(c, "full-node-a", 30*time.Minute) }}, []string{
			"no change is needed: it would get node node-a in 30m, when pods have ended or the grace period of a policy is over",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := oneNode()
			for _, build := range tc.build {
				build(c)
			}
			requireNext(t, tc.want, pod(t, c, "p"))
		})
	}
}

// oneNode is a cluster with one node.
func oneNode() *clitest.Cluster {
	c := clitest.New()
	c.Node("node-a", "a", "8", "8Gi")
	return c
}

// requireNext compares what a report suggests with the suggestions, each whole or its beginning.
func requireNext(t *testing.T, want []string, r *explain.Report) {
	t.Helper()
	require.Len(t, r.Next, len(want), "%q", r.Next)
	for i := range want {
		require.True(t, strings.HasPrefix(r.Next[i], want[i]), "%q", r.Next)
	}
}

// terminate has a pod end after a while.
func terminate(c *clitest.Cluster, name string, after time.Duration) {
	for _, p := range c.Pods() {
		if p.Name == name {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(clitest.Now.Add(after))), ptr.To(int64(after.Seconds()))
		}
	}
}

// TestNominations: a pod that has preempted others says for which it waits, and until when.
func TestNominations(t *testing.T) {
	for want, tc := range map[string]struct {
		node  string
		after time.Duration
	}{
		"nominated to node node-a: waits for 1 pod there to end in the next 30m":                    {"node-a", 30 * time.Minute},
		"nominated to node node-a: waits for 1 pod there to end, which have had their grace period": {"node-a", -time.Minute},
		"nominated to node node-a, where no pod has to end":                                         {"node-a", 0},
		"nominated to node node-x, which does not exist":                                            {"node-x", 0},
	} {
		c := oneNode()
		c.Pod("victim", "node-a", clitest.Plain("8", "1Gi"), nil)
		if tc.after != 0 {
			terminate(c, "victim", tc.after)
		}
		c.Pod("p", "", clitest.Plain("4", "1Gi"), nil).Status.NominatedNodeName = tc.node
		require.Contains(t, text(t, pod(t, c, "p"), 0), want)
	}
}

// TestWhatNodesLack: of each kind of node, the one that lacks least; other pools, which the pod does not tolerate, hide
// none.
func TestWhatNodesLack(t *testing.T) {
	c := clitest.New()
	for i := range 15 {
		c.Node(fmt.Sprintf("pool-%02d", i), "a", "8", "8Gi", corev1.Taint{Key: "dedicated", Value: fmt.Sprintf("team-%02d", i), Effect: corev1.TaintEffectNoSchedule})
	}
	c.Node("small", "a", "1", "8Gi")
	c.Node("full", "a", "4", "4Gi")
	c.Node("nearly", "a", "4", "4Gi")
	c.Pod("a", "full", clitest.Plain("4", "1Gi"), nil)
	c.Pod("b", "nearly", clitest.Plain("2500m", "3584Mi"), nil)
	c.Pod("p", "", clitest.Plain("2", "1Gi"), nil)
	require.Contains(t, text(t, pod(t, c, "p"), 0), `
  - 15 nodes (TaintToleration): node(s) had untolerated taint(s)
  - 2 nodes (NodeResourcesFit): Insufficient cpu
    small lacks 1 cpu (1 free, 2 asked for)
    full lacks 2 cpu (0 free, 2 asked for)
  - 1 node (NodeResourcesFit): Insufficient cpu, Insufficient memory
    nearly lacks 500m cpu (1500m free, 2 asked for), 512Mi memory (512Mi free, 1Gi asked for)
`)
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
	members := func(n int, cpu string) func(c *clitest.Cluster) {
		return func(c *clitest.Cluster) { c.Members("gang", cpu, make([]string, n)...) }
	}
	// each changes the members.
	each := func(c *clitest.Cluster, change func(p *corev1.Pod)) {
		for _, p := range c.Pods() {
			if p.Labels["app"] == "gang" {
				change(p)
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
			"PodGroup shop/gang needs 2 more members at once, and 1 of them would find a node; gang-1 is the first that would not",
			"in zone a: 1 more node like node-a",
		}},
		{"a node for all members, like a worker", 8, func(c *clitest.Cluster) {
			c.Node("cp-1", "a", "8", "64Gi", corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})
			c.Pod("full", "node-a", clitest.Plain("8", "1Gi"), nil)
			members(8, "1")(c)
		}, []string{
			"PodGroup shop/gang needs 8 more members at once, and 0 of them would find a node; gang-0 is the first that would not",
			"in zone a: 1 more node like node-a",
		}},
		{"nodes in several zones", 4, func(c *clitest.Cluster) {
			c.Node("node-b", "b", "8", "8Gi")
			c.Pod("full-a", "node-a", clitest.Plain("8", "1Gi"), nil)
			c.Pod("full-b", "node-b", clitest.Plain("8", "1Gi"), nil)
			members(4, "4")(c)
			each(c, func(p *corev1.Pod) {
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("gang", 1)}
			})
		}, []string{
			"PodGroup shop/gang needs 4 more members at once, and 0 of them would find a node; gang-0 is the first that would not",
			"in several zones: 1 more node like node-a, 1 more node like node-b",
		}},
		{"time", 2, members(2, "4"), []string{"no change is needed: PodGroup shop/gang needs 2 more members at once, and they fit now. The scheduler tries again"}},
		{"preemption", 2, func(c *clitest.Cluster) {
			c.Pod("low", "node-a", clitest.Plain("8", "1Gi"), nil)
			members(2, "4")(c)
			each(c, func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1000) })
		}, []string{"no change is needed: PodGroup shop/gang needs 2 more members at once, and they fit now: they preempt shop/low. "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := oneNode()
			if tc.minMember > 0 {
				c.Gang("gang", tc.minMember)
			}
			tc.build(c)
			requireNext(t, tc.want, gang(t, c, "gang"))
		})
	}
}

// TestAPackedGang: each zone has room for a part of it. That its members would find nodes one by one is no answer.
func TestAPackedGang(t *testing.T) {
	c := clitest.New()
	for _, zone := range []string{"a", "b"} {
		c.Node("node-"+zone, zone, "8", "64Gi")
	}
	c.Gang("gang", 4).Annotations = map[string]string{"zonewise.dev/required-topology": corev1.LabelTopologyZone}
	c.Members("gang", "4", "", "", "", "")
	r := gang(t, c, "gang")
	require.Nil(t, r.Gang.Fit)
	require.NotContains(t, text(t, r, 0), "would find a node")
	require.Contains(t, r.Gang.Why, "no room for 4 members at once in one topology.kubernetes.io/zone")
	require.Equal(t, []string{
		"PodGroup shop/gang needs 4 more members at once on nodes with the same topology.kubernetes.io/zone",
		"in zone a: 1 more node like node-a", "in zone b: 1 more node like node-b",
	}, r.Next)
	require.Len(t, r.Zone, 2)
}

// TestAGangSaysASentenceOnce: members, the PodGroup and the copy of the cluster say the same about nodes of different
// numbers.
func TestAGangSaysASentenceOnce(t *testing.T) {
	c := oneNode()
	c.Gang("gang", 3)
	c.Members("gang", "4", "", "", "")
	words := gang(t, c, "gang").Gang.Why
	require.NotEmpty(t, words)
	_, said, _ := strings.Cut(words, " nodes are available: ")
	said = strings.TrimSuffix(said, ".")
	for i, p := range c.Pods() {
		refused(p, fmt.Sprintf("0/%d nodes are available: %s.", 7+i, said))
	}
	event := eventsv1.Event{Reason: corev1.PodReasonUnschedulable, Note: said, DeprecatedCount: 2, DeprecatedLastTimestamp: metav1.NewTime(clitest.Now)}
	r := gang(t, c, "gang", event, event)
	require.Equal(t, 1, strings.Count(text(t, r, 0), said), text(t, r, 0))
	require.Len(t, r.Said, 1)
}

// refused has the scheduler say why a pod waits.
func refused(p *corev1.Pod, words string) {
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: words},
	}
}

func TestTheWordsOfMostMembersComeFirst(t *testing.T) {
	c := clitest.Story()
	for _, p := range c.Pods() {
		for i, words := range []string{"first", "second", "first", "third"} {
			if p.Name == fmt.Sprintf("train-%d", i) {
				refused(p, words)
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
			c := oneNode()
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
	c := oneNode()
	first := c.Running("web", "1", nil, "node-a")[0]
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
	c := oneNode()
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
	c := oneNode()
	c.Reservation("failover", "web", "6", 0, map[string]int64{"node-a": 1})
	c.Pod("p", "", clitest.Plain("4", "1Gi"), nil)
	require.Contains(t, text(t, pod(t, c, "p"), 0), "ReserveCache", "Zonewise replaces kube-scheduler")

	c.Pod("web-0", "node-a", clitest.Plain("1", "1Gi"), map[string]string{"app": "web"}).Spec.SchedulerName = "zonewise-scheduler"
	r := pod(t, c, "p")
	require.NotContains(t, text(t, r, 0), "ReserveCache")
	require.Contains(t, r.Gaps, `the configuration has no profile for the scheduler "default-scheduler", but for zonewise-scheduler; the verdicts are those of a plain kube-scheduler (see --config)`)
}
