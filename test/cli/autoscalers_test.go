package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/build"
)

// TestAutoscalers is the walk-through of docs/autoscalers.md, with the real scheduler and controllers of Kubernetes.
// The test buys the nodes, as an autoscaler would.
func TestAutoscalers(t *testing.T) {
	w := newLivingWorld(t)
	w.installBuffers("v1beta1")
	w.StartScheduler(t)
	stop := w.startController("--buy", "--gang-budgets")
	t.Run("room is bought", w.testRoomIsBought)
	t.Run("a policy is shown", w.testPolicyIsShown)
	t.Run("a gang stays whole", w.testGangStaysWhole)
	stop()
}

// example is the path of a file of the walk-through.
func (w *world) example(name string) string {
	return filepath.Join(w.Root, "examples", "autoscalers", name)
}

// requireDocumented requires that docs/autoscalers.md has some lines.
func (w *world) requireDocumented(lines string) {
	w.t.Helper()
	document, err := os.ReadFile(filepath.Join(w.Root, "docs", "autoscalers.md"))
	require.NoError(w.t, err)
	indented := func(text string) string { return strings.ReplaceAll("\n"+strings.TrimSpace(text), "\n", "\n   ") }
	require.Contains(w.t, string(document), indented(lines))
}

// waitRow waits until kubectl shows a row, by its first columns.
func (w *world) waitRow(want []string, args ...string) {
	w.t.Helper()
	w.until(strings.Join(want, " "), func() (bool, error) {
		for line := range strings.Lines(w.Kubectl(w.t, append(args, "--no-headers", "--ignore-not-found")...)) {
			if fields := strings.Fields(line); len(fields) > len(want) && strings.Join(fields[:len(want)], " ") == strings.Join(want, " ") {
				return true, nil
			}
		}
		return false, nil
	})
}

func (w *world) testRoomIsBought(t *testing.T) {
	documented := rowsOf(t, "autoscalers.md", "failover", 6)
	require.Len(t, documented, 2)
	w.Kubectl(t, "apply", "-f", w.example("reservation.yaml"))
	w.waitRow(documented[0], "get", "zrsv")
	asked := func() string {
		return w.Kubectl(t, "get", "zrsv", "failover", "-o", `jsonpath={range .status.buy.buffers[*]}{.zone}{" "}{.asked}{"\n"}{end}`)
	}
	w.touch()
	w.until("the room is asked for", func() (bool, error) { return asked() == "a 1\nd 2\n", nil })
	w.requireDocumented(asked())
	for i := range 2 {
		w.Make(t, build.Node("bought-"+strconv.Itoa(i), "d", "4"))
	}
	w.waitRow(documented[1], "get", "zrsv")
	require.Equal(t, "a 1\nd 2\n", asked(), "what is held is asked for, too: else an autoscaler would take its nodes for empty")
}

func (w *world) testPolicyIsShown(t *testing.T) {
	for _, file := range []string{"policies.yaml", "gangs.yaml"} {
		w.Kubectl(t, "apply", "-f", filepath.Join(w.Root, "manifests", "components", "autoscaler-constraints", file))
	}
	w.Kubectl(t, "apply", "-f", w.example("policy.yaml"))
	p := pod("api-0", "100m", map[string]string{"app": "api"})
	w.until("the API server applies the policy", func() (bool, error) {
		probe := p.DeepCopy()
		err := w.Create(t.Context(), probe, client.DryRunAll)
		return len(probe.Spec.TopologySpreadConstraints) > 0, err
	})
	w.Make(t, p)
	w.requireDocumented(w.Kubectl(t, "-n", namespace, "get", "pod", "api-0", "-o", "jsonpath={.spec.topologySpreadConstraints}"))
}

func (w *world) testGangStaysWhole(t *testing.T) {
	documented := rowsOf(t, "autoscalers.md", "train", 4)
	require.Len(t, documented, 1)
	w.Kubectl(t, "apply", "-f", w.example("gang.yaml"))
	job := &batchv1.Job{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "train"}, job))
	member := func(i int) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "train-" + strconv.Itoa(i), Labels: job.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Spec: *job.Spec.Template.Spec.DeepCopy(),
		}
	}
	w.until("the API server knows the PodGroup", func() (bool, error) {
		probe := member(0)
		err := w.Create(t.Context(), probe, client.DryRunAll)
		return probe.Spec.Affinity != nil, err
	})
	for i := range int(*job.Spec.Parallelism) { // no controller of Jobs runs here
		w.Make(t, member(i))
	}
	w.waitRow(documented[0], "get", "pdb", "-n", namespace)
	w.requireDocumented(w.Kubectl(t, "-n", namespace, "get", "pod", "train-0", "-o", "jsonpath={.spec.affinity.podAffinity}"))
	group := &schedulingv1alpha1.PodGroup{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "train"}, group))
	budget := &policyv1.PodDisruptionBudget{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(group), budget))
	require.True(t, metav1.IsControlledBy(budget, group))

	c, err := snapshot.NewClient(w.Env.Config)
	require.NoError(t, err)
	evict := func() error {
		first := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "train-0"}}
		return c.SubResource("eviction").Create(t.Context(), first, &policyv1.Eviction{ObjectMeta: first.ObjectMeta})
	}
	w.until("the budget counts three healthy members", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(budget), budget)
		return budget.Status.CurrentHealthy == 3, err
	})
	require.True(t, apierrors.IsTooManyRequests(evict()), "the budget refuses it")

	// With a second budget for the same pods no eviction would succeed, whatever it allows.
	w.Make(t, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: job.Spec.Template.Labels},
	}})
	w.until("the budget gives way", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(group), budget)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	w.until("an event of the PodGroup says why", func() (bool, error) {
		var events eventsv1.EventList
		err := w.List(t.Context(), &events, client.InNamespace(namespace))
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.UID == group.UID && e.Reason == "OtherDisruptionBudget" {
				return true, err
			}
		}
		return false, err
	})
	w.until("the budget of the user's own allows it", func() (bool, error) {
		err := evict()
		if apierrors.IsTooManyRequests(err) {
			return false, nil // its controller has not counted yet
		}
		return err == nil, err
	})
}
