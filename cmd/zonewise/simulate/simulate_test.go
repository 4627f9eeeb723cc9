package simulate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

func run(t *testing.T, c *clitest.Cluster, s *Scenario) *Result {
	t.Helper()
	result, err := Run(t.Context(), census.Take(c.Snapshot), s, sim.Options{})
	require.NoError(t, err)
	return result
}

// parse reads the workload of a file for a cluster with one class of priorities.
func parse(t *testing.T, manifests string, copies int) *Workload {
	t.Helper()
	c := clitest.New()
	c.Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
	return parseFor(t, c, manifests, copies)
}

func parseFor(t *testing.T, c *clitest.Cluster, manifests string, copies int) *Workload {
	t.Helper()
	w, err := ParseWorkload(t.Context(), "workload.yaml", strings.NewReader(manifests), clitest.Namespace, copies, c.Snapshot, nil)
	require.NoError(t, err)
	return w
}

// refusal is why the workload of a file is not taken.
func refusal(t *testing.T, s *snapshot.Snapshot, manifests string) error {
	t.Helper()
	_, err := ParseWorkload(t.Context(), "w.yaml", strings.NewReader(manifests), clitest.Namespace, 1, s, nil)
	return err
}

// text is what a user reads of results.
func text(t *testing.T, results ...*Result) string {
	t.Helper()
	return textOf(t, NewReport(results, DefaultFailures))
}

func textOf(t *testing.T, report *Report) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, report.Text(&out, show.Style{}))
	return out.String()
}

// golden compares a report, as text and as YAML, with files.
func golden(t *testing.T, name string, report *Report) {
	t.Helper()
	clitest.Golden(t, name+".txt", textOf(t, report))
	var out bytes.Buffer
	require.NoError(t, show.Object(&out, show.YAML, "Simulation", report))
	clitest.Golden(t, name+".yaml", out.String())
}

func TestGolden(t *testing.T) {
	c := clitest.Story()
	var each []*Result
	for _, zone := range []string{"a", "b", "c"} {
		each = append(each, run(t, c, &Scenario{Zones: []string{zone}}))
	}
	for name, report := range map[string]*Report{
		"any":  NewReport(each, DefaultFailures),
		"node": NewReport([]*Result{run(t, c, &Scenario{Nodes: []string{"node-b1"}})}, DefaultFailures),
		"add":  NewReport([]*Result{run(t, c, &Scenario{Added: parse(t, gangManifest, 2)})}, DefaultFailures),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, report) })
	}
}

const gangManifest = `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: batch}
spec: {minMember: 2}
---
# A comment, and nothing else.
---
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  parallelism: 2
  template:
    metadata: {labels: {scheduling.x-k8s.io/pod-group: batch}}
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: none, resources: {requests: {cpu: "5"}}}
`

// zones is a cluster of three zones with one node of so many CPUs each.
func zones(cpu string) *clitest.Cluster {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node("node-"+zone, zone, cpu, "64Gi")
	}
	return c
}

// onEach names n nodes, those of zones in turn.
func onEach(n int) []string { return clitest.InTurn(n, "node-a", "node-b", "node-c") }

func TestWhatFits(t *testing.T) {
	for cpu, pending := range map[string]int{"6": 0, "5": 2} {
		c := zones(cpu)
		c.Running("web", "1", nil, onEach(12)...)
		r := run(t, c, &Scenario{Zones: []string{"b"}})
		require.Equal(t, 4, r.Displaced)
		require.Equal(t, pending, r.Pending)
		require.Equal(t, 4-pending, r.Placed)
		require.Equal(t, pending == 0, NewReport([]*Result{r}, DefaultFailures).Survives)
		require.Len(t, r.Workloads, 1)
		require.Equal(t, "Deployment shop/web", r.Workloads[0].Name)
		if pending > 0 {
			require.Len(t, r.Workloads[0].Why, 1)
			require.Contains(t, r.Workloads[0].Why[0], "0/2 nodes are available: 2 Insufficient cpu")
		}
	}
}

// certificate is a ZoneSurvival of the pods of an app, which 40 seconds ago did not survive a loss.
func certificate(app string, loss v1alpha1.SurvivalLoss) *v1alpha1.ZoneSurvival {
	return &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: "services"},
		Spec: v1alpha1.ZoneSurvivalSpec{Workloads: []v1alpha1.SurvivalWorkload{
			{Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		}},
		Status: v1alpha1.ZoneSurvivalStatus{
			ComputedAt: metav1.NewTime(clitest.Now.Add(-40 * time.Second)), Losses: []v1alpha1.SurvivalLoss{loss},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse}},
		},
	}
}

// TestCertificates: a simulation agrees with what a ZoneSurvival says about the same loss, or says that it does not.
func TestCertificates(t *testing.T) {
	c := zones("5")
	c.Running("web", "1", nil, onEach(12)...)
	asked := certificate("web", v1alpha1.SurvivalLoss{Zone: "b", Displaced: 4, Waiting: 1})
	c.Add(asked)
	b := &Scenario{Zones: []string{"b"}}
	r := run(t, c, b)
	want := Certificate{Name: "services", AgeSeconds: 40, Displaced: 4, Waiting: 1, WaitingHere: 2, Agrees: true, age: "40s"}
	require.Equal(t, []Certificate{want}, r.Certificates)
	require.Contains(t, text(t, r), "ZoneSurvival services, 40s ago, agrees: 1 of 4 displaced pods would wait, 2 here\n")

	asked.Status.Losses[0].Waiting, asked.Status.Conditions[0].Status = 0, metav1.ConditionTrue
	r = run(t, c, b)
	require.False(t, r.Certificates[0].Agrees)
	require.Contains(t, text(t, r), "ZoneSurvival services, 40s ago, disagrees: 0 of 4 displaced pods would wait, 2 here\n")

	for name, other := range map[string]*Scenario{
		"another zone": {Zones: []string{"a"}}, "two zones": {Zones: []string{"a", "b"}}, "a node": {Nodes: []string{"node-b"}},
		"a node more": {Zones: []string{"b"}, AddNodes: 1, Like: "node-a"},
	} {
		require.Empty(t, run(t, c, other).Certificates, name)
	}

	asked.Status.Losses = []v1alpha1.SurvivalLoss{{Node: "node-a", Displaced: 4, Waiting: 3}}
	r = run(t, c, &Scenario{Nodes: []string{"node-a"}})
	require.Len(t, r.Certificates, 1)
	require.True(t, r.Certificates[0].Agrees)
	require.Equal(t, int64(2), r.Certificates[0].WaitingHere)
	require.Empty(t, run(t, c, &Scenario{Nodes: []string{"node-b"}}).Certificates)
	asked.Generation = 1
	require.Empty(t, run(t, c, b).Certificates, "the certificate is about another spec")
}

// TestTrimmedClustersGiveTheSameAnswers: what a snapshot leaves out decides nothing. The gang needs one zone and fits
// into two only.
func TestTrimmedClustersGiveTheSameAnswers(t *testing.T) {
	cluster := func() *clitest.Cluster {
		c := zones("12")
		c.Running("web", "1", nil, onEach(3)...)
		c.Gang("packed", 3).Annotations = map[string]string{"zonewise.dev/required-topology": corev1.LabelTopologyZone}
		c.Members("packed", "4", "node-a", "node-a", "node-a")
		return c
	}
	trimmed := cluster()
	for _, obj := range trimmed.Objects() {
		snapshot.Trim(obj)
	}
	a := &Scenario{Zones: []string{"a"}}
	want, got := run(t, cluster(), a), run(t, trimmed, a)
	require.Equal(t, want.Promises, got.Promises)
	require.Equal(t, want, got)
	at := slices.IndexFunc(got.Promises, func(p Promise) bool { return p.Name == "shop/packed" })
	require.True(t, got.Promises[at].Broken, "three members of 4 CPUs fit into two zones, and not into one")
}

func TestWhichPodsComeBack(t *testing.T) {
	c := zones("8")
	c.Pod("bare", "node-a", clitest.Plain("1", "1Gi"), nil)
	clitest.Owned(c.Pod("daemon", "node-a", clitest.Plain("1", "1Gi"), nil), "apps/v1", "DaemonSet", "d")
	mirror := c.Pod("mirror", "node-a", clitest.Plain("1", "1Gi"), nil)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	c.Pod("waits", "", clitest.Plain("1", "1Gi"), nil)
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []int{0, 1, 2, 1, 0, 0}, []int{r.Displaced, r.Orphans, r.NodeBound, r.WaitedBefore, r.StillWaiting, r.Pending})
	require.Equal(t, []string{FailPending}, r.Failed(Failures), "a pod without a controller is lost")
}

// TestWhoIsNotReplaced: pods that no controller is known to replace are no survivors. The answer says why, names what
// it takes for granted, and looks at the gangs of such pods, too.
func TestWhoIsNotReplaced(t *testing.T) {
	c := zones("8")
	c.Add(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "train", UID: "train"}, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0)},
	})
	c.Gang("train", 2)
	c.Members("train", "1", "node-a", "node-b")
	for _, name := range []string{"task-0", "task-1"} {
		clitest.Owned(c.Pod(name, "node-a", clitest.Plain("1", "1Gi"), nil), "tekton.dev/v1", "TaskRun", "task")
	}
	a := &Scenario{Zones: []string{"a"}}
	r := run(t, c, a)
	require.Equal(t, []int{0, 3, 0}, []int{r.Displaced, r.Orphans, r.Pending})
	require.Equal(t, []Lost{
		{Pods: 2, Why: "no controller is known to replace it: its owner is TaskRun.tekton.dev task"},
		{Pods: 1, Why: "its Job train fails: 1 of its pods have failed (backoffLimit 0)"},
	}, r.NotReplaced)
	require.Equal(t, []string{FailPending, FailGang}, r.Failed(Failures))
	require.Contains(t, text(t, r), "3 pods that no controller replaces\n    2 pods: no controller is known to replace it: its owner is TaskRun.tekton.dev task\n")

	known, err := Run(t.Context(), census.Take(c.Snapshot), a, sim.Options{Controllers: []string{"TaskRun.tekton.dev", "Other.tekton.dev"}})
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, []int{known.Displaced, known.Orphans})
	require.Equal(t, []string{"it is taken for granted that TaskRun.tekton.dev replaces its pods: 2 (--controllers)"}, known.Notes)
}

func TestTheHighestPriorityGoesFirst(t *testing.T) {
	c := zones("4")
	for i, zone := range []string{"a", "b", "c"} {
		priority := int32(i * 100)
		add := c.Deployment("p"+zone, 1, "4", "1Gi", func(t *corev1.PodTemplateSpec) { t.Spec.Priority = &priority })
		add("node-" + zone)
	}
	c.Node("spare", "c", "4", "64Gi")
	r := run(t, c, &Scenario{Zones: []string{"a", "b"}})
	require.Equal(t, 1, r.Pending)
	require.Equal(t, "Deployment shop/pa", r.Workloads[0].Name)
	require.Equal(t, map[string]int{"c": 1}, r.Workloads[1].To)
}

func TestBudgets(t *testing.T) {
	for minAvailable, broken := range map[int32]bool{2: false, 3: true} {
		c := zones("8")
		c.Running("web", "1", nil, onEach(3)...)
		c.Budget("web", minAvailable)
		r := run(t, c, &Scenario{Zones: []string{"a"}})
		require.Equal(t, []Promise{{
			Kind: FailBudget, Name: "shop/web", Wanted: int64(minAvailable), Before: 3, After: 3, Broken: broken,
			Words: fmt.Sprintf("3 -> 2 healthy at once, %d wanted, 3 in the end", minAvailable),
		}}, r.Promises)
		require.Empty(t, r.Failed(DefaultFailures), "a loss is no voluntary disruption")
		require.Equal(t, broken, len(r.Failed([]string{FailBudget})) > 0)
	}
}

// gang is what becomes of a gang.
func gang(name string, needs, before, after int64) Promise {
	return Promise{
		Kind: FailGang, Name: name, Before: before, After: after, Wanted: needs, Broken: after < needs,
		Words: fmt.Sprintf("%d -> %d members bound, %d needed", before, after, needs),
	}
}

func TestGangsAreWholeOrWait(t *testing.T) {
	c := zones("8")
	c.Gang("train", 4)
	c.Members("train", "4", "node-a", "node-a", "node-b", "node-c")
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []Promise{gang("shop/train", 4, 4, 4)}, r.Promises)

	c.Pod("big", "node-b", clitest.Plain("4", "1Gi"), nil)
	r = run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []Promise{gang("shop/train", 4, 4, 2)}, r.Promises)
	require.Equal(t, 2, r.Pending, "the member that fits gives its place back")
	require.Contains(t, r.Workloads[0].Why[0], "PodGroup shop/train: ")
}

func TestAGangThatLosesMembersIsPlannedWithAllThatWait(t *testing.T) {
	c := zones("8")
	c.Gang("train", 3)
	c.Member("train", "train-0", "1", "node-a")
	c.Member("train", "train-1", "7", "node-a")
	c.Member("train", "train-2", "7", "node-b")
	for _, node := range []string{"node-b", "node-c"} {
		c.Pod("other-"+node, node, clitest.Plain("1", "1Gi"), nil)
	}
	c.Pod("full", "node-c", clitest.Plain("5", "1Gi"), nil)
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, 2, r.Pending)
	require.Equal(t, []Promise{gang("shop/train", 3, 3, 1)}, r.Promises)

	c.Member("train", "train-3", "1", "")
	r = run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []Promise{gang("shop/train", 3, 3, 3)}, r.Promises, "train-3 takes the place of train-1")
	require.Equal(t, []int{1, 0}, []int{r.WaitedBefore, r.StillWaiting})
}

func TestMembersThatHaveSucceededCount(t *testing.T) {
	c := zones("8")
	c.Gang("train", 2)
	c.Members("train", "6", "node-a", "node-a")
	c.Pods()[1].Status.Phase = corev1.PodSucceeded
	c.Pod("big", "node-b", clitest.Plain("8", "1Gi"), nil)
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []Promise{gang("shop/train", 2, 2, 2)}, r.Promises)
	require.Zero(t, r.Pending)
}

func TestMembersWithoutAPodGroupWait(t *testing.T) {
	c := zones("8")
	c.Members("train", "1", "node-a")
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, 1, r.Pending)
	require.Contains(t, r.Workloads[0].Why[0], "PodGroup shop/train")
}

func TestPoliciesThatBreak(t *testing.T) {
	build := func(maxPods int32) *clitest.Cluster {
		c := zones("16")
		c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
			for _, zone := range []string{"a", "b", "c"} {
				s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: zone, MaxPods: &maxPods})
			}
		})
		c.Running("web", "1", nil, onEach(6)...)
		return c
	}
	r := run(t, build(3), &Scenario{Zones: []string{"a"}})
	require.Zero(t, r.Pending)
	require.Empty(t, r.Failed(DefaultFailures))
	r = run(t, build(2), &Scenario{Zones: []string{"a"}})
	require.Equal(t, 2, r.Pending, "caps hold during fail-over too")
	require.Equal(t, []string{FailPending, FailPolicy}, r.Failed(DefaultFailures))
	require.Contains(t, r.Promises[0].Words, "2 pods wait because of the policy")
}

func TestReservationsCatchTheirOwners(t *testing.T) {
	c := zones("4")
	c.Reservation("failover", "web", "1", 0, map[string]int64{"node-b": 2, "node-a": 1})
	c.Running("web", "1", nil, "node-a", "node-a")
	c.Running("other", "1", nil, "node-b", "node-b", "node-c", "node-c", "node-c", "node-c")
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Zero(t, r.Pending)
	require.Equal(t, []Promise{{
		Kind: FailReservation, Name: "failover", Before: 3, Wanted: 3, Broken: true, Words: "3 -> 0 unused slots: 1 lost; 0 of 3 held, 0 used",
	}}, r.Promises)
	require.Equal(t, []string{FailReservation}, r.Failed(Failures))
	require.Empty(t, r.Failed(DefaultFailures))
}

func TestAddingAWorkload(t *testing.T) {
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  replicas: 2
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      priorityClassName: high
      topologySpreadConstraints:
      - {topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: api}}}
      containers:
      - {name: c, image: none, resources: {requests: {cpu: "1"}}}
`
	c := zones("4")
	r := run(t, c, &Scenario{Added: parse(t, deployment, 6)})
	require.Equal(t, 12, r.Placed)
	require.Equal(t, []Workloads{{Name: "Deployment shop/api", Pods: 12, To: map[string]int{"a": 4, "b": 4, "c": 4}}}, r.Workloads)
	r = run(t, c, &Scenario{Added: parse(t, deployment, 7)})
	require.Equal(t, 2, r.Pending)
	require.Empty(t, c.Pods(), "the snapshot is not changed")

	// Added, and then a zone is lost: its pods are displaced like others.
	c = zones("8")
	r = run(t, c, &Scenario{Added: parse(t, deployment, 6), Zones: []string{"a"}})
	require.Equal(t, []int{12, 4, 12, 0}, []int{r.Added, r.Displaced, r.Placed, r.Pending})
	require.Equal(t, "add workload.yaml, then lose zone a", r.Scenario)
	require.Equal(t, int32(1000), *parse(t, deployment, 1).Pods[0].Spec.Priority)
}

func TestAddedGangsAndPolicies(t *testing.T) {
	c := zones("4")
	r := run(t, c, &Scenario{Added: parse(t, strings.ReplaceAll(gangManifest, `"5"`, `"3"`), 2)})
	require.Equal(t, 2, r.Placed, "the second gang would be half")
	require.Equal(t, 2, r.Pending)
	require.Equal(t, []Promise{gang("shop/batch-1", 2, 0, 2), gang("shop/batch-2", 2, 0, 0)}, r.Promises)

	const capped = `
apiVersion: zonewise.dev/v1alpha1
kind: ZoneSpreadPolicy
metadata: {name: batch}
spec:
  podSelector: {matchLabels: {app: batch}}
  maxPerZone: 1
---
apiVersion: v1
kind: Pod
metadata: {name: batch, labels: {app: batch}}
spec: {containers: [{name: c, image: none}]}
`
	r = run(t, c, &Scenario{Added: parse(t, capped, 4)})
	require.Equal(t, 3, r.Placed)
	require.Equal(t, 1, r.Pending)
}

func TestBadWorkloads(t *testing.T) {
	for manifest, want := range map[string]string{
		"":          "there is no Pod, Deployment",
		"kind: Pod": "Object 'apiVersion' is missing",
		"apiVersion: v1\nkind: Pod\nspec: {nodes: 3}":                                           `unknown field "spec.nodes"`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: gold}":       `Pod p: the cluster has no priorityClassName "gold"`,
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: -1}":      "Deployment d: spec.replicas is -1, must not be negative",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2000000}": "Deployment d: more than 500000 pods in all",
		"apiVersion: v1\nkind: ReplicationController\nmetadata: {name: r}\nspec: {replicas: 1}": "ReplicationController r: spec.template is missing",
	} {
		err := refusal(t, snapshot.New(clitest.Now), manifest)
		require.ErrorContains(t, err, "w.yaml: ")
		require.ErrorContains(t, err, want)
	}
	unread := snapshot.New(clitest.Now)
	unread.Missing = []snapshot.Missing{{Resource: "priorityclasses.scheduling.k8s.io", Reason: snapshot.Forbidden}}
	err := refusal(t, unread, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: gold}")
	require.ErrorContains(t, err, `Pod p: priorityClassName "gold": the cluster's PriorityClasses could not be read`, "not known is not missing")
}

func TestAddedNodes(t *testing.T) {
	c := zones("4")
	clitest.Owned(c.Pod("daemon", "node-b", clitest.Plain("1", "1Gi"), nil), "apps/v1", "DaemonSet", "d")
	for i := range 3 {
		c.Pod(fmt.Sprintf("large-%d", i), "", clitest.Plain("4", "1Gi"), nil)
		c.Pod(fmt.Sprintf("small-%d", i), "", clitest.Plain("3", "1Gi"), nil)
	}
	r := run(t, c, &Scenario{AddNodes: 2, Like: "node-b"})
	require.Equal(t, "add 2 nodes like node-b", r.Scenario)
	require.Equal(t, []int{2, 6, 1, 0}, []int{r.AddedNodes, r.WaitedBefore, r.StillWaiting, r.Pending}, "3 nodes for one large pod each but node-b and its likes, where a DaemonSet's pod is")
}

func TestVictims(t *testing.T) {
	c := zones("4")
	for _, zone := range []string{"a", "b", "c"} {
		c.Running("low-"+zone, "4", nil, "node-"+zone)
	}
	c.Running("high", "4", func(t *corev1.PodTemplateSpec) { t.Spec.Priority = ptr.To[int32](1000) }, "")
	r := run(t, c, &Scenario{Nodes: []string{"node-c"}})
	require.Equal(t, []int{1, 1, 2, 1, 0}, []int{r.Displaced, r.Evicted, r.Pending, r.WaitedBefore, r.StillWaiting}, "one of the two that are left makes room")
}

func TestScenariosThatName(t *testing.T) {
	for want, scenario := range map[string]*Scenario{
		`--lose-zone: there is no zone "d", only a, b, c`: {Zones: []string{"d"}},
		`--lose-node: there is no node "d"`:               {Nodes: []string{"d"}},
		`--like: there is no node "d"`:                    {AddNodes: 1, Like: "d"},
	} {
		require.EqualError(t, scenario.Check(census.Take(zones("1").Snapshot)), want)
	}
}

func TestProgressEndsAtTheEnd(t *testing.T) {
	var last sim.Progress
	forms := 1
	result, err := Run(t.Context(), census.Take(clitest.Large(60, 1500)), &Scenario{Zones: []string{"a"}}, sim.Options{Progress: func(p sim.Progress) {
		if p.Cycles < last.Cycles {
			require.Zero(t, last.Waiting)
			forms++
			last = sim.Progress{}
		}
		require.GreaterOrEqual(t, p.Bound, last.Bound)
		last = p
	}})
	require.Equal(t, 2, forms)
	require.NoError(t, err)
	require.Equal(t, []int{result.NodesStay.Placed, result.NodesStay.Pending}, []int{last.Bound, last.Waiting})
}

// The API server gives a pod its class' preemption policy too: a class that never preempts evicts no pod for its own.
func TestAClassThatNeverPreempts(t *testing.T) {
	for policy, evicted := range map[corev1.PreemptionPolicy]int{corev1.PreemptNever: 0, corev1.PreemptLowerPriority: 1} {
		t.Run(string(policy), func(t *testing.T) {
			c := clitest.New()
			c.Node("node-a", "a", "2", "8Gi")
			c.Deployment("low", 1, "2", "1Gi", nil)("node-a")
			c.Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "batch"}, Value: 1000, PreemptionPolicy: &policy})
			w := parseFor(t, c, `
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {priorityClassName: batch, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
`, 1)
			require.Equal(t, evicted, run(t, c, &Scenario{Added: w}).Evicted, "pods that the scheduler would preempt")
		})
	}
}
