package manifests

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// setUp makes what the cases share.
func (r *removal) setUp(t *testing.T) {
	t.Helper()
	_, err := r.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, zone := range []string{"a", "b", "c"} {
		r.node(t, "node-"+zone, zone, "16")
	}
	r.node(t, "node-full", "a", "2", corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule})
	r.devices(t, "node-a", "gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7")
	r.storageClass(t, "static", "kubernetes.io/no-provisioner")
	r.storageClass(t, "dynamic", "disk.example.com")
	_, err = r.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{})
	require.NoError(t, err)
	r.refuseBinds(t)
	r.reader(t, "monitoring")
}

// onFull has a pod go to the node that is full.
func onFull(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-full"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "full", Operator: corev1.TolerationOpExists}}
}

// makes returns a use that makes a pod.
func (r *removal) makes(name, cpu string, change func(t *testing.T) func(*corev1.Pod)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		var edit func(*corev1.Pod)
		if change != nil {
			edit = change(t)
		}
		r.create(t, pod(name, cpu, edit))
	}
}

// saysSo and isBound are the two ends of a pod that cannot be bound without a permission.
func (r *removal) saysSo(name string) func(*testing.T) {
	return func(t *testing.T) { r.says(t, name) }
}

func (r *removal) isBound(name string) func(*testing.T) {
	return func(t *testing.T) { r.bound(t, name) }
}

func (r *removal) claim(name string) func(*testing.T) func(*corev1.Pod) {
	return func(t *testing.T) func(*corev1.Pod) { return r.deviceClaim(t, name) }
}

func extended(*testing.T) func(*corev1.Pod) { return extendedResource }

func (r *removal) reservedFor(t *testing.T, claim string) []resourcev1.ResourceClaimConsumerReference {
	t.Helper()
	got, err := r.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), claim, metav1.GetOptions{})
	require.NoError(t, err)
	return got.Status.ReservedFor
}

// status returns the status of an object of Zonewise's or of a PodGroup; nil while it has none.
func (r *removal) status(ctx context.Context, t *testing.T, gvr schema.GroupVersionResource, in, name string) map[string]any {
	t.Helper()
	u, err := r.dynamic.Resource(gvr).Namespace(in).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	status, _, err := unstructured.NestedMap(u.Object, "status")
	require.NoError(t, err)
	return status
}

// reported are the two ends of a status that is not written without a permission.
func (r *removal) reported(tc removalCase, gvr schema.GroupVersionResource, in, name string) removalCase {
	tc.broken = func(t *testing.T) { require.Empty(t, r.status(t.Context(), t, gvr, in, name)) }
	tc.mended = func(t *testing.T) {
		until(t, "the status of "+name, func(ctx context.Context) (bool, error) { return len(r.status(ctx, t, gvr, in, name)) > 0, nil })
	}
	return tc
}

// writeCases are the permissions that a running scheduler uses.
func (r *removal) writeCases() []removalCase {
	const dra = "resource.k8s.io"
	token := ""
	metrics := func(want bool) func(*testing.T) {
		return func(t *testing.T) {
			until(t, "metrics", func(ctx context.Context) (bool, error) {
				// A new token each time: answers about old ones are remembered.
				return (r.scheduler.get(ctx, "/metrics", r.token(t, "monitoring")) == http.StatusOK) == want, nil
			})
		}
	}
	askMetrics := func(t *testing.T) {
		token = r.token(t, "monitoring")
		require.NotEqual(t, http.StatusOK, r.scheduler.get(t.Context(), "/metrics", token))
	}
	return []removalCase{
		{permission: permission{"create", "", "pods/binding"}, use: r.makes("binding", "100m", nil), broken: r.saysSo("binding"), mended: r.isBound("binding")},
		{permission: permission{"delete", "", "pods"}, use: func(t *testing.T) {
			r.create(t, pod("low", "2", onFull))
			r.bound(t, "low")
			r.create(t, pod("high", "2", func(p *corev1.Pod) { onFull(p); p.Spec.PriorityClassName = "high" }))
		}, broken: func(t *testing.T) {
			low, err := r.client.CoreV1().Pods(namespace).Get(t.Context(), "low", metav1.GetOptions{})
			require.NoError(t, err)
			require.Nil(t, low.DeletionTimestamp, "the victim stays")
		}},
		{permission: permission{"patch", "", "pods/status"}, use: r.makes("too-big", "1000", nil), broken: func(t *testing.T) {
			p, err := r.client.CoreV1().Pods(namespace).Get(t.Context(), "too-big", metav1.GetOptions{})
			require.NoError(t, err)
			require.Empty(t, p.Status.Conditions, "nobody is told why it waits")
		}},
		{permission: permission{"update", "", "persistentvolumes"}, use: r.makes("static", "100m", func(t *testing.T) func(*corev1.Pod) {
			r.volume(t, "static", "static", nil)
			return r.volumeClaim(t, "static", "static")
		}), broken: r.saysSo("static")},
		{permission: permission{"update", "", "persistentvolumeclaims"}, use: r.makes("dynamic", "100m", func(t *testing.T) func(*corev1.Pod) {
			return r.volumeClaim(t, "dynamic", "dynamic")
		}), broken: r.saysSo("dynamic")},
		{permission: permission{"update", dra, "resourceclaims"}, use: r.makes("claim", "100m", r.claim("claim")), broken: r.saysSo("claim"), mended: r.isBound("claim")},
		{permission: permission{"update", dra, "resourceclaims/status"}, use: r.makes("status", "100m", r.claim("status")), broken: r.saysSo("status"), mended: r.isBound("status")},
		{
			permission: permission{"update", dra, "resourceclaims/binding"}, asked: permission{"update", dra, "resourceclaims/status"},
			use: r.makes("bind-claim", "100m", r.claim("bind-claim")), broken: r.saysSo("bind-claim"), mended: r.isBound("bind-claim"),
		},
		{permission: permission{"patch", dra, "resourceclaims/status"}, use: r.makes("refused-patch", "100m", r.claim("refused-patch")), broken: func(t *testing.T) {
			require.NotEmpty(t, r.reservedFor(t, "refused-patch"), "the claim stays reserved for a pod that is not bound")
		}},
		{
			permission: permission{"patch", dra, "resourceclaims/binding"}, asked: permission{"patch", dra, "resourceclaims/status"},
			use: r.makes("refused-unbind", "100m", r.claim("refused-unbind")), broken: func(t *testing.T) {
				require.NotEmpty(t, r.reservedFor(t, "refused-unbind"), "the claim stays reserved for a pod that is not bound")
			},
		},
		{permission: permission{"create", dra, "resourceclaims"}, use: r.makes("extended", "100m", extended), broken: r.saysSo("extended"), mended: r.isBound("extended")},
		{permission: permission{"delete", dra, "resourceclaims"}, use: r.makes("refused-extended", "100m", extended), broken: func(t *testing.T) {
			claims, err := r.client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(claims.Items, func(c resourcev1.ResourceClaim) bool {
				return slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == "refused-extended" })
			}), "the claim that the scheduler made stays")
		}},
		{permission: permission{"create", "events.k8s.io", "events"}, use: r.makes("silent", "100m", nil), broken: func(t *testing.T) {
			r.bound(t, "silent")
			require.Empty(t, r.events(t.Context(), t, "silent"), "nobody hears of it")
		}},
		{permission: permission{"patch", "events.k8s.io", "events"}, use: func(t *testing.T) { r.refuseInSeries(t, "series") }, broken: func(t *testing.T) {
			require.NotContains(t, r.events(t.Context(), t, "series"), true, "nobody hears that it goes on")
		}},
		{permission: permission{"create", "authentication.k8s.io", "tokenreviews"}, use: askMetrics, broken: metrics(false), mended: metrics(true)},
		{permission: permission{"create", "authorization.k8s.io", "subjectaccessreviews"}, use: askMetrics, broken: metrics(false), mended: metrics(true)},
		r.reported(removalCase{permission: permission{"patch", "scheduling.x-k8s.io", "podgroups/status"}, use: func(t *testing.T) {
			r.podGroup(t, "train", 2)
			for _, name := range []string{"train-0", "train-1"} {
				r.create(t, pod(name, "100m", func(p *corev1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = "train" }))
			}
		}}, podGroups, namespace, "train"),
		r.reported(removalCase{permission: permission{"patch", "zonewise.dev", "zonespreadpolicies/status"}, use: func(t *testing.T) { r.spreadPolicy(t, "api") }}, spreadPolicies, namespace, "api"),
		r.reported(removalCase{permission: permission{"patch", "zonewise.dev", "zonereservations/status"}, use: func(t *testing.T) { r.reserve(t, "headroom") }}, zoneReservations, "", "headroom"),
	}
}

// events tells of each event about a pod whether it has become a series.
func (r *removal) events(ctx context.Context, t *testing.T, name string) []bool {
	t.Helper()
	list, err := r.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var series []bool
	for i := range list.Items {
		if list.Items[i].Regarding.Name == name {
			series = append(series, list.Items[i].Series != nil)
		}
	}
	return series
}

// refuseInSeries has a pod refused in the same words until the event about it should become a series.
func (r *removal) refuseInSeries(t *testing.T, name string) {
	t.Helper()
	from := r.auditedSoFar(t)
	r.node(t, name, "a", "64", corev1.Taint{Key: "forbidden", Effect: corev1.TaintEffectNoSchedule})
	r.create(t, pod(name, "64", nil))
	want, cpus := permission{"patch", "events.k8s.io", "events"}, int64(64)
	until(t, want.String(), func(ctx context.Context) (bool, error) {
		node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		cpus++
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
		if _, err := r.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return false, err
		}
		return r.asked(t, from, want), nil
	})
}

// leaseCases are the permissions that electing a leader needs. Each starts a scheduler, and leads when it may.
func (r *removal) leaseCases() []removalCase {
	const group = "coordination.k8s.io"
	leases := r.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	drop := func(t *testing.T) {
		err := leases.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=kube-scheduler"})
		require.NoError(t, err)
	}
	start := func(t *testing.T) {
		startAnyhow(t, r.schedulerCommand(t, r.objects))
	}
	holder := func(ctx context.Context) (string, error) {
		list, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-scheduler"})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return ptr.Deref(list.Items[0].Spec.HolderIdentity, ""), nil
	}
	leads := func(t *testing.T) {
		until(t, "it leads", func(ctx context.Context) (bool, error) {
			h, err := holder(ctx)
			return h != "", err
		})
	}
	nobody := func(t *testing.T) {
		h, err := holder(t.Context())
		require.NoError(t, err)
		require.Empty(t, h, "nobody leads")
	}
	fresh := func(t *testing.T) { drop(t); start(t) }
	// A lease that its holder has given up, as a leader that stops does.
	free := func(t *testing.T) {
		drop(t)
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(""), LeaseDurationSeconds: ptr.To[int32](1)},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		start(t)
	}
	in := metav1.NamespaceSystem
	return []removalCase{
		{permission: permission{"create", group, "leases"}, namespace: in, use: fresh, broken: nobody, mended: leads},
		{permission: permission{"get", group, "leases"}, namespace: in, use: free, broken: nobody, mended: leads},
		{permission: permission{"update", group, "leases"}, namespace: in, use: free, broken: nobody, mended: leads},
		{permission: permission{"create", "", "events"}, namespace: in, use: fresh, broken: func(t *testing.T) {
			leads(t)
			events, err := r.client.CoreV1().Events(in).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
			require.NoError(t, err)
			h, err := holder(t.Context())
			require.NoError(t, err)
			require.False(t, slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return len(e.Message) > len(h) && e.Message[:len(h)] == h }), "nobody hears who leads")
		}},
	}
}
