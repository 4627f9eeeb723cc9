package survival

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// impairedCluster is a random cluster whose Deployments are selected by their names.
type impairedCluster struct {
	zones, names []string
	replicas     []int
	// ready has, for each Deployment, the zones of its ready pods.
	ready   [][]string
	objects []client.Object
}

func drawImpaired(t *rapid.T) *impairedCluster {
	c := &impairedCluster{}
	for i := range rapid.IntRange(1, 4).Draw(t, "zones") {
		zone := fmt.Sprintf("z%d", i)
		c.zones = append(c.zones, zone)
		c.objects = append(c.objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{v1.LabelTopologyZone: zone}}})
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "workloads") {
		name := fmt.Sprintf("web-%d", i)
		replicas := rapid.IntRange(0, 6).Draw(t, "replicas")
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(replicas))}} //nolint:gosec // small
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name + "-1", UID: types.UID(name + "-1"), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](99)}} // the Deployment's number counts
		c.objects = append(c.objects, d, set)
		var ready []string
		for j := range rapid.IntRange(0, 7).Draw(t, "pods") {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, j), Labels: map[string]string{"app": name, "tier": "web"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
				},
				Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
			}
			zone := rapid.SampledFrom(append([]string{""}, c.zones...)).Draw(t, "zone")
			counts := zone != ""
			if counts {
				pod.Spec.NodeName = "node-" + zone
			}
			switch rapid.SampledFrom([]string{"ready", "ready", "ready", "unready", "ends", "ended", "lost"}).Draw(t, "state") {
			case "unready":
				pod.Status.Conditions, counts = nil, false
			case "ends":
				pod.DeletionTimestamp, counts = &metav1.Time{}, false
			case "ended":
				pod.Status.Phase, counts = v1.PodSucceeded, false
			case "lost":
				pod.Spec.NodeName, counts = "gone", false
			}
			if counts {
				ready = append(ready, zone)
			}
			c.objects = append(c.objects, pod)
		}
		c.names, c.replicas, c.ready = append(c.names, name), append(c.replicas, replicas), append(c.ready, ready)
	}
	return c
}

// hasPods reports whether any pod of a Deployment is there: one without is selected by nothing.
func (c *impairedCluster) hasPods(name string) bool {
	for _, obj := range c.objects {
		if pod, ok := obj.(*v1.Pod); ok && pod.Labels["app"] == name && live(pod) {
			return true
		}
	}
	return false
}

// TestImpairedIsARecount: what is left without a zone, and whether it is enough, by a count of its own.
func TestImpairedIsARecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawImpaired(t)
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		number := rapid.IntRange(0, 6).Draw(t, "number")
		byNumber := rapid.Bool().Draw(t, "by number")
		bound := intstr.FromString(fmt.Sprintf("%d%%", percent))
		if byNumber {
			bound = intstr.FromInt(number)
		}
		asked := &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 3}, Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}},
			Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)}, Impaired: &v1alpha1.SurvivalImpairment{LeastServing: bound},
		}}
		var status v1alpha1.ZoneSurvivalStatus
		NewImpaired(c.objects).Answer(asked, metav1.Time{}, &status)
		enough, some := true, false
		left := map[string]v1alpha1.SurvivalServing{}
		for _, l := range status.Impaired {
			left[l.Zone] = l
		}
		for _, zone := range c.zones {
			least, zoneEnough := math.Inf(1), true
			for i, name := range c.names {
				if c.replicas[i] == 0 || !c.hasPods(name) {
					continue
				}
				some = true
				ready := 0
				for _, at := range c.ready[i] {
					if at != zone {
						ready++
					}
				}
				wanted := number
				if !byNumber {
					wanted = int(math.Ceil(float64(percent*c.replicas[i]) / 100))
				}
				if ready < wanted {
					zoneEnough = false
				}
				least = min(least, float64(ready)/float64(c.replicas[i]))
			}
			enough = enough && zoneEnough
			l, told := left[zone]
			if math.IsInf(least, 1) {
				require.False(t, told)
				continue
			}
			require.True(t, told)
			require.Equal(t, zoneEnough, l.Ready >= l.Wanted, "zone %s: %+v", zone, l)
			if zoneEnough {
				require.InDelta(t, least, float64(l.Ready)/float64(l.Replicas), 1e-9)
			}
		}
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionServes)
		require.Equal(t, int64(3), condition.ObservedGeneration)
		switch {
		case !some:
			require.Equal(t, metav1.ConditionUnknown, condition.Status)
		case enough:
			require.Equal(t, metav1.ConditionTrue, condition.Status, condition.Message)
		default:
			require.Equal(t, metav1.ConditionFalse, condition.Status, condition.Message)
		}
		same := status.DeepCopy()
		NewImpaired(c.objects).Answer(asked, metav1.Now(), same)
		require.Equal(t, &status, same, "the same answer is no change")
		asked.Spec.Impaired = nil
		NewImpaired(c.objects).Answer(asked, metav1.Now(), &status)
		require.Nil(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionServes))
	})
}

// TestImpairedNamesTheZoneAndTheWorkload: in words that can be acted on.
func TestImpairedNamesTheZoneAndTheWorkload(t *testing.T) {
	node := func(name, zone string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelTopologyZone: zone}}}
	}
	objects := []client.Object{node("a", "a"), node("b", "b")}
	for i, at := range []string{"a", "a", "b"} {
		objects = append(objects, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("db-%d", i), Labels: map[string]string{"app": "db"}, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "example.com/v1", Kind: "Database", Name: "db", UID: "db", Controller: ptr.To(true),
			}}},
			Spec:   v1.PodSpec{NodeName: at},
			Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
		})
	}
	asked := &v1alpha1.ZoneSurvival{Spec: v1alpha1.ZoneSurvivalSpec{
		Workloads: []v1alpha1.SurvivalWorkload{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}},
		Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)}, Impaired: &v1alpha1.SurvivalImpairment{LeastServing: intstr.FromString("34%")},
	}}
	var status v1alpha1.ZoneSurvivalStatus
	NewImpaired(objects).Answer(asked, metav1.Time{}, &status)
	require.Equal(t, []v1alpha1.SurvivalServing{
		{Zone: "a", Namespace: "shop", Workload: "Database/db", Ready: 1, Replicas: 3, Wanted: 2},
		{Zone: "b", Namespace: "shop", Workload: "Database/db", Ready: 2, Replicas: 3, Wanted: 2},
	}, status.Impaired)
	require.Equal(t, "without zone a, 1 of 3 pods of Database/db in namespace shop are ready, and spec.impaired.leastServing 34% wants 2", status.Conditions[0].Message)
	asked.Spec.Impaired.LeastServing = intstr.FromInt32(1)
	NewImpaired(objects).Answer(asked, metav1.Time{}, &status)
	require.Equal(t, "without zone a, 1 of 3 pods of Database/db in namespace shop are ready; that is the least", status.Conditions[0].Message)
	asked.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"b", "none"}}
	NewImpaired(objects).Answer(asked, metav1.Time{}, &status)
	require.Len(t, status.Impaired, 1)
}
