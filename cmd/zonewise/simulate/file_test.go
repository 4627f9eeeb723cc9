package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

func FuzzParseWorkload(f *testing.F) {
	f.Add(gangManifest, 2)
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: p}", 1)
	f.Add("apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 3, template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}", 1)
	f.Fuzz(func(t *testing.T, manifest string, copies int) {
		if copies < 1 || copies > 3 {
			return
		}
		w, err := ParseWorkload(t.Context(), "fuzz", strings.NewReader(manifest), "shop", copies, snapshot.New(clitest.Now), nil)
		if err != nil || len(w.Pods) > 50 {
			return
		}
		if len(w.Pods)%copies != 0 {
			t.Fatalf("%d pods of %d copies", len(w.Pods), copies)
		}
	})
}

// TestFilesHaveMoreThanWorkloads: what a chart renders is taken as it is. What decides nothing is left out, and named.
func TestFilesHaveMoreThanWorkloads(t *testing.T) {
	w := parse(t, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: web}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: api}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: none, resources: {requests: {cpu: "1"}}}]}
`, 1)
	c := zones("8")
	r := run(t, c, &Scenario{Added: w})
	require.Equal(t, []int{2, 2, 0}, []int{r.Added, r.Placed, r.Pending})
	require.Equal(t, "Deployment shop/web", r.Workloads[0].Name)
	require.Equal(t, []string{"objects of kind ConfigMap are left out", "objects of kind ServiceMonitor are left out"}, w.LeftOut)
	require.Empty(t, r.Notes)
	require.Len(t, w.others, 3, "the Service, the Deployment and its ReplicaSet")
}

// deployment is a manifest of a Deployment whose pods ask for CPUs.
func deployment(name, replicas, cpu string) string {
	if replicas != "" {
		replicas = "replicas: " + replicas + ","
	}
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: ` + name + `, labels: {from: file}}
spec: {` + replicas + ` selector: {matchLabels: {app: ` + name + `}}, template: {metadata: {labels: {app: ` + name + `}}, spec: {
  containers: [{name: c, image: some:2, env: [{name: A, value: b}], resources: {requests: {cpu: "` + cpu + `", memory: 1Gi}}}]}}}
`
}

// TestWorkloadsThatExistAreChanged: they are not there twice. New replicas join the old ones, and a template that
// changes has all replaced.
func TestWorkloadsThatExistAreChanged(t *testing.T) {
	for name, test := range map[string]struct {
		file           string
		copies         int
		added, removed int
		want           map[string]int // the pods of each zone
	}{
		"more replicas":       {file: deployment("web", "9", "1"), added: 3, want: map[string]int{"a": 3, "b": 3, "c": 3}},
		"fewer replicas":      {file: deployment("web", "3", "1"), removed: 3, want: map[string]int{"a": 1, "b": 1, "c": 1}},
		"as many":             {file: deployment("web", "6", "1"), want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"replicas left out":   {file: deployment("web", "", "1"), want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"none":                {file: deployment("web", "0", "1"), removed: 6, want: map[string]int{}},
		"other requests":      {file: deployment("web", "6", "2"), added: 6, removed: 6, want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"copies":              {file: deployment("web", "6", "1"), copies: 2, added: 6, want: map[string]int{"a": 4, "b": 4, "c": 4}},
		"another one":         {file: deployment("api", "3", "1"), added: 3, want: map[string]int{"a": 3, "b": 3, "c": 3}},
		"its ReplicaSet only": {file: strings.ReplaceAll(strings.ReplaceAll(deployment("web", "8", "1"), "kind: Deployment", "kind: ReplicaSet"), "name: web,", "name: web-1,"), added: 2, want: map[string]int{"a": 3, "b": 3, "c": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c := zones("8")
			c.Running("web", "1", nil, onEach(6)...)
			c.Budget("web", 3).Spec.MinAvailable = ptr.To(intstr.FromString("50%"))
			r := run(t, c, &Scenario{Added: parseFor(t, c, test.file, max(1, test.copies))})
			require.Equal(t, []int{test.added, test.removed, test.added}, []int{r.Added, r.Removed, r.Placed})
			all := 0
			for _, z := range r.Zones {
				require.Equal(t, test.want[z.Name], z.After.Pods, "zone %s", z.Name)
				all += z.After.Pods
			}
			for _, promise := range r.Promises {
				if promise.Kind == FailBudget {
					half := int64(all+1) / 2
					require.Equal(t, promise.Wanted, half, "the budget is counted again")
				}
			}
			require.Empty(t, r.Failed(DefaultFailures))
		})
	}
}

// TestStatefulSetsThatExistAreChanged: their pods are numbered, and keep their claims.
func TestStatefulSetsThatExistAreChanged(t *testing.T) {
	manifest := func(replicas, cpu string) string {
		return `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: ` + replicas + `, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {
  containers: [{name: c, image: some:2, resources: {requests: {cpu: "` + cpu + `"}}}]}},
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}
`
	}
	const class = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: csi.example.com
volumeBindingMode: WaitForFirstConsumer
---`
	first := parse(t, class+manifest("3", "1"), 1)
	c := zones("8")
	s, err := sim.Of(t.Context(), c.Snapshot, sim.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	set := first.others[1].DeepCopyObject().(*appsv1.StatefulSet) //nolint:forcetypeassert // as the file says
	for i, pod := range first.Pods {
		pod.Name = fmt.Sprintf("db-%d", i)
	}
	for i, claim := range claimsOf(first) {
		claim.Name = fmt.Sprintf("data-db-%d", i)
		first.Pods[i].Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim.Name
	}
	require.NoError(t, s.Add(first.objects()...))
	require.NoError(t, s.Run(t.Context()))
	running := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	for _, obj := range s.Objects() {
		obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
		snapshot.Trim(obj)
		running.Add(obj)
	}
	for name, test := range map[string]struct {
		replicas, cpu        string
		added, removed, news []string
	}{
		"more":           {"5", "1", []string{"db-3", "db-4"}, nil, []string{"data-db-3", "data-db-4"}},
		"fewer":          {"1", "1", nil, []string{"db-2", "db-1"}, nil},
		"other requests": {"3", "2", []string{"db-0", "db-1", "db-2"}, []string{"db-0", "db-1", "db-2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := parseFor(t, running, manifest(test.replicas, test.cpu), 1)
			require.Equal(t, test.added, namesOf(w.Pods))
			require.Equal(t, test.removed, namesOf(w.removed))
			var news []string
			for _, claim := range claimsOf(w) {
				news = append(news, claim.Name)
			}
			require.Equal(t, test.news, news)
			for _, pod := range w.Pods {
				require.Equal(t, set.UID, pod.OwnerReferences[0].UID)
			}
			r := run(t, running, &Scenario{Added: w})
			require.Zero(t, r.Pending)
		})
	}
}

func claimsOf(w *Workload) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for _, obj := range w.others {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			out = append(out, claim)
		}
	}
	return out
}

// TestJobsThatExistStay: nobody can change their pods.
func TestJobsThatExistStay(t *testing.T) {
	c := zones("8")
	c.Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "batch"}})
	w := parseFor(t, c, gangManifest, 1)
	require.Empty(t, w.Pods)
	require.Equal(t, []string{"Job shop/batch is there already, and stays as it is"}, w.LeftOut)
}

// TestPodsAreAdmitted: they ask for what the API server has them ask for, or it refuses them.
func TestPodsAreAdmitted(t *testing.T) {
	const limits = `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, default: {cpu: "3"}, defaultRequest: {cpu: "2"}, max: {cpu: "4"}}]}
---`
	const runtimeClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: vm}
handler: vm
overhead: {podFixed: {cpu: "1"}}
scheduling: {nodeSelector: {topology.kubernetes.io/zone: b}}
---`
	pod := func(spec string) string {
		return "\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + spec + "}\n"
	}
	const plain, large = "containers: [{name: c, image: none}]", `containers: [{name: c, image: none, resources: {limits: {cpu: "5"}}}]`
	for name, test := range map[string]struct {
		file   string
		placed int // of 20
		zone   string
		err    string
	}{
		"without limits":           {file: pod(plain), placed: 20},
		"defaults of a LimitRange": {file: limits + pod(plain), placed: 12},
		"above its maximum":        {file: limits + pod(large), err: "LimitRange defaults refuses its pods: maximum cpu usage per Container is 4, but limit is 5"},
		"a RuntimeClass":           {file: runtimeClass + pod("runtimeClassName: vm, "+plain), placed: 8, zone: "b"},
		"both":                     {file: runtimeClass + limits + pod("runtimeClassName: vm, "+plain), placed: 2, zone: "b"},
		"an unknown RuntimeClass":  {file: pod("runtimeClassName: vm, " + plain), err: `the cluster has no runtimeClassName "vm"`},
		"another node selector":    {file: runtimeClass + pod("runtimeClassName: vm, nodeSelector: {topology.kubernetes.io/zone: a}, "+plain), err: "RuntimeClass vm refuses its pods: "},
		"their order in the file":  {file: pod(plain) + "---" + strings.TrimSuffix(limits, "---"), placed: 12},
	} {
		t.Run(name, func(t *testing.T) {
			c := zones("8")
			if test.err != "" {
				require.ErrorContains(t, refusal(t, c.Snapshot, test.file), test.err)
				return
			}
			r := run(t, c, &Scenario{Added: parseFor(t, c, test.file, 20)})
			require.Equal(t, test.placed, r.Placed)
			for _, z := range r.Zones {
				require.True(t, test.zone == "" || z.Name == test.zone || z.After.Pods == 0, z.Name)
			}
		})
	}
}

// TestANewBudgetCountsItsPods: the disruption controller would do so at once.
func TestANewBudgetCountsItsPods(t *testing.T) {
	c := zones("8")
	budget := "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}\n"
	w := parseFor(t, c, deployment("web", "6", "1")+budget, 1)
	s, err := sim.Of(t.Context(), c.Snapshot, sim.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	p := &scenarioRun{ctx: t.Context(), sim: s, moved: map[types.UID]bool{}, added: map[types.UID]bool{}, result: &Result{}}
	require.NoError(t, p.createWorkload(w))
	require.NoError(t, s.Run(t.Context()))
	got, _ := sim.Get[*policyv1.PodDisruptionBudget](s, clitest.Namespace, "web")
	require.Equal(t, []int32{6, 3, 6, 3}, []int32{got.Status.ExpectedPods, got.Status.DesiredHealthy, got.Status.CurrentHealthy, got.Status.DisruptionsAllowed})
}

const agentManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
---
`

// TestDaemonSetsOfAFile take room on each node that they want, also on those that are added.
func TestDaemonSetsOfAFile(t *testing.T) {
	c := zones("2")
	nodes := snapshot.List[*corev1.Node](c.Snapshot)
	nodes[0].Labels["disk"], nodes[1].Labels["disk"] = "ssd", "ssd"
	nodes[0].Spec.Unschedulable = true // which a DaemonSet's pods tolerate
	w := parseFor(t, c, agentManifest+deployment("web", "3", "2"), 1)
	require.Empty(t, w.LeftOut)
	r := run(t, c, &Scenario{Added: w})
	require.Equal(t, []int{5, 3, 2}, []int{r.Added, r.Placed, r.Pending}, "two agents, and of web only the pod in the zone without one")
	r = run(t, c, &Scenario{Added: w, AddNodes: 2, Like: nodes[2].Name})
	require.Equal(t, []int{5, 5}, []int{r.Added, r.Placed}, "the added nodes have no such disk")
	r = run(t, c, &Scenario{Added: w, AddNodes: 2, Like: nodes[1].Name})
	require.Equal(t, 7, r.Added, "the added nodes have agents, too")
}

// TestGenerateName: objects that the API server names are told apart.
func TestGenerateName(t *testing.T) {
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: build-}\nspec: {parallelism: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
	c := zones("64")
	r := run(t, c, &Scenario{Added: parseFor(t, c, job+"---\n"+job, 1)})
	require.Equal(t, 4, r.Placed)
	require.Len(t, r.Workloads, 2)
	require.True(t, strings.HasPrefix(r.Workloads[0].Name, "Job shop/build-"), r.Workloads[0].Name)
}

// TestPriorityClasses: as upstream's plugin, of several defaults the lowest counts, and a number of the pod's own is
// refused.
func TestPriorityClasses(t *testing.T) {
	c := zones("8")
	for name, value := range map[string]int32{"high": 100, "low": 10} {
		c.Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: true, PreemptionPolicy: ptr.To(corev1.PreemptNever)})
	}
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]"
	spec := parseFor(t, c, pod+"}", 1).Pods[0].Spec
	require.Equal(t, []any{int32(10), corev1.PreemptNever}, []any{*spec.Priority, *spec.PreemptionPolicy})
	require.ErrorContains(t, refusal(t, c.Snapshot, pod+", priority: 7}"), "the integer value of priority (7) must not be provided in pod spec")
}

// dryRun is an API server that adds a sidecar, and refuses pods of one name.
type dryRun struct {
	client.Client
	asked []string
}

func (d *dryRun) Create(_ context.Context, obj client.Object, options ...client.CreateOption) error {
	var o client.CreateOptions
	o.ApplyOptions(options)
	pod := obj.(*corev1.Pod)
	d.asked = append(d.asked, fmt.Sprint(pod.Namespace, "/", pod.GenerateName, pod.Name, o.DryRun, pod.Spec.ServiceAccountName))
	if pod.GenerateName == "refused-" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "refused", errors.New("exceeded quota: q"))
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar", Resources: corev1.ResourceRequirements{Requests: clitest.Requests("3", "1Gi")}})
	pod.Spec.Priority, pod.Spec.SchedulerName = ptr.To[int32](5), corev1.DefaultSchedulerName
	pod.UID, pod.ResourceVersion = "of the dry run", "1"
	return nil
}

// TestTheAPIServerAdmitsOnePodOfEachTemplate by a dry run, with what webhooks add.
func TestTheAPIServerAdmitsOnePodOfEachTemplate(t *testing.T) {
	c := zones("8")
	server := &dryRun{}
	manifest := strings.Replace(deployment("web", "6", "1"), "containers:", "serviceAccountName: of-the-file, containers:", 1)
	require.Contains(t, manifest, "of-the-file")
	w, err := ParseWorkload(t.Context(), "file", strings.NewReader(manifest), clitest.Namespace, 1, c.Snapshot, server)
	require.NoError(t, err)
	require.Equal(t, []string{"shop/web-simulated-[All]"}, server.asked)
	require.Len(t, w.Pods, 6)
	require.Len(t, w.Pods[5].Spec.Containers, 2)
	require.NotEqual(t, w.Pods[4].UID, w.Pods[5].UID)
	require.Equal(t, 6, run(t, c, &Scenario{Added: w}).Placed, "two of 4 CPUs on each node")
	_, err = ParseWorkload(t.Context(), "file", strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: refused}\nspec: {containers: [{name: c, image: i}]}\n"), clitest.Namespace, 1, c.Snapshot, server)
	require.ErrorContains(t, err, "Pod refused: the API server refuses its pods: ")
	require.ErrorContains(t, err, "exceeded quota: q")
}
