package cli

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

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

	process, log := c.StartScheduler(t)
	c.workload(t)
	t.Run("status", func(t *testing.T) { c.testStatus(t, viewer) })
	t.Run("explain a pod", func(t *testing.T) { c.testExplainPod(t, viewer) })
	t.Run("explain a gang", func(t *testing.T) { c.testExplainGang(t, viewer) })
	t.Run("simulate, live and from a file", func(t *testing.T) { c.testSimulate(t, viewer) })
	t.Run("as a plugin of kubectl", func(t *testing.T) { c.testPlugin(t, viewer) })
	t.Run("a dump", func(t *testing.T) { c.testDump(t, process, log) })
	t.Run("a viewer with less", func(t *testing.T) { c.testAViewerWithLess(t, viewer) })
	// The last, since it takes a node away.
	t.Run("what upstream's plugins know", func(t *testing.T) { c.testTrueReasons(t, viewer) })
	t.Run("a gang loses its zone", func(t *testing.T) { c.testGangLosesItsZone(t, viewer) })
}

// testPlugin lets kubectl find the command under the name that plugins have.
func (c *cluster) testPlugin(t *testing.T, viewer string) {
	require.NoError(t, os.Symlink(c.zonewise, filepath.Join(c.Dir, "kubectl-zonewise")))
	cmd := exec.CommandContext(t.Context(), c.Env.ControlPlane.KubectlPath, "zonewise", "status", "--help")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+viewer, "HOME="+c.Dir, "PATH="+c.Dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "kubectl zonewise status [flags]")
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
	require.Equal(t, "lose zone a", first.Scenario)
	require.Equal(t, []int{1, 1, 3}, []int{first.Displaced, first.Pending, first.WaitedBefore}, "caps hold during fail-over too")
	require.Equal(t, simulate.Promise{
		Kind: simulate.FailReservation, Name: "failover", Before: 1, Wanted: 1, Broken: true, Words: "1 -> 0 unused slots: 1 lost; 0 of 1 held, 0 used",
	}, first.Promises[len(first.Promises)-1], "a slot of zone a has no place elsewhere")

	code, _, errs = c.run(t, viewer, "simulate", "--lose-zone", "a", "--fail-on", "reservation")
	require.Equal(t, 4, code, errs)
}
