package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/internal/kubelets"
)

// rebalanceColumns is how many columns "kubectl get zrb" has before the ages.
const rebalanceColumns = 7

// TestRebalance is the walk-through of docs/rebalance.md, with the real scheduler, controllers of Kubernetes, and
// budgets: a zone is back, the plan is shown, and is carried out. The controller ends in the middle of it, and another
// one goes on.
func TestRebalance(t *testing.T) {
	w := newLivingWorld(t)
	w.cordon("node-c", true) // before the scheduler comes, which hears of nodes and pods by two watches
	w.StartScheduler(t)
	stop := w.startController("--rebalance")
	documented := rowsOf(t, "rebalance.md", "services", rebalanceColumns)
	require.Len(t, documented, 2)

	w.Kubectl(t, "apply", "-f", filepath.Join(w.Root, "examples", "zone-rebalance", "service.yaml"))
	w.waitZones("a 3, b 3")
	w.cordon("node-c", false)

	content, err := os.ReadFile(filepath.Join(w.Root, "examples", "zone-rebalance", "rebalance.yaml"))
	require.NoError(t, err)
	r := &v1alpha1.ZoneRebalance{}
	require.NoError(t, yaml.UnmarshalStrict(content, r))
	r.Spec.After = &metav1.Duration{Duration: time.Second}
	w.Make(t, r)
	w.waitRebalance(r, "the plan", func() bool {
		return reasonOf(r, v1alpha1.ConditionBalanced) == v1alpha1.ReasonMovesPlanned && r.Status.Excess == 4
	})
	require.Equal(t, documented[0], w.rebalanceRow())
	require.True(t, meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady))
	require.Len(t, r.Status.Plan, 2)
	first := w.uids()
	for _, m := range r.Status.Plan {
		require.Equal(t, []string{"c"}, m.To)
		require.Equal(t, "Deployment shop/web", m.Workload)
	}
	w.waitMetric(`zonewise_rebalance_excess_pods{zonerebalance="services"} 4`)
	w.waitMetric(`zonewise_rebalance_moves{state="Planned",zonerebalance="services"} 2`)
	w.waitZones("a 3, b 3") // it is only shown

	// The moves are made. The first controller ends as soon as the first one has begun, another one goes on, and so
	// again.
	w.editRebalance(r, func() { r.Spec.Mode = v1alpha1.RebalanceEvict })
	begun := func(moves int) func() bool { return func() bool { return len(r.Status.Moves) >= moves } }
	w.waitRebalance(r, "the first move has begun", begun(1))
	stop()
	stop = w.restartController("--rebalance")
	w.waitRebalance(r, "the second move has begun", begun(2))
	stop()
	stop = w.restartController("--rebalance")
	w.waitRebalance(r, "all is balanced", func() bool { return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionBalanced) })
	require.Equal(t, documented[1], w.rebalanceRow())
	w.waitZones("a 2, b 2, c 2")
	gone := slices.DeleteFunc(first, func(uid types.UID) bool { return slices.Contains(w.uids(), uid) })
	require.Len(t, gone, 2, "no more than two pods were evicted")
	require.Len(t, r.Status.Moves, 2)
	for _, m := range r.Status.Moves {
		require.Equal(t, v1alpha1.MoveMoved, m.State)
		require.Contains(t, gone, m.UID)
	}
	require.True(t, meta.IsStatusConditionFalse(r.Status.Conditions, v1alpha1.ConditionStopped))
	w.waitMetric(`zonewise_rebalance_moves{state="Moved",zonerebalance="services"} 2`)
	w.until("an event for each move", func() (bool, error) {
		var events eventsv1.EventList
		err := w.List(t.Context(), &events, client.InNamespace(metav1.NamespaceDefault))
		moved := 0
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Kind == "ZoneRebalance" && e.Reason == "MoveMoved" && e.Related.Kind == "Pod" {
				moved++
			}
		}
		return moved == 2, err
	})

	t.Run("a bad spec keeps what is known", func(t *testing.T) {
		w.editRebalance(r, func() {
			r.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
		})
		w.waitRebalance(r, "invalid", func() bool { return reasonOf(r, v1alpha1.ConditionReady) == v1alpha1.ReasonInvalid })
		require.Contains(t, meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady).Message, "spec.workloads[0].podSelector")
		require.Len(t, r.Status.Moves, 2)
	})
	stop()
}

// cordon cordons a node, or ends that, with the taint that the node lifecycle controller gives it.
func (w *world) cordon(name string, cordoned bool) {
	w.t.Helper()
	w.until("the node is written", func() (bool, error) {
		node := &corev1.Node{}
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			return false, err
		}
		node.Spec.Unschedulable, node.Spec.Taints = cordoned, nil
		if cordoned {
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}
		return w.Update(w.t.Context(), node) == nil, nil
	})
}

// waitZones waits until as many pods are ready in each zone.
func (w *world) waitZones(want string) {
	w.t.Helper()
	w.until(want, func() (bool, error) {
		in := map[string]int{}
		for _, p := range w.shopPods() {
			if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }) {
				in[strings.TrimPrefix(p.Spec.NodeName, "node-")]++
			}
		}
		var have []string
		for _, zone := range []string{"a", "b", "c"} {
			if in[zone] > 0 {
				have = append(have, zone+" "+strconv.Itoa(in[zone]))
			}
		}
		return strings.Join(have, ", ") == want, nil
	})
}

func (w *world) shopPods() []corev1.Pod {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(w.t.Context(), &pods, client.InNamespace(namespace)))
	return pods.Items
}

func (w *world) uids() (out []types.UID) {
	for _, p := range w.shopPods() {
		out = append(out, p.UID)
	}
	return out
}

// waitRebalance reads an object until what is asked holds for its newest spec.
func (w *world) waitRebalance(r *v1alpha1.ZoneRebalance, what string, met func() bool) {
	w.t.Helper()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			status, _ := yaml.Marshal(r.Status)
			w.t.Log(string(status))
		}
	})
	w.until(what, func() (bool, error) {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(r), r)
		return err == nil && r.Status.ObservedGeneration == r.Generation && met(), err
	})
}

func (w *world) editRebalance(r *v1alpha1.ZoneRebalance, change func()) {
	w.t.Helper()
	w.until("the spec is written", func() (bool, error) {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			return false, err
		}
		change()
		return w.Update(w.t.Context(), r) == nil, nil
	})
}

func reasonOf(r *v1alpha1.ZoneRebalance, condition string) string {
	if c := meta.FindStatusCondition(r.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// rebalanceRow is what "kubectl get zrb" shows, without the ages.
func (w *world) rebalanceRow() []string {
	fields := strings.Fields(w.Kubectl(w.t, "get", "zrb", "--no-headers"))
	require.Greater(w.t, len(fields), rebalanceColumns)
	return fields[:rebalanceColumns]
}

// runKubelets reports bound pods running and ready, and ends those that are deleted, until the test ends.
func (w *world) runKubelets() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	kube, err := kubernetes.NewForConfig(w.Env.Config)
	require.NoError(w.t, err)
	require.NoError(w.t, kubelets.Run(ctx, kube))
}
