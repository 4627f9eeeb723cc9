package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/simulate"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/test/internal/apiserver"
)

// TestCommandLine is one test, since its parts look at one cluster.
func TestCommandLine(t *testing.T) {
	c := start(t)
	t.Run("APIs that are not installed", c.testNoAPIs)
	c.InstallAPIs(t)
	viewer := c.User(t, "viewer", apiserver.ViewerRules(t))
	t.Run("permissions", c.testPermissions)
	t.Run("bad objects", c.testBadObjects)

	process, log := c.StartScheduler(t)
	c.workload(t)
	t.Run("status", func(t *testing.T) { c.testStatus(t, viewer) })
	t.Run("explain a pod", func(t *testing.T) { c.testExplainPod(t, viewer) })
	t.Run("explain a gang", func(t *testing.T) { c.testExplainGang(t, viewer) })
	t.Run("simulate, live and from a file", func(t *testing.T) { c.testSimulate(t, viewer) })
	t.Run("a dump", func(t *testing.T) { c.testDump(t, process, log) })
	t.Run("a viewer with less", func(t *testing.T) { c.testAViewerWithLess(t, viewer) })
	// The last, since it takes a node away.
	t.Run("a gang loses its zone", func(t *testing.T) { c.testGangLosesItsZone(t, viewer) })
}

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	require.NoError(t, json.Unmarshal([]byte(text), v), text)
	return v
}

func (c *cluster) testNoAPIs(t *testing.T) {
	report := decode[status.Report](t, c.ok(t, c.admin, "status", "-o", "json"))
	require.Equal(t, []string{
		"podgroups.scheduling.x-k8s.io are not installed in this cluster",
		"zonerebalances.zonewise.dev are not installed in this cluster",
		"zonereservations.zonewise.dev are not installed in this cluster",
		"zonespreadpolicies.zonewise.dev are not installed in this cluster",
		"zonesurvivals.zonewise.dev are not installed in this cluster",
	}, report.Notes)
	require.Len(t, report.Zones, 3)
	code, _, _ := c.run(t, c.admin, "simulate", "--lose-zone", "any")
	require.Zero(t, code, "an empty cluster survives")
}

// testPermissions requires that the role of manifests/rbac/viewer has what is read and no more: whoever may read
// nodes and pods alone is told of everything else, and that is what the role grants beside them.
func (c *cluster) testPermissions(t *testing.T) {
	code, out, errs := c.run(t, c.User(t, "stranger", nil), "status")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, errs, "forbidden")
	require.Contains(t, errs, "the ClusterRole zonewise-viewer in manifests/rbac/viewer has what is needed")
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	_, _, as := c.run(t, c.admin, "status", "--as", "stranger")
	require.Equal(t, errs, as)

	few := c.User(t, "few", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}}})
	file := filepath.Join(c.Dir, "few.json")
	_, _, errs = c.run(t, few, "snapshot", file)
	s, err := snapshot.Load(file)
	require.NoError(t, err, errs)
	needed := []string{"nodes", "pods", "events.events.k8s.io"}
	for _, m := range s.Missing {
		if m.Resource != "podgroups.scheduling.k8s.io" { // this API server does not have it
			require.Equal(t, snapshot.Forbidden, m.Reason, m.Resource)
			require.Contains(t, errs, m.Message())
		}
		needed = append(needed, m.Resource)
	}
	var granted []string
	for _, rule := range apiserver.ViewerRules(t) {
		// The board watches what it shows; events are not shown there, nor what an API server makes of new pods.
		verbs := []string{"list", "watch"}
		if slices.ContainsFunc([]string{"events", "limitranges", "runtimeclasses"}, func(name string) bool { return slices.Contains(rule.Resources, name) }) {
			verbs = []string{"list"}
		}
		if slices.Contains(rule.Resources, "leases") {
			verbs = []string{"get"}
			require.Equal(t, []string{"kube-scheduler", "zonewise-scheduler"}, rule.ResourceNames)
		}
		require.Equal(t, verbs, rule.Verbs)
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				granted = append(granted, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
	}
	slices.Sort(needed)
	slices.Sort(granted)
	require.Equal(t, needed, granted)
}

// testBadObjects: the API server refuses them, and names the field. Those of a policy and of a reservation are in
// test/integration.
func (c *cluster) testBadObjects(t *testing.T) {
	const web = "{namespace: shop, podSelector: {matchLabels: {app: web}}}"
	const slots = "owners: [" + web + "], slots: 1, slot: {requests: {cpu: 1}}, "
	for _, tc := range []struct{ name, kind, spec, want string }{
		{"neither zones nor zoneNames", "ZoneSurvival", "workloads: [WEB], survive: {}", "spec.survive: exactly one of zones, zoneNames and nodes must be set"},
		{"both", "ZoneSurvival", "workloads: [WEB], survive: {zones: 1, zoneNames: [a]}", "spec.survive: exactly one of zones, zoneNames and nodes must be set"},
		{"zones and nodes", "ZoneSurvival", "workloads: [WEB], survive: {zones: 1, nodes: 1}", "spec.survive: exactly one of zones, zoneNames and nodes must be set"},
		{"no node", "ZoneSurvival", "workloads: [WEB], survive: {nodes: 0}", "spec.survive.nodes: Invalid value: 0"},
		{"two nodes at once", "ZoneSurvival", "workloads: [WEB], survive: {nodes: 2}", "spec.survive.nodes: Invalid value: 2"},
		{"two zones at once", "ZoneSurvival", "workloads: [WEB], survive: {zones: 2}", "spec.survive.zones: Invalid value: 2"},
		{"a part of nothing", "ZoneSurvival", `workloads: [WEB], survive: {zones: 1}, maxHeldFraction: "0"`, "spec.maxHeldFraction: must be above 0 and at most 1"},
		{"more than all", "ZoneSurvival", `workloads: [WEB], survive: {zones: 1}, maxHeldFraction: "1.1"`, "spec.maxHeldFraction: must be above 0 and at most 1"},
		{"a priority of the system", "ZoneSurvival", "workloads: [WEB], survive: {zones: 1}, priority: 1000000001", "spec.priority: Invalid value: 1000000001"},
		{"no workload that survives", "ZoneSurvival", "workloads: [], survive: {zones: 1}", "spec.workloads"},
		{"an empty selector of what survives", "ZoneSurvival", "workloads: [{namespace: shop, podSelector: {}}], survive: {zones: 1}", "spec.workloads[*].podSelector: must not be empty"},
		{"no namespace", "ZoneSurvival", "workloads: [{podSelector: {matchLabels: {app: web}}}], survive: {zones: 1}", "spec.workloads[0].namespace"},
		{"a zone twice", "ZoneSurvival", "workloads: [WEB], survive: {zoneNames: [a, a]}", "spec.survive.zoneNames[1]: Duplicate value"},
		{"nodes that are bought for what is not held", "ZoneSurvival", "workloads: [WEB], survive: {zones: 1}, buy: {namespace: buffers, max: 1}", "spec.buy: Forbidden: must not be set without hold"},
		{"nodes without a bound", "ZoneReservation", slots + "buy: {namespace: buffers}", "spec.buy.max"},
		{"nodes without a namespace", "ZoneReservation", slots + "buy: {max: 1}", "spec.buy.namespace"},
		{"nodes by what there is not", "ZoneReservation", slots + "buy: {autoscaler: Money, namespace: buffers, max: 1}", `spec.buy.autoscaler: Unsupported value: "Money"`},
		{"nodes with a label of ours", "ZoneReservation", slots + "buy: {namespace: buffers, max: 1, labels: {zonewise.dev/x: other}}", "spec.buy.labels: "},
		{"no workload that is moved", "ZoneRebalance", "workloads: []", "spec.workloads"},
		{"an empty selector of what is moved", "ZoneRebalance", "workloads: [{namespace: shop, podSelector: {}}]", "spec.workloads[*].podSelector: must not be empty"},
		{"a mode that there is not", "ZoneRebalance", "workloads: [WEB], mode: Delete", `spec.mode: Unsupported value: "Delete"`},
		{"none at once", "ZoneRebalance", "workloads: [WEB], maxAtOnce: 0", "spec.maxAtOnce: Invalid value: 0"},
		{"too many in an hour", "ZoneRebalance", "workloads: [WEB], maxPerHour: 201", "spec.maxPerHour: Invalid value: 201"},
		{"after days", "ZoneRebalance", "workloads: [WEB], after: 48h", "spec.after: must be a duration from 0s to 24h"},
		{"no rest", "ZoneRebalance", "workloads: [WEB], cooldown: 1s", "spec.cooldown: must be a duration from 1m to 24h"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			spec := strings.ReplaceAll(tc.spec, "WEB", web)
			require.NoError(t, yaml.Unmarshal([]byte("{apiVersion: zonewise.dev/v1alpha1, kind: "+tc.kind+", metadata: {name: bad}, spec: {"+spec+"}}"), &u.Object))
			require.ErrorContains(t, c.Create(t.Context(), u), tc.want)
		})
	}
}

func (c *cluster) testStatus(t *testing.T, viewer string) {
	var report *status.Report
	until(t, "the status tells what happened", func(context.Context) (bool, error) {
		report = decode[status.Report](t, c.ok(t, viewer, "status", "-n", namespace, "-o", "json"))
		return report.Policies[0].Pods == 3 && report.Reservations[0].Held == 1 && report.Reservations[0].State == status.OK, nil
	})
	require.Empty(t, report.Notes, "the viewer may read all there is")
	p := report.Policies[0]
	require.Equal(t, status.Infeasible, p.State)
	require.Equal(t, int64(4), p.Replicas)
	require.Equal(t, []v1alpha1.ZoneStatus{
		{Name: "a", Pods: 1, Desired: 1, State: "Available"}, {Name: "b", Pods: 1, Desired: 1, State: "Available"}, {Name: "c", Pods: 1, Desired: 1, State: "Available"},
	}, p.Zones)
	require.Equal(t, status.Waiting, report.Gangs[0].State)
	require.Equal(t, 2, report.Gangs[0].Members)
	require.Equal(t, 3, report.Waiting)

	text := c.ok(t, viewer, "status")
	require.Contains(t, text, "shop/web")
	require.Contains(t, text, "Infeasible")
	require.Contains(t, c.ok(t, viewer, "status", "-o", "yaml"), "waitingPods: 3")
}

func (c *cluster) testExplainPod(t *testing.T, viewer string) {
	var report *explain.Report
	until(t, "the scheduler has said why", func(context.Context) (bool, error) {
		report = decode[explain.Report](t, c.ok(t, viewer, "explain", "web-3", "-n", namespace, "-o", "json"))
		return slices.ContainsFunc(report.Said, func(s explain.SchedulerMessage) bool {
			return s.Reason == "FailedScheduling" && strings.Contains(s.Words, "policy shop/web: zone a holds 1 of 4")
		}), nil
	})
	require.Equal(t, explain.Waiting, report.Pod.Verdict)
	require.Equal(t, "Deployment shop/web", report.Pod.Workload)
	require.Len(t, report.Zone, 3)
	for _, z := range report.Zone {
		require.Zero(t, z.Fit)
		require.Equal(t, []explain.PolicyCount{{Policy: "shop/web", Pods: 1, Desired: 1, State: "Available"}}, z.Policies)
		require.Equal(t, "ZoneSpread", z.Obstacles[0].Plugin)
	}
	require.Equal(t, "failover", report.Zone[0].Holds[0].Reservation)
	require.Equal(t, "more nodes like those of the cluster would not: see above what is in the way", report.Next[0])

	text := c.ok(t, viewer, "explain", "pod/web-0", "-n", namespace)
	require.Contains(t, text, "is on node node-")
}

func (c *cluster) testExplainGang(t *testing.T, viewer string) {
	report := c.saysAsTheScheduler(t, viewer, "train")
	require.Equal(t, 2, report.Gang.Missing)
	require.Zero(t, *report.Gang.Fit)
	require.Equal(t, "PodGroup shop/train needs 2 more members at once, and 0 of them would find a node; train-0 is the first that would not", report.Next[0])
	require.Contains(t, strings.Join(report.Next, "\n"), "in zone b: 2 more nodes like node-b")
	for _, z := range report.Zone {
		require.Equal(t, "NodeResourcesFit", z.Obstacles[0].Plugin)
	}
}

func (c *cluster) testSimulate(t *testing.T, viewer string) {
	file := filepath.Join(c.Dir, "cluster.json.gz")
	require.Contains(t, c.ok(t, viewer, "snapshot", file), "3 nodes, 6 pods")
	code, live, errs := c.run(t, viewer, "simulate", "--lose-zone", "any", "-o", "json")
	require.Equal(t, 4, code, errs)
	code, offline, errs := c.run(t, "/nowhere", "simulate", "--lose-zone", "any", "--snapshot", file, "-o", "json")
	require.Equal(t, 4, code, errs)
	require.JSONEq(t, live, offline)

	report := decode[simulate.Report](t, live)
	require.Len(t, report.Results, 3)
	first := report.Results[0]
	require.Equal(t, []int{1, 1, 3}, []int{first.Displaced, first.Pending, first.WaitedBefore}, "caps hold during fail-over too")
}

// testDump asks the scheduler for a dump, as docs/operations.md does: the log has the dump of kube-scheduler's cache
// and that of the ledger and, from the next scheduling cycle on, its comparison with the scheduler's snapshot.
func (c *cluster) testDump(t *testing.T, process *os.Process, log string) {
	logged := func(parts ...string) bool {
		content, err := os.ReadFile(log)
		require.NoError(t, err)
	lines:
		for line := range strings.Lines(string(content)) {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					continue lines
				}
			}
			return true
		}
		return false
	}
	untilLogged := func(parts ...string) {
		t.Helper()
		until(t, strings.Join(parts, ", "), func(context.Context) (bool, error) { return logged(parts...), nil })
	}
	require.False(t, logged("Dump of"))
	require.NoError(t, process.Signal(syscall.SIGUSR2))
	untilLogged("Dump of cached NodeInfo")
	untilLogged("Node name: node-a")
	untilLogged("Dump of the ledger", `node="node-a"`, `"MilliCPU":500`, "shop/web-")

	later := pod("later", "3900m", nil)
	c.Make(t, later)
	untilLogged("Compared the ledger with the scheduler's snapshot", "nodes=3", "differences=[]")
	require.NoError(t, c.Delete(t.Context(), later))
}

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
