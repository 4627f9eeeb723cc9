package manifests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/admission"
)

// unseen are permissions that are needed although no request names them, with the reason.
var unseen = map[permission]string{
	{"update", "resource.k8s.io", "resourceclaims/binding"}: "the API server asks for it inside of an update of resourceclaims/status",
	{"patch", "resource.k8s.io", "resourceclaims/binding"}:  "the API server asks for it inside of a patch of resourceclaims/status",
}

// testLeastPrivilege runs the scheduler with the permissions of the manifests through everything that
// kube-scheduler and the plugins do to a cluster. It was refused nothing, so the permissions suffice; it used
// all of them, so none is too many.
func (c *cluster) testLeastPrivilege(t *testing.T) {
	const overlay = "overlays/replace-kube-scheduler"
	_, err := c.apply(t, overlay)
	require.NoError(t, err)
	c.make(t, &corev1.Namespace{ObjectMeta: named(namespace)})
	for _, zone := range []string{"a", "b", "c"} {
		c.node(t, "node-"+zone, zone, "4")
	}
	c.devices(t, "node-a", "gpu-0", "gpu-1", "gpu-2", "gpu-3")

	s := c.startScheduler(t, c.render(t, overlay))
	t.Run("spread", c.useSpread)
	t.Run("policy", c.usePolicy)
	t.Run("reservation", c.useReservation)
	t.Run("gang", c.useGang)
	t.Run("volumes", c.useVolumes)
	t.Run("devices", c.useDevices)
	t.Run("a bind that is refused", c.useRefusedBind)
	t.Run("preemption", c.usePreemption)
	t.Run("events", c.useEventSeries)
	t.Run("metrics", func(t *testing.T) { c.useMetrics(t, s) })
	if t.Failed() {
		return // what was not used says nothing
	}

	var rules []rbacv1.PolicyRule
	for _, u := range c.render(t, overlay) {
		if u.GetKind() == "ClusterRole" || u.GetKind() == "Role" {
			var role rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role))
			rules = append(rules, role.Rules...)
		}
	}
	used, refused := c.requests(t, schedulerAccount)
	require.Empty(t, list(refused), "the scheduler asked for what it may not do")
	for p := range unseen {
		require.False(t, used[p], "%s is seen, and needs no exception", p)
		used[p] = true
	}
	var unused []string
	for p := range granted(rules) {
		if !used[p] {
			unused = append(unused, p.String())
		}
	}
	slices.Sort(unused)
	require.Empty(t, unused, "no request needed these permissions")
}

func list(permissions map[permission]bool) []string {
	var out []string
	for p := range permissions {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

func (c *cluster) useSpread(t *testing.T) {
	nodes := map[string]bool{}
	for i := range 3 {
		name := fmt.Sprintf("web-%d", i)
		c.make(t, pod(name, "100m", func(p *corev1.Pod) {
			build.App("web")(p)
			build.Spread("web", 1, corev1.DoNotSchedule)(p)
		}))
		nodes[c.bound(t, name)] = true
	}
	require.Len(t, nodes, 3, "one in each zone")
}

// usePolicy spreads the pods of a Deployment by a policy, which tells in its status how many pods the
// Deployment wants.
func (c *cluster) usePolicy(t *testing.T) {
	p := spreadPolicy("api")
	c.make(t, p)
	owner := c.replicaSetOfDeployment(t, "api", 3)
	nodes := map[string]bool{}
	for i := range 3 {
		name := fmt.Sprintf("api-%d", i)
		c.make(t, pod(name, "100m", func(p *corev1.Pod) {
			p.Labels["app"] = "api"
			p.OwnerReferences = []metav1.OwnerReference{owner}
		}))
		nodes[c.bound(t, name)] = true
	}
	require.Len(t, nodes, 3, "one in each zone")
	until(t, "the policy's status", func(ctx context.Context) (bool, error) {
		err := c.api.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.Pods == 3 && p.Status.Replicas == 3, err
	})
}

func (c *cluster) useGang(t *testing.T) {
	c.podGroup(t, "train", 2)
	c.make(t, pod("train-0", "100m", build.Member("train")), pod("train-1", "100m", build.Member("train")))
	c.bound(t, "train-0")
	c.bound(t, "train-1")
}

// useVolumes makes the scheduler bind a volume that is there, and ask for one that is not.
func (c *cluster) useVolumes(t *testing.T) {
	c.storageClass(t, "static", "kubernetes.io/no-provisioner")
	c.volume(t, "static", "static", nil)
	c.make(t, pod("static", "100m", c.volumeClaim(t, "static", "static")))
	until(t, "the volume is claimed", func(ctx context.Context) (bool, error) {
		pv, err := c.client.CoreV1().PersistentVolumes().Get(ctx, "static", metav1.GetOptions{})
		return err == nil && pv.Spec.ClaimRef != nil, err
	})
	c.bindClaim(t, "static", "static")
	c.bound(t, "static")

	c.storageClass(t, "dynamic", "disk.example.com")
	c.make(t, pod("dynamic", "100m", c.volumeClaim(t, "dynamic", "dynamic")))
	until(t, "the provisioner knows the node", func(ctx context.Context) (bool, error) {
		pvc, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, "dynamic", metav1.GetOptions{})
		return err == nil && pvc.Annotations["volume.kubernetes.io/selected-node"] != "", err
	})
	pvc, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "dynamic", metav1.GetOptions{})
	require.NoError(t, err)
	c.volume(t, "dynamic", "dynamic", &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: "dynamic", UID: pvc.UID})
	c.bindClaim(t, "dynamic", "dynamic")
	c.bound(t, "dynamic")
}

// useDevices makes the scheduler allocate a claim, and make one for an extended resource.
func (c *cluster) useDevices(t *testing.T) {
	c.make(t, pod("claim", "100m", c.deviceClaim(t, "claim")))
	require.Equal(t, "node-a", c.bound(t, "claim"))
	c.make(t, pod("extended", "100m", extendedResource))
	require.Equal(t, "node-a", c.bound(t, "extended"))
}

// useRefusedBind has an admission policy refuse the binding, so that the scheduler undoes what it had
// prepared for the pod: the claim's reservation, and the claim that it had made itself.
func (c *cluster) useRefusedBind(t *testing.T) {
	c.refuseBinds(t)
	c.make(t, pod("refused-claim", "100m", c.deviceClaim(t, "refused-claim")))
	c.waitUsed(t, permission{"patch", "resource.k8s.io", "resourceclaims/status"})
	c.make(t, pod("refused-extended", "100m", extendedResource))
	c.waitUsed(t, permission{"delete", "resource.k8s.io", "resourceclaims"})
	for _, name := range []string{"refused", "refused-claim", "refused-extended"} {
		require.NoError(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		c.gone(t, name)
	}
}

// refuseBinds has an admission policy refuse to bind pods whose name starts with "refused", and waits until it is in
// force.
func (c *cluster) refuseBinds(t *testing.T) {
	t.Helper()
	admission.Refuse(t, c.api, namespace, admissionv1.Create, "pods/binding", admissionv1.Validation{
		Expression: `!object.metadata.name.startsWith("refused")`, Message: "refused by the test",
	})
	// The server takes a moment to know the policy: a rehearsal by a pod that no scheduler wants.
	c.make(t, pod("refused", "100m", func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }))
	until(t, "the policy is in force", func(ctx context.Context) (bool, error) {
		err := c.client.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: namespace},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, nil
	})
}

// waitUsed waits until the scheduler has used a permission.
func (c *cluster) waitUsed(t *testing.T, p permission) {
	t.Helper()
	until(t, p.String(), func(context.Context) (bool, error) {
		used, _ := c.requests(t, schedulerAccount)
		return used[p], nil
	})
}

// usePreemption has a pod take the place of another.
func (c *cluster) usePreemption(t *testing.T) {
	c.make(t, &schedulingv1.PriorityClass{ObjectMeta: named("high"), Value: 1000})
	c.node(t, "node-full", "a", "2", corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule})
	only := func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-full"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "full", Operator: corev1.TolerationOpExists}}
	}
	c.make(t, pod("low", "2", only))
	c.bound(t, "low")
	c.make(t, pod("high", "2", func(p *corev1.Pod) {
		only(p)
		p.Spec.PriorityClassName = "high"
	}))
	c.gone(t, "low")
	require.Equal(t, "node-full", c.bound(t, "high"))
}

// useEventSeries has a pod refused until the event about it becomes a series, which is a patch. Whenever
// the node that is large enough grows, the scheduler looks at the pod again, and refuses it in the same
// words because of the node's taint.
func (c *cluster) useEventSeries(t *testing.T) {
	c.node(t, "forbidden", "a", "64", corev1.Taint{Key: "forbidden", Effect: corev1.TaintEffectNoSchedule})
	c.make(t, pod("large", "64", nil))
	series := permission{"patch", "events.k8s.io", "events"}
	cpus := int64(64)
	until(t, series.String(), func(ctx context.Context) (bool, error) {
		node, err := c.client.CoreV1().Nodes().Get(ctx, "forbidden", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		cpus++
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
		if _, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return false, err
		}
		used, _ := c.requests(t, schedulerAccount)
		return used[series], nil
	})
	require.NoError(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), "large", metav1.DeleteOptions{}))
}

// useMetrics has somebody who may read the metrics read them, and somebody who may not.
func (c *cluster) useMetrics(t *testing.T, s *scheduler) {
	// Who may read the metrics of whoever asks the API server about it.
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: metav1.NamespaceSystem, Name: "monitoring"}
	c.make(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace, Name: "stranger"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace, Name: subject.Name}},
		&rbacv1.ClusterRole{ObjectMeta: named("metrics"), Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named("metrics"), Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
		})
	monitoring, stranger := c.token(t, "monitoring"), c.token(t, "stranger")
	until(t, "monitoring may read", func(ctx context.Context) (bool, error) {
		return s.get(ctx, "/metrics", monitoring) == http.StatusOK, nil
	})
	require.Equal(t, http.StatusForbidden, s.get(t.Context(), "/metrics", stranger))
	require.Equal(t, http.StatusForbidden, s.get(t.Context(), "/metrics", ""))
	require.Equal(t, http.StatusForbidden, s.get(t.Context(), "/configz", monitoring))
}
