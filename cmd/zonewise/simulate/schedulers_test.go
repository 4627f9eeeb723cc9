package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/clitest"
)

// TestPodsThatRelyOnThePackAreNoSuccess when they wait, whichever scheduler they name: what was simulated did not know
// their objects.
func TestPodsThatRelyOnThePackAreNoSuccess(t *testing.T) {
	for name, relies := range map[string]func(c *clitest.Cluster){
		"a policy":      func(c *clitest.Cluster) { c.Policy("web", nil) },
		"a reservation": func(c *clitest.Cluster) { c.Reservation("failover", "web", "2", 0, nil) },
		"a gang": func(c *clitest.Cluster) {
			c.Gang("web", 1)
			for _, pod := range c.Pods() {
				pod.Labels["scheduling.x-k8s.io/pod-group"] = "web"
			}
		},
		"": func(*clitest.Cluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := zones("2")
			c.Running("web", "4", nil, "node-a")
			relies(c)
			c.Pods()[0].Spec.SchedulerName = "ours"
			r := run(t, c, &Scenario{Zones: []string{"a"}})
			require.Equal(t, name == "", NewReport([]*Result{r}, []string{FailPending}).Survives)
		})
	}
}

// TestTheSecondScheduler is simulated where pods name it, without a configuration: with its policies and gangs, beside
// a kube-scheduler that knows neither.
func TestTheSecondScheduler(t *testing.T) {
	second := func(c *clitest.Cluster) *clitest.Cluster {
		for _, p := range c.Pods() {
			p.Spec.SchedulerName = "zonewise-scheduler"
		}
		return c
	}
	t.Run("its policies", func(t *testing.T) {
		c := zones("4")
		c.Running("web", "1", nil, clitest.InTurn(6, "node-a")...)
		c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.WhenUnsatisfiable = v1alpha1.DoNotSchedule
			s.MaxPerZone = ptr.To(intstr.FromInt32(2))
		})
		r := run(t, second(c), &Scenario{Zones: []string{"a"}})
		require.Equal(t, []int{6, 4, 2, 0}, []int{r.Displaced, r.Placed, r.Pending, r.PendingElsewhere})
		require.Empty(t, r.Workloads[0].Scheduler)
		require.Equal(t, []string{FailPending}, r.Failed([]string{FailPending}))
	})
	t.Run("its gangs", func(t *testing.T) {
		c := zones("4")
		c.Gang("train", 3)
		c.Members("train", "4", "", "", "")
		r := run(t, second(c), &Scenario{Zones: []string{"a"}})
		require.Equal(t, []int{3, 3}, []int{r.WaitedBefore, r.StillWaiting}, "two nodes are left for three members")
	})
	t.Run("added by a file", func(t *testing.T) {
		c := zones("4")
		added := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec: {schedulerName: zonewise-scheduler, containers: [{name: c, image: i}]}\n", 1)
		r := run(t, c, &Scenario{Added: added})
		require.Equal(t, 1, r.Placed)
		require.Empty(t, r.Workloads[0].Scheduler)
	})
}

// TestPodsOfOtherSchedulersCompete: they take room, and what becomes of them is no failure of the simulation: only
// their scheduler knows.
func TestPodsOfOtherSchedulersCompete(t *testing.T) {
	c := zones("2")
	c.Pod("own", "node-b", clitest.Plain("2", "1Gi"), nil)
	for _, name := range []string{"web", "batch"} {
		c.Running(name, "1500m", nil, "node-a")
	}
	pods := c.Pods()
	pods[2].Spec.SchedulerName = "volcano"
	a := &Scenario{Zones: []string{"a"}}
	r := run(t, c, a)
	require.Equal(t, []int{2, 1, 1}, []int{r.Displaced, r.Placed, r.Pending + r.PendingElsewhere})
	pods[1].Spec.Priority = ptr.To[int32](1000)
	r = run(t, c, a)
	require.Equal(t, []int{0, 1}, []int{r.Pending, r.PendingElsewhere})
	require.Empty(t, r.Failed(Failures))
	require.Equal(t, "volcano", r.Workloads[0].Scheduler)
	require.Contains(t, text(t, r), "1 pod of other schedulers would stay Pending if kube-scheduler placed them\n")
	require.Contains(t, text(t, r), "Deployment shop/batch (of volcano)")
}
