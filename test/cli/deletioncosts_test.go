package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestDeletionCosts is the walk-through of docs/zonespreadpolicy.md, with the real scheduler and controllers of
// Kubernetes, which leave no pod in zone a unless they are told otherwise.
func TestDeletionCosts(t *testing.T) {
	w := newLivingWorld(t)
	for _, zone := range []string{"b", "c"} {
		w.cordon("node-"+zone, true)
		for i := range 3 {
			w.Make(t, build.Node(fmt.Sprintf("node-%s%d", zone, i), zone, "1"))
		}
	}
	w.StartScheduler(t)
	w.Kubectl(t, "apply", "-f", filepath.Join(w.Root, "examples", "scale-down", "web.yaml"))
	w.waitPods("a", "a", "a", "b", "b", "b", "c", "c", "c")
	w.waitOrdered(v1alpha1.ReasonNotObserved)
	scale := func(replicas int) {
		w.Kubectl(t, "-n", namespace, "scale", "deployment", "web", fmt.Sprint("--replicas=", replicas))
	}
	scale(6)
	w.waitPods("b", "b", "b", "c", "c", "c") // Kubernetes by itself
	scale(9)
	w.waitPods("a", "a", "a", "b", "b", "b", "c", "c", "c")

	stop := w.startController("--deletion-costs")
	w.waitOrdered(v1alpha1.ReasonOrdered)
	w.waitPods("a", "a -1", "a -2", "b", "b -1", "b -2", "c", "c -1", "c -2")
	w.waitMetric("zonewise_deletioncosts_pods 6")
	written := `zonewise_deletioncosts_writes_total{result="accepted"} 6`
	w.waitMetric(written)
	scale(6)
	w.waitPods("a", "a -1", "b", "b -1", "c", "c -1")
	stop()
	stop = w.restartController("--deletion-costs")
	w.waitReady(http.StatusOK, "ok")
	w.waitMetric("zonewise_deletioncosts_pods 3")
	scale(3)
	w.waitPods("a", "b", "c")
	w.waitMetric("zonewise_deletioncosts_pods 0")
	w.waitMetric(written) // the second step needed no more, nor did the other process

	// Somebody else has a word, and keeps it.
	scale(6)
	w.waitPods("a", "a -1", "b", "b -1", "c", "c -1")
	name := w.shopPods()[0].Name
	w.Kubectl(t, "-n", namespace, "annotate", "--overwrite", "pod", name, "controller.kubernetes.io/pod-deletion-cost=7")
	w.waitOrdered(v1alpha1.ReasonOtherManager)
	costs := func(want ...string) {
		w.until("costs "+strings.Join(want, " "), func() (bool, error) {
			var have []string
			for _, pod := range w.shopPods() {
				if cost, ok := pod.Annotations[corev1.PodDeletionCost]; ok {
					have = append(have, cost)
				}
			}
			return slices.Equal(have, want), nil
		})
	}
	costs("7")
	w.Kubectl(t, "-n", namespace, "annotate", "pod", name, "controller.kubernetes.io/pod-deletion-cost-")
	w.waitOrdered(v1alpha1.ReasonOrdered)
	w.waitPods("a", "a -1", "b", "b -1", "c", "c -1")

	// What is not asked for any more is taken away, and the condition with it.
	w.Kubectl(t, "-n", namespace, "patch", "zsp", "web", "--type=merge", `--patch={"spec": {"scaleDownPolicy": "Ignore"}}`)
	costs()
	w.waitOrdered("")
	stop()
}

// waitPods waits until the ready pods are in these zones and have these costs, by the documented command.
func (w *world) waitPods(want ...string) {
	w.t.Helper()
	columns := `ZONE:.metadata.labels.topology\.kubernetes\.io/zone,COST:.metadata.annotations.controller\.kubernetes\.io/pod-deletion-cost`
	document, err := os.ReadFile(filepath.Join(w.Root, "docs", "zonespreadpolicy.md"))
	require.NoError(w.t, err)
	require.Contains(w.t, string(document), "$ kubectl -n shop get pods -o custom-columns='"+columns+"'\n")
	w.until(strings.Join(want, ", "), func() (bool, error) {
		var have []string
		for line := range strings.Lines(w.Kubectl(w.t, "-n", namespace, "get", "pods", "--no-headers", "-o", "custom-columns="+columns)) {
			have = append(have, strings.TrimSuffix(strings.Join(strings.Fields(line), " "), " <none>"))
		}
		slices.SortFunc(have, func(a, b string) int { return strings.Compare(a, b) })
		ready := !slices.ContainsFunc(w.shopPods(), func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil
		})
		return ready && slices.Equal(have, want), nil
	})
}

// waitOrdered waits until the policy web has the condition ScaleDownOrdered with a reason, or none if that is empty.
func (w *world) waitOrdered(reason string) {
	w.t.Helper()
	w.until("ScaleDownOrdered "+reason, func() (bool, error) {
		p := &v1alpha1.ZoneSpreadPolicy{}
		if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, p); err != nil {
			return false, err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionScaleDownOrdered)
		if reason == "" || c == nil {
			return c == nil && reason == "", nil
		}
		return c.Reason == reason && (c.Status == metav1.ConditionTrue) == (reason == v1alpha1.ReasonOrdered), nil
	})
}
