package karpenter

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/controller"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/apiserver"
)

const namespace = apiserver.Namespace

func TestMain(m *testing.M) {
	apiserver.Main(m)
}

// cluster is a cluster with the nodes node-a and node-b of 4 CPUs, which are not Karpenter's, in which Karpenter buys
// nodes of 4 CPUs in the zones a, b and c.
type cluster struct {
	*apiserver.Server
	t *testing.T
}

// start starts a cluster with the scheduler, the controller, kwok in place of kubelets, and Karpenter.
func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: apiserver.Start(t), t: t}
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-c"}}))
	c.InstallAPIs(t)
	c.Make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "capacity-buffers"}})
	c.StartControllers(t)
	c.StartScheduler(t)
	c.StartKubelets(t)
	types, err := filepath.Abs(filepath.Join("testdata", "types.json"))
	require.NoError(t, err)
	c.StartKarpenter(t, types)
	c.Kubectl(t, "apply", "-f", filepath.Join("testdata", "nodepool.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout="+apiserver.Eventually.String(), "nodepool/default")
	c.startController()
	return c
}

// startController runs the controller, with all parts that concern an autoscaler, until the test ends.
func (c *cluster) startController() {
	cmd := controller.NewCommand(nil)
	cmd.SetArgs([]string{
		"--survival", "--buy", "--gang-budgets", "--kubeconfig=" + c.Admin(), "--address=", "--cpu-fraction=64", "--settle-time=100ms", "--replays=2",
	})
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Log("the controller ended: ", err)
		}
	})
}

// in is the cluster for a subtest, which finds it empty and leaves it empty: without workloads, and with the nodes
// node-a and node-b alone.
func (c *cluster) in(t *testing.T) *cluster {
	t.Helper()
	out := &cluster{Server: c.Server, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Kubectl(c.t, "get", "nodes,nodeclaims,capacitybuffers,zonereservations,pods", "--all-namespaces", "-o", "wide", "-L", corev1.LabelTopologyZone))
			t.Log(c.Kubectl(c.t, "get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"))
		}
		c.clear()
	})
	return out
}

// clear deletes what a subtest has made, and the nodes that were bought for it.
func (c *cluster) clear() {
	c.t.Helper()
	c.Kubectl(c.t, "delete", "zonesurvivals,zonereservations", "--all")
	c.Kubectl(c.t, "delete", "deployments,zonespreadpolicies,podgroups", "--all", "--namespace="+namespace, "--cascade=foreground")
	c.Kubectl(c.t, "delete", "pods,poddisruptionbudgets", "--all", "--namespace="+namespace)
	c.waitNothingAsked()
	c.until("what was bought is gone", func() (bool, error) {
		c.Kubectl(c.t, "delete", "nodeclaims", "--all", "--wait=false")
		return len(c.nodeClaims()) == 0 && len(c.nodes()) == 2, nil
	})
}

// waitNothingAsked waits until there is no CapacityBuffer.
func (c *cluster) waitNothingAsked() {
	c.t.Helper()
	c.until("nothing is asked for", func() (bool, error) {
		list := listOf("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
		err := c.List(c.t.Context(), list)
		return len(list.Items) == 0, err
	})
}

// show applies the MutatingAdmissionPolicies that show policies and gangs to autoscalers.
func (c *cluster) show() {
	c.t.Helper()
	for _, file := range []string{"policies.yaml", "gangs.yaml"} {
		c.Kubectl(c.t, "apply", "-f", filepath.Join(c.Root, "manifests", "components", "autoscaler-constraints", file))
	}
}

// waitShown waits until the API server adds to new pods with these labels what shows them to autoscalers. It sees a
// policy or a PodGroup some time after it was made.
func (c *cluster) waitShown(labels map[string]string) {
	c.t.Helper()
	c.until("the API server shows pods to autoscalers", func() (bool, error) {
		probe := build.Pod("probe", "1", build.Namespace(namespace), func(p *corev1.Pod) { p.Labels, p.UID = labels, "" })
		err := c.Create(c.t.Context(), probe, client.DryRunAll)
		return len(probe.Spec.TopologySpreadConstraints) > 0 || probe.Spec.Affinity != nil, err
	})
}

func (c *cluster) until(what string, met func() (bool, error)) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 200*time.Millisecond, 2*apiserver.Eventually, true, func(context.Context) (bool, error) { return met() })
	require.NoError(c.t, err, what)
}

// untilLooked waits for what Karpenter does or says when it looks at its nodes. After a look in vain it looks again
// when a pod or a node has come or gone, or after five minutes. A look leaves out the nodes that are nominated for a
// pod, and the end of a nomination brings no new one: so a pod comes and goes all the time.
func (c *cluster) untilLooked(what string, met func() (bool, error)) {
	c.t.Helper()
	pod := build.Pod("passes", "1", build.Namespace(namespace), func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" })
	err := wait.PollUntilContextTimeout(c.t.Context(), 2*time.Second, 2*apiserver.Eventually, true, func(context.Context) (bool, error) {
		pod.UID, pod.ResourceVersion = "", ""
		c.Make(c.t, pod)
		require.NoError(c.t, c.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0)))
		return met()
	})
	require.NoError(c.t, err, what)
}

// deploy makes a Deployment of pods with the label app, or of members of a gang.
func (c *cluster) deploy(name string, replicas int32, cpu string, options ...func(*corev1.Pod)) {
	c.t.Helper()
	pod := build.Pod(name, cpu, append([]func(*corev1.Pod){build.App(name)}, options...)...)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	c.Make(c.t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
	}})
}

// inZone lets a pod run only in a zone.
func inZone(zone string) func(*corev1.Pod) { return build.Selects(corev1.LabelTopologyZone, zone) }

// remove deletes a Deployment and its pods.
func (c *cluster) remove(name string) {
	c.t.Helper()
	c.Kubectl(c.t, "delete", "deployment", name, "--namespace="+namespace, "--cascade=foreground")
}

func (c *cluster) pods(app string) []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app": app}))
	return pods.Items
}

// waiting are those of the pods that no node has.
func waiting(pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != "" })
}

// uids are those of the pods that run.
func (c *cluster) uids(app string) []types.UID {
	c.t.Helper()
	var out []types.UID
	for _, p := range c.pods(app) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			out = append(out, p.UID)
		}
	}
	slices.Sort(out)
	return out
}

// waitRunning waits until all pods of an app run, so many in each zone.
func (c *cluster) waitRunning(app, want string) {
	c.t.Helper()
	c.until(app+": "+want, func() (bool, error) { return c.running(app) == want, nil })
}

// running is in which zones the pods of an app run, as in "a 2, b 2, waiting 2".
func (c *cluster) running(app string) string {
	c.t.Helper()
	zones := c.nodes()
	in := map[string]int{}
	for _, p := range c.pods(app) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			in[zones[p.Spec.NodeName]]++
		} else {
			in["waiting"]++
		}
	}
	var out []string
	for _, zone := range []string{"a", "b", "c", "waiting"} {
		if in[zone] > 0 {
			out = append(out, fmt.Sprint(zone, " ", in[zone]))
		}
	}
	return strings.Join(out, ", ")
}

// nodes are the zones of all nodes by their names.
func (c *cluster) nodes() map[string]string {
	c.t.Helper()
	var nodes corev1.NodeList
	require.NoError(c.t, c.List(c.t.Context(), &nodes))
	out := map[string]string{}
	for i := range nodes.Items {
		out[nodes.Items[i].Name] = nodes.Items[i].Labels[corev1.LabelTopologyZone]
	}
	return out
}

func listOf(version, kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(version)
	list.SetKind(kind + "List")
	return list
}

// nodeClaims are Karpenter's orders of nodes.
func (c *cluster) nodeClaims() []unstructured.Unstructured {
	c.t.Helper()
	list := listOf("karpenter.sh/v1", "NodeClaim")
	require.NoError(c.t, c.List(c.t.Context(), list))
	return list.Items
}

// bought are the zones of the nodes that Karpenter has bought, as in "a 1, c 2"; "" if it has ordered none.
func (c *cluster) bought() string {
	c.t.Helper()
	in := map[string]int{}
	for _, claim := range c.nodeClaims() {
		in[claim.GetLabels()[corev1.LabelTopologyZone]]++
	}
	var out []string
	for _, zone := range []string{"", "a", "b", "c"} {
		if in[zone] > 0 {
			out = append(out, strings.TrimSpace(fmt.Sprint(zone, " ", in[zone])))
		}
	}
	return strings.Join(out, ", ")
}

func (c *cluster) waitBought(want string) {
	c.t.Helper()
	c.untilLooked("bought: "+want, func() (bool, error) { return c.bought() == want, nil })
}

// saysOf is whether Karpenter has said something of an object, by an event with a reason and a part of its message.
func (c *cluster) saysOf(uid types.UID, reason, part string) bool {
	c.t.Helper()
	var events corev1.EventList
	require.NoError(c.t, c.List(c.t.Context(), &events))
	return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
		return e.Source.Component == "karpenter" && e.InvolvedObject.UID == uid && e.Reason == reason && strings.Contains(e.Message, part)
	})
}

// waitFits waits until so many pods of an app wait of each of which Karpenter says that it fits on a node that there
// is.
func (c *cluster) waitFits(app string, n int) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d pods of %s wait, and fit as Karpenter sees it", n, app), func() (bool, error) {
		pods := waiting(c.pods(app))
		return len(pods) == n && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !c.saysOf(p.UID, "Nominated", ": node/") }), nil
	})
}

// waitLooked waits until Karpenter has looked at all that waits after this call.
func (c *cluster) waitLooked() {
	c.t.Helper()
	probe := build.Pod("probe", "1", build.Namespace(namespace), inZone("nowhere"), func(p *corev1.Pod) { p.UID = "" })
	c.Make(c.t, probe)
	c.until("Karpenter looks at what waits", func() (bool, error) { return c.saysOf(probe.UID, "FailedScheduling", "nowhere"), nil })
	require.NoError(c.t, c.Delete(c.t.Context(), probe, client.GracePeriodSeconds(0)))
}

// boughtNodes are the nodes that Karpenter has bought, which are there.
func (c *cluster) boughtNodes() []corev1.Node {
	c.t.Helper()
	var nodes corev1.NodeList
	require.NoError(c.t, c.List(c.t.Context(), &nodes, client.HasLabels{"karpenter.sh/nodepool"}))
	return nodes.Items
}

// waitStays waits until Karpenter says that it does not remove a node, and for what reason.
func (c *cluster) waitStays(node *corev1.Node, reason, why string) {
	c.t.Helper()
	c.untilLooked(why, func() (bool, error) { return c.saysOf(node.UID, reason, why), nil })
}

// waitRemoved waits until Karpenter removes a node, and for what reason.
func (c *cluster) waitRemoved(node *corev1.Node, why string) {
	c.t.Helper()
	c.untilLooked("the node is removed: "+why, func() (bool, error) {
		_, there := c.nodes()[node.Name]
		return !there && c.saysOf(node.UID, "DisruptionTerminating", why), nil
	})
}
