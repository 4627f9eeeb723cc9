package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cmd/controller"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/apiserver"
)

func TestMain(m *testing.M) {
	apiserver.Main(m)
}

// world is an API server with the nodes node-a, node-b and node-c of 4 CPUs, and the controller.
type world struct {
	*apiserver.Server
	t *testing.T
	// address is that of the controller's metrics, and kubeconfig what it reads.
	address, kubeconfig string
	// through, if it is set, returns with what kubeconfig the controller comes instead of its own.
	through func(kubeconfig string) string
}

// newWorld is an API server with our APIs.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: apiserver.Start(t), t: t}
	w.InstallAPIs(t)
	return w
}

// newLivingWorld has controllers of Kubernetes and kubelets, too.
func newLivingWorld(t *testing.T, controllers ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.StartControllers(t, controllers...)
	w.runKubelets()
	return w
}

// TestSurvivalController is the first walk-through of docs/survival.md: a service of six has room after the loss of any
// zone, then batch work takes the room, then the batch work has a lower priority and gives way.
func TestSurvivalController(t *testing.T) {
	w := newLivingWorld(t)
	w.StartScheduler(t)
	stop := w.startController()
	w.Kubectl(t, "apply", "-f", filepath.Join(w.Root, "examples", "zone-survival", "survival.yaml"))
	asked := *w.waitReason(v1alpha1.ReasonNoPods)

	steps := w.walkthrough("docs/survival.md", "Walk-through: from yes to no and back")
	steps.next()
	is := w.waitReason(v1alpha1.ReasonAllPlaced)
	require.Equal(t, []string{"a", "b", "c"}, []string{is.Status.Losses[0].Zone, is.Status.Losses[1].Zone, is.Status.Losses[2].Zone})
	require.Equal(t, "1", is.Status.Losses[0].Margin[0].Free.Cpu().String(), "of 4 CPUs in zone b three are taken, by one replica of zone a")
	require.Equal(t, is.Generation, is.Status.ObservedGeneration)
	w.waitMetric(`zonewise_survival_survives{zonesurvival="services"} 1`)
	w.waitMetric(`zonewise_survival_margin_ratio{lost_zone="a",resource="cpu",zone="b",zonesurvival="services"} 0.25`)

	steps.next()
	is = w.waitReason(v1alpha1.ReasonPodsWait)
	require.Equal(t, int64(2), is.Status.Losses[0].Waiting)
	witness := is.Status.Losses[0].Witnesses[0]
	require.Equal(t, apiserver.Namespace, witness.Namespace)
	require.Contains(t, witness.Name, "web-")
	require.Contains(t, witness.Why, "0/2 nodes are available: 2 Insufficient cpu")
	w.waitMetric(`zonewise_survival_survives{zonesurvival="services"} 0`)

	steps.next()
	w.waitReason(v1alpha1.ReasonAllPlaced)
	steps.requireEnd()

	w.until("an event for each change", func() (bool, error) {
		var events eventsv1.EventList
		if err := w.List(t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return false, err
		}
		var said []string
		slices.SortFunc(events.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		for _, e := range events.Items {
			if e.Regarding.Kind == "ZoneSurvival" && e.Regarding.UID == asked.UID {
				said = append(said, e.Type+" "+e.Reason)
			}
		}
		return strings.Join(slices.Compact(said), ", ") == "Normal SurvivalUnknown, Normal Survives, Warning DoesNotSurvive, Normal Survives", nil
	})
	metrics, err := w.metrics()
	require.NoError(t, err)
	require.NotRegexp(t, `(?m)^(scheduler_|zonewise_(zonespread|reservecache|permitgate))`, metrics, "figures of copies are not figures of the cluster")

	// A wrong selector is an answer too, which names the field.
	asked.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(&asked), is))
	before := is.DeepCopy()
	is.Spec = asked.Spec
	require.NoError(t, w.Patch(t.Context(), is, client.MergeFrom(before))) // the controller writes to it, too
	is = w.waitReason(v1alpha1.ReasonInvalid)
	require.Contains(t, is.Status.Conditions[0].Message, "spec.workloads[0].podSelector")

	stop()
	var lease coordinationv1.Lease
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: controller.LeaseName}, &lease))
	require.Empty(t, *lease.Spec.HolderIdentity, "the lease is given back")
}

// TestSurvivalRules: the controller reads each kind that a copy of a cluster has, and no other. That it may do the rest
// that it does, and that what it may read is enough, TestSurvivalController and TestSurvivalHold show.
func TestSurvivalRules(t *testing.T) {
	var granted, needed, written []string
	for _, rule := range rules(t, controllerRules...) {
		for _, r := range rule.Resources {
			if slices.Equal(rule.Verbs, []string{"list", "watch"}) {
				granted = append(granted, strings.TrimSuffix(r+"."+rule.APIGroups[0], "."))
			} else {
				written = append(written, r+": "+strings.Join(rule.Verbs, ", "))
			}
		}
	}
	for _, kind := range kinds.All() {
		r, _ := kinds.ResourceOf(kind)
		needed = append(needed, r.String())
	}
	require.ElementsMatch(t, needed, granted)
	require.Equal(t, []string{"zonesurvivals/status: update", "zonereservations: create, patch, delete"}, written)
}

// TestRules: what the tests of the other parts need, and no more. Without a component of its own the controller may
// evict no pod.
func TestRules(t *testing.T) {
	rule := func(group, resources, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, " "), Verbs: strings.Split(verbs, " ")}
	}
	for flag, want := range map[string][]rbacv1.PolicyRule{
		"--buy": {
			rule(buy.Group, "capacitybuffers", "list create patch delete"), rule("", "podtemplates", "list create patch delete"),
			rule("zonewise.dev", "zonereservations/status zonesurvivals/status", "patch"),
		},
		"--deletion-costs": {rule("", "pods", "patch"), rule("zonewise.dev", "zonespreadpolicies/status", "patch")},
		"--gang-budgets":   {rule("policy", "poddisruptionbudgets", "create update delete"), rule("events.k8s.io", "events", "create")},
		"--rebalance":      {rule("zonewise.dev", "zonerebalances/status", "update"), rule("", "pods/eviction", "create")},
	} {
		require.Equal(t, want, rules(t, partRules[flag]...), flag)
	}
}

// controllerRules are the files with the rules of the controller and of the part --survival.
var controllerRules = []string{"components/controller/clusterrole.yaml", "components/controller/survival.yaml"}

// partRules are those of the other parts, by their flags.
var partRules = map[string][]string{
	"--buy":            {"components/buy/clusterrole.yaml"},
	"--deletion-costs": {"components/deletion-costs/clusterrole.yaml"},
	"--gang-budgets":   {"components/gang-budgets/clusterrole.yaml"},
	"--rebalance":      {"components/rebalance/clusterrole.yaml", "components/rebalance-evict/clusterrole.yaml"},
}

// rules are those of the ClusterRoles in files of manifests.
func rules(t *testing.T, files ...string) []rbacv1.PolicyRule {
	t.Helper()
	var out []rbacv1.PolicyRule
	for _, file := range files {
		var role rbacv1.ClusterRole
		content, err := manifests.FS.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(content, &role))
		out = append(out, role.Rules...)
	}
	return out
}

// startController runs the program with the permissions of the component, and of others if the flags turn on more
// parts. stop ends it, and waits.
func (w *world) startController(flags ...string) (stop func()) {
	w.t.Helper()
	const user = "controller"
	files := slices.Clone(controllerRules)
	for _, flag := range flags {
		files = append(files, partRules[flag]...)
	}
	kubeconfig := w.User(w.t, user, rules(w.t, files...))
	if w.through != nil {
		kubeconfig = w.through(kubeconfig)
	}
	content, err := manifests.FS.ReadFile("components/controller/roles.yaml")
	require.NoError(w.t, err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		role := &rbacv1.Role{}
		require.NoError(w.t, yaml.UnmarshalStrict([]byte(document), role))
		w.Make(w.t, role, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	w.kubeconfig = kubeconfig
	return w.restartController(flags...)
}

// restartController runs the program once more.
func (w *world) restartController(flags ...string) (stop func()) {
	w.t.Helper()
	port, err := controlplane.FreePort()
	require.NoError(w.t, err)
	w.address = fmt.Sprintf("127.0.0.1:%d", port)
	cmd := controller.NewCommand(nil)
	cmd.SetArgs(append([]string{"--survival", "--kubeconfig=" + w.kubeconfig, "--address=" + w.address, "--cpu-fraction=64", "--settle-time=100ms", "--replays=2"}, flags...))
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Log("the controller ended: ", err)
		}
	}
	w.t.Cleanup(cancel)
	return stop
}

// run makes a ReplicaSet with running pods of 1 CPU on these nodes.
func (w *world) run(app string, nodes ...string) {
	w.t.Helper()
	labels := map[string]string{"app": app}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: build.Pod("", "1").Spec}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace, GenerateName: app + "-"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	w.Make(w.t, set)
	for i, node := range nodes {
		pod := pod(fmt.Sprintf("%s-%d", app, i), "1", labels, *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
		pod.Spec.NodeName = node
		w.Make(w.t, pod)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &pod.CreationTimestamp}
		require.NoError(w.t, w.Status().Update(w.t.Context(), pod))
	}
}

// waitReason waits until the ZoneSurvival has the condition with a reason, for its newest spec.
func (w *world) waitReason(reason string) *v1alpha1.ZoneSurvival {
	w.t.Helper()
	is := &v1alpha1.ZoneSurvival{}
	w.until(reason, func() (bool, error) {
		err := w.Get(w.t.Context(), client.ObjectKey{Name: "services"}, is)
		c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionSurvives)
		// Pods come one after the other, and each may change the answer.
		var pods corev1.PodList
		if err == nil {
			err = w.List(w.t.Context(), &pods)
		}
		return c != nil && c.Reason == reason && is.Status.ObservedGeneration == is.Generation && is.Status.Snapshot.Pods == int64(len(pods.Items)), err
	})
	return is
}

func (w *world) until(what string, met func() (bool, error)) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, 2*apiserver.Eventually, true, func(context.Context) (bool, error) { return met() })
	require.NoError(w.t, err, what)
}

func (w *world) metrics() (string, error) {
	response, err := http.Get("http://" + w.address + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}

// waitMetric waits until the controller, which may have begun just now, has a line among its metrics.
func (w *world) waitMetric(line string) {
	w.t.Helper()
	w.until(line, func() (bool, error) {
		metrics, err := w.metrics()
		return err == nil && strings.Contains(metrics, line+"\n"), nil
	})
}

// rowsOf returns the rows about an object that a document shows, of so many columns without the ages.
func rowsOf(t *testing.T, document, name string, columns int) [][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(apiserver.Root(t), "docs", document))
	require.NoError(t, err)
	var out [][]string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > columns && fields[0] == name {
			out = append(out, fields[:columns])
		}
	}
	return out
}
