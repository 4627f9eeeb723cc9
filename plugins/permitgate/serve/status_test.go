package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestReleasedSaysWhatBecameOfTheGang: a rollback is told until the gang is whole, also if the members may go on when the
// condition is written at last.
func TestReleasedSaysWhatBecameOfTheGang(t *testing.T) {
	group := &podgroup.Group{Gang: &gang.Spec{}, Complaints: make([]podgroup.Complaint, 1)}
	for name, tt := range map[string]struct {
		gang Gang
		want metav1.ConditionStatus
	}{
		"no round has failed":              {Gang{Phase: gang.Gathering}, ""},
		"a round has failed":               {Gang{Phase: gang.Backoff, Last: gang.Rollback{Cause: gang.CauseRefused}}, metav1.ConditionFalse},
		"a round has failed, and goes on":  {Gang{Phase: gang.Gathering, Last: gang.Rollback{Cause: gang.CauseRefused}}, metav1.ConditionFalse},
		"one has failed, members are gone": {Gang{Phase: gang.Pending, Last: gang.Rollback{Cause: gang.CauseMembersLeft}}, metav1.ConditionFalse},
		"a cycle was refused":              {Gang{Phase: gang.Gathering, Vain: true, Refusal: gang.Rollback{Cause: gang.CauseNoRoom}}, ""},
		"whole":                            {Gang{Phase: gang.Whole}, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Clock: clock.RealClock{}, Gangs: memberless{}})
			tt.gang.Group = group
			var status metav1.ConditionStatus
			if c := apimeta.FindStatusCondition(s.groupConditions(train, &tt.gang, nil, time.Time{}), native.ConditionReleased); c != nil {
				status = c.Status
			}
			require.Equal(t, tt.want, status)
		})
	}
}

// TestFailedPodsThatAreKept: a Job keeps its failed pods, and replaces them. A gang of three has failed only if too few
// members are left, and a replacement that cannot join the others is seen.
func TestFailedPodsThatAreKept(t *testing.T) {
	pod := func(phase v1.PodPhase, node string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: v1.PodStatus{Phase: phase}}
	}
	running, failed, succeeded, waits := pod(v1.PodRunning, "a"), pod(v1.PodFailed, "a"), pod(v1.PodSucceeded, "a"), pod(v1.PodPending, "")
	for _, tc := range []struct {
		name string
		pods []*v1.Pod
		want v1alpha1.PodGroupPhase
	}{
		{"no replacement", []*v1.Pod{running, running, failed}, v1alpha1.PodGroupFailed},
		{"its replacement waits", []*v1.Pod{running, running, failed, waits}, v1alpha1.PodGroupUnknown},
		{"its replacement starts", []*v1.Pod{running, running, failed, pod(v1.PodPending, "b")}, v1alpha1.PodGroupScheduling},
		{"its replacement runs", []*v1.Pod{running, running, failed, running}, v1alpha1.PodGroupRunning},
		{"one has succeeded", []*v1.Pod{running, succeeded, failed, waits}, v1alpha1.PodGroupUnknown},
		{"one has succeeded, and none comes", []*v1.Pod{running, succeeded, failed}, v1alpha1.PodGroupFailed},
		{"all are replaced", []*v1.Pod{failed, failed, failed, waits, waits, waits}, v1alpha1.PodGroupScheduling},
		{"all have failed", []*v1.Pod{failed, failed, failed}, v1alpha1.PodGroupFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, desiredStatus(v1alpha1.PodGroupStatus{}, 3, countPods(tc.pods), false).Phase)
		})
	}
}
