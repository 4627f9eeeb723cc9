package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// TestMemberThatIsBeingBoundIsNoSpareOne: its bind cannot be stopped, and its pod does not name the node yet. Without
// it the gang would look as if it lacked its quorum anyway.
func TestMemberThatIsBeingBoundIsNoSpareOne(t *testing.T) {
	g, id := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0))), gangNamed("train")
	g.config.PrepareTimeout = time.Minute
	labels := map[string]string{v1alpha1.PodGroupLabel: id.Name}
	bound := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bound", UID: "bound", Labels: labels}, Spec: v1.PodSpec{NodeName: "a1"}}
	binds := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "binds", UID: "binds", Labels: labels}}
	g.change(id, func(e *gangEntry, now time.Time) {
		e.setGroup(podgroup.Read(&v1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}, Spec: v1alpha1.PodGroupSpec{MinMember: 2},
		}), now)
		for _, pod := range []*v1.Pod{bound, binds} {
			e.add(pod.UID, &member{pod: pod})
			e.gang.SetPod(pod.UID, gang.Pod{Bound: pod.Spec.NodeName != ""}, now)
		}
		_, reason, _ := e.gang.Permit(binds.UID, "a1", now)
		require.Equal(t, gang.ReasonNone, reason)
		e.gang.Commit(e.gang.Arrive(binds.UID, now), nil, now)
	})
	found := (&victimSearch{gangs: g}).gangOf()(bound)
	require.Equal(t, 2, found.MinMember)
	require.ElementsMatch(t, []*v1.Pod{bound, binds}, found.Bound)
}

// TestIsApartFrom: of nominated pods that are against a pod without terms, kube-scheduler does not hear.
func TestIsApartFrom(t *testing.T) {
	pod := func(app, apartFrom string) *v1.Pod {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": app}}}
		if apartFrom != "" {
			pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": apartFrom}},
			}}}}
		}
		return pod
	}
	for name, tt := range map[string]struct {
		member, victim *v1.Pod
		apart          bool
	}{
		"from the victim":                    {pod("train", "web"), pod("web", ""), true},
		"from others":                        {pod("train", "db"), pod("web", ""), false},
		"the victim is apart from pods, too": {pod("train", "web"), pod("web", "web"), false},
		"from none":                          {pod("web", ""), pod("web", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			req := &gangRequest{}
			req.proposal.Classes = []proposal.Class{{Pod: pod("other", "")}, {Pod: tt.member}}
			require.Equal(t, tt.apart, req.isApartFrom([]*v1.Pod{pod("db-0", ""), tt.victim}))
		})
	}
}
