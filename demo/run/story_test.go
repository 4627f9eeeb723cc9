package run

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// settledDemo is a cluster in which a small plan is settled.
type settledDemo struct {
	demo
	pods        map[string]*corev1.Pod
	deployments map[string]*appsv1.Deployment
	groups      []*schedv1alpha1.PodGroup
}

func newSettledDemo() *settledDemo {
	s := &settledDemo{pods: map[string]*corev1.Pod{}, deployments: map[string]*appsv1.Deployment{}}
	s.Plan = &workload.Plan{
		Workers:  1,
		Services: []workload.Service{{App: "web", Role: "cn", Replicas: 1}},
		Gangs:    []workload.Gang{{Name: "fits", Members: 1, Fits: true}, {Name: "large", Members: 1}},
	}
	s.workers = 1
	for _, d := range []*appsv1.Deployment{s.Plan.Services[0].Deployment(), s.Plan.Batch()} {
		d.UID = types.UID(d.Name)
		d.Status = appsv1.DeploymentStatus{Replicas: 1, AvailableReplicas: 1}
		s.deployments[d.Name] = d
		s.add(d.Namespace, d.Name+"-1", "n1", "Deployment", d.Name, nil)
	}
	for _, g := range s.Plan.Gangs {
		s.groups = append(s.groups, g.PodGroup())
		s.add(workload.GangNamespace, g.Name+"-0", "n2", "StatefulSet", g.Name, g.StatefulSet().Spec.Template.Labels)
	}
	s.pods["large-0"].Spec.NodeName = ""
	return s
}

func (s *settledDemo) add(namespace, name, node, kind, owner string, labels map[string]string) {
	controller := true
	s.pods[name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: &controller}},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

// census counts the objects.
func (s *settledDemo) census() *census.Census {
	snap := snapshot.New(time.Now())
	for zone, name := range map[string]string{"zone-a": "n1", "zone-b": "n2"} {
		snap.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}})
	}
	for _, pod := range s.pods {
		snap.Add(pod)
	}
	for _, d := range s.deployments {
		snap.Add(d)
	}
	for _, g := range s.groups {
		snap.Add(g)
	}
	return census.Take(snap)
}

func TestUnsettledNamesWhatIsInMotion(t *testing.T) {
	s := newSettledDemo()
	require.Empty(t, s.unsettled(s.census()))
	for _, tc := range []struct {
		harm func(*settledDemo)
		want string
	}{
		{func(s *settledDemo) { s.workers++ }, "1 replicas: 1 exist, 1 are available; 2 batch workers: 1 exist"},
		{func(s *settledDemo) { delete(s.pods, "web-cn-1") }, "1 replicas: 0 exist, 1 are available; 1 batch workers: 1 exist"},
		{func(s *settledDemo) { s.pods["web-cn-1"].Spec.NodeName = "" }, "a node for pod services/web-cn-1"},
		{func(s *settledDemo) { s.pods["batch-workers-1"].Spec.NodeName = "" }, "a node for pod batch/batch-workers-1"},
		{func(s *settledDemo) { s.deployments["web-cn"].Status.AvailableReplicas = 0 }, "1 replicas: 1 exist, 0 are available; 1 batch workers: 1 exist"},
		{func(s *settledDemo) { s.pods["fits-0"].Spec.NodeName = "" }, "gang fits to be whole: 0 of 1 are bound"},
		{func(s *settledDemo) { delete(s.pods, "large-0") }, "the 1 pods of gang large to exist"},
		{func(s *settledDemo) { s.pods["web-cn-1"].DeletionTimestamp = &metav1.Time{Time: time.Now()} }, "pod services/web-cn-1 to end"},
	} {
		s := newSettledDemo()
		tc.harm(s)
		require.Equal(t, tc.want, s.unsettled(s.census()))
	}
}

// While the nodes of a lost zone exist, replicas of one service have been tried and wait.
func TestAReplicaThatMayWaitIsSettledOnceItWasTried(t *testing.T) {
	s := newSettledDemo()
	s.mayWait = "web"
	replica := s.pods["web-cn-1"]
	replica.Labels, replica.Spec.NodeName = map[string]string{workload.AppLabel: "web"}, ""
	s.deployments["web-cn"].Status.AvailableReplicas = 0
	require.Equal(t, "a node for pod services/web-cn-1", s.unsettled(s.census()))
	replica.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	require.Empty(t, s.unsettled(s.census()))
	s.mayWait = ""
	require.Equal(t, "a node for pod services/web-cn-1", s.unsettled(s.census()))
}

// A batch worker for which there is no room has been tried: there is nothing to wait for.
func TestABatchWorkerThatWasRefusedIsSettled(t *testing.T) {
	s := newSettledDemo()
	worker := s.pods["batch-workers-1"]
	worker.Spec.NodeName = ""
	worker.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	require.Empty(t, s.unsettled(s.census()))
	bound, waiting, zones := countPods(s.census())
	require.Equal(t, 2, bound)
	require.Equal(t, 2, waiting)
	require.Equal(t, "zone-a 1 zone-b 1", zones)
}

func TestANodeWithATaintOfAnUnreadyNodeIsNotReady(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	snap := snapshot.New(time.Now())
	snap.Add(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: ready},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: ready, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	)
	require.Equal(t, 1, readyNodes(census.Take(snap)))
}

func TestForEachEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	err := forEach(t.Context(), []int{1, 2, 3}, func(_ context.Context, i int) error {
		if i == 2 {
			return broken
		}
		return nil
	})
	require.Equal(t, broken, err)
}

func TestWaitForSaysWhatWasMissingWhenTheTimeWasUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	d := &demo{}
	err := d.waitFor(ctx, func() (string, error) {
		if asked++; asked == 3 {
			cancel(errTimeout)
		}
		return "pod x", nil
	})
	require.ErrorIs(t, err, errTimeout)
	require.EqualError(t, err, "timed out: it waited for pod x")

	crash := errors.New("crash")
	require.Equal(t, crash, d.waitFor(t.Context(), func() (string, error) { return "", crash }))
}

func TestBoard(t *testing.T) {
	b := &board{
		Version: "v1", Status: &status.Report{Waiting: 3}, Median: 0.5, Most: 2,
		Moments: []moment{
			{check.Before.String(), []check.Check{{Name: "gangs are whole", Evidence: "4 whole"}}},
			{check.Lost.String(), []check.Check{{Name: "gangs are whole", Evidence: "3 whole", Violations: []string{"gang g: 1 of 2 bound"}}}},
		},
		Phases: []phase{{"create nodes", 1.5}, {"lose zone-c", 4}},
	}
	require.ErrorIs(t, b.brokenError(), ErrBroken)
	require.EqualError(t, b.brokenError(), `checks do not hold: "gangs are whole, after the loss of zone-c": gang g: 1 of 2 bound`)

	var out bytes.Buffer
	require.NoError(t, b.writeText(&out, show.Style{}))
	for _, want := range []string{
		"Pods that wait: 3", "Checks before the loss\n  ok     gangs are whole: 4 whole\n",
		"Checks after the loss of zone-c\n  BROKEN gangs are whole: 3 whole\n         - gang g: 1 of 2 bound\n",
		"lose zone-c", "together", "from the queue to a node: median 0.5 s, 99% within 2.0 s",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "\x1b")
	out.Reset()
	require.NoError(t, b.writeText(&out, show.Style{Color: true}))
	require.Contains(t, out.String(), "\x1b[31mBROKEN\x1b[0m")

	r := b.pageReport()
	require.Len(t, r.Checks, 2)
	require.True(t, r.Checks[0].OK())
	require.False(t, r.Checks[1].OK())
	require.Equal(t, "4.0 s", r.Facts[1].Value)
}
