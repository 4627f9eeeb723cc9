package sim

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	simulation "zonewise.dev/sim"
	"zonewise.dev/survival"
)

// kept counts the workloads of which a certificate said that they survive the loss, refused those of which it said that
// they do not.
var kept, refused atomic.Int64

// certify asks for a certificate of each workload for the loss of a zone, and returns how many pods run of those that
// are promised to survive.
func (x *comparison) certify(s *snapshot.Snapshot, zone string) map[string]int {
	x.Helper()
	config, err := simulation.ParseConfig(x.configYML)
	require.NoError(x, err)
	var asked []*v1alpha1.ZoneSurvival
	running := x.running()
	for app := range running {
		asked = append(asked, &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: x.cluster.name, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Survive:   v1alpha1.SurvivalLosses{ZoneNames: []string{zone}},
		}})
	}
	copies.Lock()
	defer copies.Unlock()
	// No controller replaces evicted pods in the cluster either.
	statuses, err := survival.Certify(x.Context(), s.Objects(), asked, survival.Options{
		Sim: simulation.Options{Config: config, Now: s.TakenAt, Bare: true, Patience: 30 * time.Second},
	})
	require.NoError(x, err)
	promises := map[string]int{}
	for i, status := range statuses {
		switch c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSurvives); c.Status {
		case metav1.ConditionTrue:
			promises[asked[i].Name] = running[asked[i].Name]
			require.Equal(x, int64(running[asked[i].Name]), status.Pods)
		case metav1.ConditionFalse:
			refused.Add(1)
		default:
			require.Contains(x, []string{v1alpha1.ReasonNoZones, v1alpha1.ReasonNoPods}, c.Reason, c.Message)
		}
	}
	return promises
}

// requireKept requires that after the loss all pods run that were promised to.
func (x *comparison) requireKept(promises map[string]int) {
	x.Helper()
	running := x.running()
	for app, pods := range promises {
		require.Equal(x, pods, running[app], "the pods of %s that run, by its certificate and in the cluster", app)
		kept.Add(1)
	}
}

// running counts the pods that run, by their label app, except for those that belong to their nodes.
func (x *comparison) running() map[string]int {
	out := map[string]int{}
	for _, pod := range x.pods() {
		if app := pod.Labels["app"]; app != "" && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !simulation.NodeBound(pod) {
			out[app]++
		}
	}
	return out
}
