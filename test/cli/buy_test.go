package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/test/internal/apiserver"
)

// buffers is the namespace of the CapacityBuffers.
const buffers = "buffers"

// installBuffers installs CapacityBuffers, or changes which versions are served.
func (w *world) installBuffers(versions ...string) {
	w.t.Helper()
	_, err := envtest.InstallCRDs(w.Env.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("testdata", "capacitybuffers.yaml")}, ErrorIfPathMissing: true,
	})
	require.NoError(w.t, err)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	scheme := runtime.NewScheme()
	require.NoError(w.t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(w.Env.Config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
	require.NoError(w.t, c.Get(w.t.Context(), client.ObjectKey{Name: "capacitybuffers." + buy.Group}, definition))
	before := definition.DeepCopy()
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		v.Served = strings.Contains(strings.Join(versions, " "), v.Name)
	}
	require.NoError(w.t, c.Patch(w.t.Context(), definition, client.MergeFrom(before))) // the API server writes to it, too
}

// bufferList returns the CapacityBuffers by zone.
func (w *world) bufferList(version string) (map[string]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(buy.Group + "/" + version)
	list.SetKind(buy.Kind + "List")
	if err := w.List(w.t.Context(), list, client.InNamespace(buffers)); err != nil {
		return nil, err
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetLabels()["zonewise.dev/bought-in"]] = &list.Items[i]
	}
	return out, nil
}

// waitAsked waits until so much is asked for in zones, and returns the CapacityBuffers. The controller looks after each
// change, and this makes one.
func (w *world) waitAsked(version string, want map[string]int64) map[string]*unstructured.Unstructured {
	w.t.Helper()
	var last map[string]*unstructured.Unstructured
	w.touch()
	w.until("what is asked for", func() (bool, error) {
		all, err := w.bufferList(version)
		last = all
		if err != nil || len(all) != len(want) {
			return false, err
		}
		for zone, n := range want {
			if all[zone] == nil || int64(buy.Read(all[zone]).Asked) != n {
				return false, nil
			}
		}
		return true, nil
	})
	return last
}

// touch changes something, so that the controller looks.
func (w *world) touch() {
	w.t.Helper()
	node := &corev1.Node{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "node-a"}, node))
	before := node.DeepCopy()
	node.Labels["touched"] = node.ResourceVersion
	require.NoError(w.t, w.Patch(w.t.Context(), node, client.MergeFrom(before)))
}

// waitBuying waits until the reservation says so of its buying.
func (w *world) waitBuying(name, reason string) *v1alpha1.ZoneReservation {
	w.t.Helper()
	r := &v1alpha1.ZoneReservation{}
	w.touch()
	w.until(reason, func() (bool, error) {
		err := w.Get(w.t.Context(), client.ObjectKey{Name: name}, r)
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBuying)
		return c != nil && c.Reason == reason, err
	})
	return r
}

// edit changes an object as its latest state is.
func (w *world) edit(name string, change func(r *v1alpha1.ZoneReservation)) {
	w.t.Helper()
	r := w.reservation(name)
	before := r.DeepCopy()
	change(r)
	require.NoError(w.t, w.Patch(w.t.Context(), r, client.MergeFrom(before)))
}

// TestBuy: the controller asks for what a reservation wants, as the API server takes it and with the component's
// permissions.
func TestBuy(t *testing.T) {
	w := newWorld(t)
	stop := w.startController("--buy")
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "failover"},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: apiserver.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Slot: v1alpha1.ReservationSlot{
				Requests:    corev1.ResourceList{"cpu": resource.MustParse("2"), "example.com/gpu": resource.MustParse("1")},
				Tolerations: []corev1.Toleration{{Key: "web", Operator: corev1.TolerationOpExists}},
			},
			SlotsPerNode: ptr.To[int32](1), Mode: v1alpha1.ModeGuarantee,
			Zones: []v1alpha1.ReservationZone{{Name: "a", Slots: 3}, {Name: "d", Slots: 2}},
			Buy:   &v1alpha1.Buy{Namespace: buffers, Max: 10, Labels: map[string]string{"team": "shop"}},
		},
	}
	w.Make(t, r)
	w.waitBuying(r.Name, v1alpha1.ReasonNotInstalled)

	// A cluster that serves the older version alone, and has not the namespace yet.
	w.installBuffers("v1alpha1")
	r = w.waitBuying(r.Name, v1alpha1.ReasonNotWritten)
	require.Contains(t, meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBuying).Message, `namespaces "buffers" not found`)
	w.Make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: buffers}})
	all := w.waitAsked("v1alpha1", map[string]int64{"a": 3, "d": 2})
	r = w.waitBuying(r.Name, v1alpha1.ReasonAsked)
	require.Equal(t, []int64{5, 5}, []int64{r.Status.Buy.Wanted, r.Status.Buy.Asked})
	require.Equal(t, all["a"].GetName(), r.Status.Buy.Buffers[0].Name)
	require.True(t, metav1.IsControlledBy(all["a"], r))
	require.Equal(t, "shop", all["a"].GetLabels()["team"])
	require.Equal(t, "zonewise-buy", all["a"].GetManagedFields()[0].Manager)

	template := &corev1.PodTemplate{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(all["a"]), template))
	require.True(t, metav1.IsControlledBy(template, r))
	require.Equal(t, "a", template.Template.Spec.NodeSelector[corev1.LabelTopologyZone])
	require.Equal(t, "2", template.Template.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Len(t, template.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 2)

	// Once the newer version is served, that is the one that is written. Owners use two slots, and the bound is
	// lowered.
	w.installBuffers("v1alpha1", "v1beta1")
	before := r.DeepCopy()
	r.Status.Zones = []v1alpha1.ReservationZoneStatus{{Name: "a", SlotCounts: v1alpha1.SlotCounts{Desired: 3, Held: 3, Used: 2}}}
	require.NoError(t, w.Status().Patch(t.Context(), r, client.MergeFrom(before)))
	w.waitAsked("v1beta1", map[string]int64{"a": 1, "d": 2}) // what is used is not asked for, at once
	w.edit(r.Name, func(r *v1alpha1.ZoneReservation) { r.Spec.Buy.Max = 2 })
	all = w.waitAsked("v1beta1", map[string]int64{"a": 1, "d": 1})
	w.waitBuying(r.Name, v1alpha1.ReasonMaxReached)

	// What somebody changes is changed back, and the autoscaler's answer is passed on.
	theirs := all["a"].DeepCopy()
	require.NoError(t, unstructured.SetNestedField(all["a"].Object, int64(7), "spec", "replicas"))
	require.NoError(t, w.Patch(t.Context(), all["a"], client.MergeFrom(theirs)))
	all = w.waitAsked("v1beta1", map[string]int64{"a": 1, "d": 1})
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(all["a"]), template))
	require.Equal(t, int64(1), template.Generation, "it is applied once")
	edited := template.DeepCopy()
	edited.Template.Spec.Containers = append(edited.Template.Spec.Containers, corev1.Container{Name: "more", Image: "none"})
	edited.Template.Spec.NodeSelector["disk"] = "ssd"
	require.NoError(t, w.Patch(t.Context(), edited, client.MergeFrom(template)))
	w.touch()
	w.until("the PodTemplate is as it was", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(template), edited)
		return equality.Semantic.DeepEqual(template.Template, edited.Template), client.IgnoreNotFound(err)
	})
	w.edit(r.Name, func(r *v1alpha1.ZoneReservation) { r.Spec.Buy.PriorityClassName = "system-node-critical" })
	w.touch()
	w.until("the PodTemplate follows the reservation", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(template), edited)
		return edited.Generation == 2 && edited.Template.Spec.PriorityClassName == "system-node-critical", err
	})
	uid := edited.UID
	theirs = all["d"].DeepCopy()
	require.NoError(t, unstructured.SetNestedSlice(all["d"].Object, []any{map[string]any{
		"type": "LimitedByQuotas", "status": "True", "reason": "ResourceQuotasAllocated", "message": "quota shop", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}, "status", "conditions"))
	require.NoError(t, w.Status().Patch(t.Context(), all["d"], client.MergeFrom(theirs)))
	w.touch()
	w.until("the answer is told", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(r), r)
		return slices.ContainsFunc(r.Status.Buy.Buffers, func(b v1alpha1.BuyBuffer) bool {
			return b.Answer == "LimitedByQuotas=True (ResourceQuotasAllocated): quota shop"
		}), err
	})
	w.waitMetric(`zonewise_buy_asked_pods{kind="ZoneReservation",name="failover"} 2`)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(template), edited))
	require.Equal(t, uid, edited.UID, "what nobody has edited is not made anew")

	// Objects that only look like the part's are left alone.
	foreign := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"podTemplateRef": map[string]any{"name": "x"}, "replicas": int64(1)}}}
	foreign.SetAPIVersion(buy.Group + "/v1beta1")
	foreign.SetKind(buy.Kind)
	foreign.SetNamespace(buffers)
	foreign.SetName("foreign")
	foreign.SetLabels(map[string]string{buy.OwnerLabel: string(r.UID), "zonewise.dev/bought-in": "foreign"})
	w.Make(t, foreign)

	// Another process continues from what it finds, and withdraws it when the spec asks for nothing any more.
	stop()
	w.edit(r.Name, func(r *v1alpha1.ZoneReservation) { r.Spec.Buy = nil })
	stop = w.restartController("--buy")
	w.waitAsked("v1beta1", map[string]int64{"foreign": 1})
	w.until("the templates are deleted, too", func() (bool, error) {
		var templates corev1.PodTemplateList
		err := w.List(t.Context(), &templates, client.InNamespace(buffers))
		return len(templates.Items) == 0, err
	})
	w.until("the status says nothing of it", func() (bool, error) {
		r := w.reservation(r.Name)
		return r.Status.Buy == nil && meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBuying) == nil, nil
	})

	// With its owner everything goes, without a garbage collector too, which this cluster has not.
	w.edit(r.Name, func(r *v1alpha1.ZoneReservation) { r.Spec.Buy = &v1alpha1.Buy{Namespace: buffers, Max: 2} })
	w.waitAsked("v1beta1", map[string]int64{"foreign": 1, "a": 1, "d": 1})
	require.NoError(t, w.Delete(t.Context(), r))
	w.waitAsked("v1beta1", map[string]int64{"foreign": 1})

	stop()
}
