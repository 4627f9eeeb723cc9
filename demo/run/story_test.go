package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// scene is a demo whose watches know a small plan that is settled.
type scene struct {
	*demo
	t       *testing.T
	cluster client.Client
}

func newScene(t *testing.T) *scene {
	t.Helper()
	plan := &workload.Plan{
		Zones: []string{"a", "b"}, Nodes: []workload.Node{{Name: "n1", Zone: "a"}, {Name: "n2", Zone: "b"}}, Workers: 1,
		Services: []workload.Service{{App: "web", Role: workload.CPURole, Replicas: 1}},
		Gangs:    []workload.Gang{{Name: "fits", Members: 1, Fits: true}, {Name: "large", Members: 1}},
	}
	s := &scene{t: t, cluster: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()}
	s.demo = &demo{plan: plan, zones: zoneNames(plan.Nodes), progress: &progress{}, deployments: 2, seen: &watch{reader: s.cluster, lives: map[types.UID]*life{}}}
	for _, d := range []*appsv1.Deployment{plan.Deployment(plan.Services[0]), plan.Batch()} {
		d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
		s.create(d)
	}
	s.pod(workload.ServiceNamespace, "web", "n1", plan.Deployment(plan.Services[0]).Labels)
	s.pod(workload.BatchNamespace, "batch", "n2", plan.Batch().Labels)
	s.pod(workload.GangNamespace, "fits-0", "n1", map[string]string{schedv1alpha1.PodGroupLabel: "fits"})
	s.pod(workload.GangNamespace, "large-0", "", map[string]string{schedv1alpha1.PodGroupLabel: "large"})
	return s
}

func (s *scene) create(obj client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.cluster.Create(context.Background(), obj))
}

func (s *scene) pod(namespace, name, node string, labels map[string]string) {
	s.t.Helper()
	s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}})
}

// edit changes a pod.
func (s *scene) edit(namespace, name string, change func(*corev1.Pod)) {
	s.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(s.t, s.cluster.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, pod))
	change(pod)
	conditions := pod.Status.Conditions
	require.NoError(s.t, s.cluster.Update(context.Background(), pod))
	pod.Status.Conditions = conditions
	require.NoError(s.t, s.cluster.Status().Update(context.Background(), pod))
}

// rollout changes the status of the service's Deployment.
func (s *scene) rollout(change func(*appsv1.DeploymentStatus)) {
	s.t.Helper()
	d := &appsv1.Deployment{}
	require.NoError(s.t, s.cluster.Get(context.Background(), client.ObjectKey{Namespace: workload.ServiceNamespace, Name: "web-cn"}, d))
	change(&d.Status)
	require.NoError(s.t, s.cluster.Status().Update(context.Background(), d))
}

func TestUnsettledNamesWhatIsInMotion(t *testing.T) {
	require.Empty(t, newScene(t).unsettled())
	for _, tc := range []struct {
		harm func(*scene)
		want string
	}{
		{func(s *scene) { s.deployments++ }, "2 of 3 Deployments are known"},
		{func(s *scene) {
			s.edit(workload.ServiceNamespace, "web", func(p *corev1.Pod) { p.Spec.NodeName = "" })
		}, "0 of 1 pods of web-cn are placed"},
		{func(s *scene) {
			s.edit(workload.BatchNamespace, "batch", func(p *corev1.Pod) { p.Spec.NodeName = "" })
		}, "0 of 1 pods of batch-workers are placed"},
		{func(s *scene) { s.rollout(func(d *appsv1.DeploymentStatus) { d.UpdatedReplicas = 0 }) }, "web-cn is being rolled out"},
		{func(s *scene) { s.rollout(func(d *appsv1.DeploymentStatus) { d.AvailableReplicas = 0 }) }, "0 of 1 pods of web-cn are available"},
		{func(s *scene) {
			s.edit(workload.GangNamespace, "fits-0", func(p *corev1.Pod) { p.Spec.NodeName = "" })
		}, "gang fits is not whole: 0 of 1 bound"},
		{func(s *scene) {
			require.NoError(t, s.cluster.Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: workload.GangNamespace, Name: "large-0"}}))
		}, "gang large has 0 pods of 1"},
		{func(s *scene) {
			s.edit(workload.ServiceNamespace, "web", func(p *corev1.Pod) { p.Finalizers = []string{"a.b/c"} })
			require.NoError(t, s.cluster.Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: workload.ServiceNamespace, Name: "web"}}))
		}, "pod services/web is going"},
	} {
		s := newScene(t)
		tc.harm(s)
		require.Equal(t, tc.want, s.unsettled())
	}
}

// A batch worker for which there is no room has been tried: there is nothing to wait for.
func TestABatchWorkerThatWasRefusedIsSettled(t *testing.T) {
	s := newScene(t)
	s.edit(workload.BatchNamespace, "batch", func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	})
	require.Empty(t, s.unsettled())
	require.Equal(t, "2 pods bound, 2 wait; a 2 b 0", s.placeOutcome())
}

func TestUntilSaysWhatWasMissingWhenTheTimeWasUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	err := until(ctx, func() string {
		if asked++; asked == 3 {
			cancel(errTimeout)
		}
		return "pod x waits"
	})
	require.ErrorIs(t, err, errTimeout)
	require.EqualError(t, err, "timed out: pod x waits")

	ctx, cancel = context.WithCancelCause(t.Context())
	crash := errors.New("crash")
	cancel(crash)
	require.Equal(t, crash, until(ctx, func() string { return "x" }))
}

func TestWatchNotesLives(t *testing.T) {
	w := &watch{lives: map[types.UID]*life{}}
	start := time.Now()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "services", Name: "shop-1", UID: "1", Labels: map[string]string{workload.AppLabel: "shop", workload.RoleLabel: "cn"}}}
	w.see(pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no room"}}
	w.see(pod)
	require.Empty(t, w.livesSince(start, bound))
	pod.Spec.NodeName = "n1"
	w.see(pod)
	w.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, UID: "probe"}})
	lives := w.livesSince(start, created)
	require.Len(t, lives, 1)
	require.Len(t, w.livesSince(start, bound), 1)
	require.Empty(t, w.livesSince(time.Now().Add(time.Hour), bound))

	other := life{app: "web", role: "cn"}
	lives["2"] = other
	lives["3"] = life{name: "shop-3", app: "shop", role: "cn", created: start, bound: start.Add(time.Second)}
	got := displaced(lives, "shop", "cn", map[types.UID][]string{"3": {"0/3 nodes"}})
	require.Len(t, got, 2)
	require.Equal(t, []string{"Unschedulable: no room"}, got[0].Refused, "a refusal that was seen counts although no event says it")
	require.Equal(t, check.Displaced{Name: "shop-3", Refused: []string{"0/3 nodes"}, Bound: true, Took: time.Second}, got[1])
}

func TestBoard(t *testing.T) {
	b := &board{
		Version: "v1", Status: &status.Report{Waiting: 3}, Median: 0.5, Most: 2,
		Moments: []moment{
			{check.Before.Title("zone-c"), []check.Check{{Name: "gangs are whole", Evidence: "4 whole"}}},
			{check.Lost.Title("zone-c"), []check.Check{{Name: "gangs are whole", Evidence: "3 whole", Violations: []string{"gang g: 1 of 2 bound"}}}},
		},
		Phases: []phase{{"create nodes", 1.5, 0}, {"lose zone-c", 4, 12}},
	}
	broken := b.broken()
	require.Len(t, broken, 1)
	require.EqualError(t, &BrokenError{broken}, `broken: "gangs are whole, while zone-c is lost": gang g: 1 of 2 bound`)

	var out bytes.Buffer
	require.NoError(t, b.text(&out, show.Style{}))
	for _, want := range []string{
		"Pods that wait: 3", "Checks before the loss\n  ok     gangs are whole: 4 whole\n",
		"Checks while zone-c is lost\n  BROKEN gangs are whole: 3 whole\n         - gang g: 1 of 2 bound\n",
		"lose zone-c", "together", "from created to bound: median 0.5 s, 99% within 2.0 s",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "\x1b")
	out.Reset()
	require.NoError(t, b.text(&out, show.Style{Color: true}))
	require.Contains(t, out.String(), "\x1b[31mBROKEN\x1b[0m")

	r := b.report()
	require.Len(t, r.Checks, 2)
	require.True(t, r.Checks[0].OK())
	require.False(t, r.Checks[1].OK())
	require.Equal(t, "4.0 s, 12 pods bound", r.Facts[1].Value)
}

func TestOptions(t *testing.T) {
	good := Options{Scale: 0.1, Timeout: time.Second, Format: Text}
	require.NoError(t, good.Validate())
	for flag, change := range map[string]func(*Options){
		"scale": func(o *Options) { o.Scale = 2 }, "port": func(o *Options) { o.Port = -1 }, "board-port": func(o *Options) { o.BoardPort = 70000 },
		"timeout": func(o *Options) { o.Timeout = 0 }, "output": func(o *Options) { o.Format = "xml" },
	} {
		o := good
		change(&o)
		var usage *UsageError
		require.ErrorAs(t, o.Validate(), &usage)
		require.Equal(t, flag, usage.Flag)
		require.True(t, strings.HasPrefix(usage.Error(), "--"+flag+": "), fmt.Sprint(usage))
	}
}
