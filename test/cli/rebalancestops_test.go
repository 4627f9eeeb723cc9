package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/internal/apiserver"
)

// TestRebalanceStops: a plan is stopped when the scheduler does not place a pod as planned, or preempts another one for
// it. The test makes the pods in place of evicted ones, so that it can put something in their way first.
func TestRebalanceStops(t *testing.T) {
	w := &world{Server: apiserver.Start(t), t: t}
	w.InstallAPIs(t)
	w.runKubelets()
	w.StartScheduler(t)
	stop := w.startController("--rebalance")

	for _, tc := range []struct {
		app, class, reason string
		rule               corev1.UnsatisfiableConstraintAction
		// victim: the pod in the way may be preempted, and takes its time to end.
		victim bool
	}{
		{app: "web", rule: corev1.ScheduleAnyway, class: "system-cluster-critical", reason: v1alpha1.ReasonOtherZone},
		{app: "api", rule: corev1.DoNotSchedule, class: "system-cluster-critical", reason: v1alpha1.ReasonPreemption, victim: true},
	} {
		set := w.replicaSet(tc.app, func(spec *corev1.PodSpec) {
			spec.PriorityClassName = tc.class
			spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: tc.rule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": tc.app}},
			}}
		})
		for i, node := range []string{"node-a", "node-a", "node-b", "node-b"} {
			w.replica(set, fmt.Sprint(tc.app, "-", i), node)
		}
		r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: tc.app}, Spec: v1alpha1.ZoneRebalanceSpec{
			Mode: v1alpha1.RebalanceEvict, After: &metav1.Duration{Duration: time.Second},
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: *set.Spec.Selector}},
		}}
		w.Make(t, r)
		w.waitRebalance(r, "a pod is evicted", func() bool { return len(r.Status.Moves) == 1 && r.Status.Moves[0].State == v1alpha1.MoveEvicted })
		require.Equal(t, []string{"c"}, r.Status.Moves[0].To)

		obstacle := pod("obstacle", "3900m", nil)
		obstacle.Spec.NodeName = "node-c"
		if tc.victim {
			obstacle.Finalizers = []string{"zonewise.dev/test"}
		} else {
			obstacle.Spec.PriorityClassName = tc.class
		}
		w.Make(t, obstacle)
		w.schedulerKnows(obstacle)
		w.replica(set, tc.app+"-new", "")
		w.waitRebalance(r, tc.reason, func() bool { return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionStopped) })
		require.Equal(t, tc.reason, r.Status.Stop.Reason, r.Status.Stop.Message)
		require.Equal(t, v1alpha1.MoveFailed, r.Status.Moves[0].State)
		w.waitMetric(fmt.Sprintf(`zonewise_rebalance_stopped{zonerebalance="%s"} 1`, tc.app))
		w.clear(obstacle, r)
	}
	t.Run("a gang that is bound in part", w.testGangBoundInPart)
	stop()
}

// testGangBoundInPart: the scheduler reports a gang that has to be in one zone and is bound in part, the ZoneRebalance
// has its bound members evicted, and the scheduler places all of it in another zone.
func (w *world) testGangBoundInPart(t *testing.T) {
	for _, app := range []string{"web", "api"} { // make room
		require.NoError(t, w.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels{"app": app}, client.GracePeriodSeconds(0)))
	}
	group := &schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "train", Annotations: map[string]string{
			podgroup.RecoveryPolicyAnnotation: podgroup.RecoveryEvict, podgroup.RequiredTopologyAnnotation: corev1.LabelTopologyZone,
		}},
		Spec: schedv1alpha1.PodGroupSpec{MinMember: 3},
	}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: ptr.To(true)}
	member := func(name, node string) *corev1.Pod {
		p := pod(name, "1200m", map[string]string{"app": "train", schedv1alpha1.PodGroupLabel: "train"}, job)
		p.Spec.NodeName = node
		return p
	}
	filler := pod("filler", "1500m", nil)
	filler.Spec.NodeName = "node-a"
	w.Make(t, filler, group, member("train-0", "node-a"), member("train-1", "node-a"), member("train-2", ""))
	r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: v1alpha1.ZoneRebalanceSpec{
		Mode: v1alpha1.RebalanceEvict, After: &metav1.Duration{Duration: time.Second},
		Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}}}},
	}}
	w.Make(t, r)
	listed := func() bool {
		return len(r.Status.PartlyBound) == 1 && r.Status.PartlyBound[0].Why == "has not been bound in part for 5m0s yet"
	}
	w.waitRebalance(r, "the gang is listed", listed)
	require.EqualValues(t, 2, r.Status.PartlyBound[0].Bound)
	w.until("the five minutes are over", func() (bool, error) {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil || !listed() {
			return false, err
		}
		r.Status.PartlyBound[0].Since = metav1.NewTime(time.Now().Add(-time.Hour))
		return w.Status().Update(t.Context(), r) == nil, nil
	})
	w.waitRebalance(r, "both members are evicted", func() bool {
		return len(r.Status.Moves) == 2 && r.Status.Moves[0].State == v1alpha1.MoveEvicted && r.Status.Moves[1].State == v1alpha1.MoveEvicted
	})
	w.Make(t, member("train-3", ""), member("train-4", ""))
	w.waitRebalance(r, "the gang is whole", func() bool {
		return r.Status.Moves[0].State == v1alpha1.MoveMoved && r.Status.Moves[1].State == v1alpha1.MoveMoved
	})
	nodes := map[string]bool{}
	for _, p := range w.shopPods() {
		if p.Labels["app"] == "train" {
			nodes[p.Spec.NodeName] = true
		}
	}
	require.Len(t, nodes, 1, "in one zone")
	require.NotContains(t, nodes, "node-a")
	require.Empty(t, r.Status.PartlyBound)
}

// replicaSet makes a ReplicaSet of four, whose pods the test makes.
func (w *world) replicaSet(app string, change func(*corev1.PodSpec)) *appsv1.ReplicaSet {
	labels := map[string]string{"app": app}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("", "500m", nil).Spec}
	template.Spec.TerminationGracePeriodSeconds = nil
	change(&template.Spec)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	w.Make(w.t, set)
	return set
}

// replica makes a pod of a ReplicaSet, on a node or for the scheduler.
func (w *world) replica(set *appsv1.ReplicaSet, name, node string) {
	w.t.Helper()
	p := pod(name, "500m", set.Spec.Template.Labels, *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
	p.Spec = *set.Spec.Template.Spec.DeepCopy()
	p.Spec.NodeName = node
	w.until(name+" is made, once the API server knows its class", func() (bool, error) {
		return w.Create(w.t.Context(), p.DeepCopy()) == nil, nil
	})
}

// schedulerKnows waits until the scheduler has seen a pod: it has placed one that was made later.
func (w *world) schedulerKnows(p *corev1.Pod) {
	w.t.Helper()
	probe := pod("probe-after-"+p.Name, "1m", nil)
	w.Make(w.t, probe)
	w.until("the scheduler has seen "+p.Name, func() (bool, error) {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(probe), probe)
		return probe.Spec.NodeName != "", err
	})
	w.clear(probe)
}

// clear deletes objects with what keeps them, and waits until they are gone.
func (w *world) clear(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		w.until(obj.GetName()+" is gone", func() (bool, error) {
			err := w.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
			if err != nil {
				return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
			}
			if len(obj.GetFinalizers()) > 0 {
				obj.SetFinalizers(nil)
				_ = w.Update(w.t.Context(), obj) // a conflict is tried again
			}
			_ = w.Delete(w.t.Context(), obj, client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To[types.UID](obj.GetUID())})
			return false, nil
		})
	}
}
