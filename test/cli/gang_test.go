package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/simulate"
)

// testGangLosesItsZone foresees that a gang stays Pending as a whole, in words that the scheduler then says when it has
// come to pass. It takes node-b away for good.
func (c *cluster) testGangLosesItsZone(t *testing.T, viewer string) {
	labels := map[string]string{schedv1alpha1.PodGroupLabel: "pair"}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "pair", UID: "pair", Controller: ptr.To(true)}
	on := func(node string, p *corev1.Pod) *corev1.Pod {
		p.Spec.NodeName = node
		return p
	}
	// Beside it there is room for one member on node-c, and for none on node-a, where a slot is held.
	c.Make(t,
		&schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pair"}, Spec: schedv1alpha1.PodGroupSpec{MinMember: 2}},
		on("node-c", pod("filler", "1500m", nil)), on("node-b", pod("pair-0", "1700m", labels, job)), on("node-b", pod("pair-1", "1700m", labels, job)),
	)
	code, out, errs := c.run(t, viewer, "simulate", "--lose-zone", "b", "-o", "json")
	require.Equal(t, 4, code, errs)
	result := decode[simulate.Report](t, out).Results[0]
	require.Contains(t, result.Promises, simulate.Promise{
		Kind: simulate.FailGang, Name: "shop/pair", Before: 2, Wanted: 2, Broken: true, Words: "2 -> 0 members bound, 2 needed",
	})
	i := slices.IndexFunc(result.Workloads, func(w simulate.Workloads) bool { return w.Name == "Job shop/pair" })
	require.GreaterOrEqual(t, i, 0)
	foreseen := result.Workloads[i]
	require.Equal(t, []int{2, 2}, []int{foreseen.Pods, foreseen.Pending})
	require.Contains(t, strings.Join(foreseen.Why, "\n"), "PodGroup shop/pair: ")

	var pods corev1.PodList
	require.NoError(t, c.List(t.Context(), &pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == "node-b" {
			require.NoError(t, c.Delete(t.Context(), &pods.Items[i]))
		}
	}
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}))
	c.Make(t, pod("pair-2", "1700m", labels, job), pod("pair-3", "1700m", labels, job))
	c.saysAsTheScheduler(t, viewer, "pair")
	for _, name := range []string{"pair-2", "pair-3"} {
		var p corev1.Pod
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &p))
		require.Empty(t, p.Spec.NodeName)
	}
}

// saysAsTheScheduler waits until the scheduler has said of a gang, in a condition of each member, what explain says of
// it.
func (c *cluster) saysAsTheScheduler(t *testing.T, viewer, gang string) *explain.Report {
	t.Helper()
	var report *explain.Report
	until(t, "explain and the scheduler say the same of "+gang, func(ctx context.Context) (bool, error) {
		report = decode[explain.Report](t, c.ok(t, viewer, "explain", "podgroup/"+gang, "-n", namespace, "-o", "json"))
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{schedv1alpha1.PodGroupLabel: gang})
		require.Contains(t, report.Gang.Why, "PodGroup "+namespace+"/"+gang+": ")
		return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Message == report.Gang.Why
			})
		}), err
	})
	return report
}
