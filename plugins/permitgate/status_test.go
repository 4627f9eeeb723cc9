package permitgate

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// factsOf makes pods from their phases; "bound" and "waiting" are pending pods, "going" is terminating.
func factsOf(phases ...string) map[types.UID]fact {
	facts := map[types.UID]fact{}
	for i, p := range phases {
		f := fact{phase: v1.PodPhase(p), bound: p != "waiting", owner: "job", owners: "ns/job"}
		if p == "bound" || p == "waiting" {
			f.phase = v1.PodPending
		}
		if p == "going" {
			f.phase, f.terminating = v1.PodRunning, true
		}
		facts[types.UID(fmt.Sprint(i))] = f
	}
	return facts
}

func TestDesiredStatus(t *testing.T) {
	const running, succeeded, failed = "Running", "Succeeded", "Failed"
	now := time.Unix(1_000_000, 5)
	for name, tt := range map[string]struct {
		old       v1alpha1.PodGroupPhase
		minMember int32
		pods      []string
		releasing bool
		want      v1alpha1.PodGroupPhase
		counts    [3]int32
	}{
		"nothing":                  {"", 3, nil, false, v1alpha1.PodGroupPending, [3]int32{}},
		"too few":                  {"", 3, []string{"waiting", "waiting"}, false, v1alpha1.PodGroupPending, [3]int32{}},
		"invalid":                  {"", 0, []string{"waiting"}, false, v1alpha1.PodGroupPending, [3]int32{}},
		"a terminating pod is out": {"", 3, []string{"waiting", "waiting", "going"}, false, v1alpha1.PodGroupPending, [3]int32{}},
		"waiting":                  {v1alpha1.PodGroupPending, 3, []string{"waiting", "waiting", "waiting"}, false, v1alpha1.PodGroupScheduling, [3]int32{}},
		"being let go":             {v1alpha1.PodGroupScheduling, 3, []string{"bound", "waiting", "waiting"}, true, v1alpha1.PodGroupScheduling, [3]int32{}},
		"half bound":               {v1alpha1.PodGroupScheduling, 3, []string{"bound", "waiting", "waiting"}, false, v1alpha1.PodGroupUnknown, [3]int32{}},
		"bound, not running":       {v1alpha1.PodGroupScheduling, 3, []string{"bound", running, running}, false, v1alpha1.PodGroupScheduling, [3]int32{2, 0, 0}},
		"running":                  {v1alpha1.PodGroupScheduling, 3, []string{running, running, running, "waiting"}, false, v1alpha1.PodGroupRunning, [3]int32{3, 0, 0}},
		"running and done":         {v1alpha1.PodGroupRunning, 3, []string{running, succeeded, running}, false, v1alpha1.PodGroupRunning, [3]int32{2, 1, 0}},
		"done":                     {v1alpha1.PodGroupRunning, 3, []string{succeeded, succeeded, succeeded}, false, v1alpha1.PodGroupFinished, [3]int32{0, 3, 0}},
		"one failed":               {v1alpha1.PodGroupRunning, 3, []string{running, failed, running}, false, v1alpha1.PodGroupFailed, [3]int32{2, 0, 1}},
		"one failed, replaced":     {v1alpha1.PodGroupFailed, 3, []string{running, failed, running, running}, false, v1alpha1.PodGroupRunning, [3]int32{3, 0, 1}},
		"lost one":                 {v1alpha1.PodGroupRunning, 3, []string{running, running, "waiting"}, false, v1alpha1.PodGroupUnknown, [3]int32{2, 0, 0}},
		"finished stays":           {v1alpha1.PodGroupFinished, 3, nil, false, v1alpha1.PodGroupFinished, [3]int32{}},
		"failed stays":             {v1alpha1.PodGroupFailed, 3, []string{failed}, false, v1alpha1.PodGroupFailed, [3]int32{}},
		"used again":               {v1alpha1.PodGroupFinished, 2, []string{"waiting", "waiting"}, false, v1alpha1.PodGroupScheduling, [3]int32{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := desiredStatus(v1alpha1.PodGroupStatus{Phase: tt.old}, tt.minMember, factsOf(tt.pods...), tt.releasing, now)
			require.Equal(t, tt.want, got.Phase)
			counts := [3]int32{got.Running, got.Succeeded, got.Failed}
			require.Equal(t, tt.counts, counts)
			if changed := tt.old != tt.want; changed && tt.want != v1alpha1.PodGroupPending {
				require.Equal(t, "ns/job", got.OccupiedBy)
				require.Equal(t, int64(1_000_000), got.ScheduleStartTime.Unix())
				again := desiredStatus(got, tt.minMember, factsOf(tt.pods...), tt.releasing, now.Add(time.Hour))
				require.Equal(t, got, again, "the start time is kept")
			}
		})
	}
}

func TestStatusPatch(t *testing.T) {
	group := groupOf("g", 3)
	group.ResourceVersion = "17"
	patch, err := statusPatch(group, v1alpha1.PodGroupStatus{Phase: v1alpha1.PodGroupPending})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"resourceVersion":"17"},
		"status":{"phase":"Pending","occupiedBy":"","running":0,"succeeded":0,"failed":0}}`, string(patch))

	status := v1alpha1.PodGroupStatus{
		Phase: v1alpha1.PodGroupRunning, OccupiedBy: "ns/job", Running: 2, Succeeded: 1, Failed: 1,
		ScheduleStartTime: metav1.Time{Time: time.Unix(1_000_000, 0).UTC()},
	}
	patch, err = statusPatch(group, status)
	require.NoError(t, err)
	var patched v1alpha1.PodGroup
	require.NoError(t, json.Unmarshal(patch, &patched))
	require.True(t, status.ScheduleStartTime.Equal(&patched.Status.ScheduleStartTime))
	patched.Status.ScheduleStartTime = status.ScheduleStartTime
	require.Equal(t, status, patched.Status)
}

func TestDoneMembers(t *testing.T) {
	job, next := types.UID("job"), types.UID("next")
	facts := map[types.UID]fact{
		"done":        {phase: v1.PodSucceeded, owner: job},
		"also done":   {phase: v1.PodSucceeded, owner: job},
		"failed":      {phase: v1.PodFailed, owner: job},
		"without job": {phase: v1.PodSucceeded},
		"live alone":  {phase: v1.PodRunning},
	}
	require.Empty(t, doneMembers(facts), "the Job has no live pod")
	facts["going"] = fact{phase: v1.PodRunning, owner: job, terminating: true}
	require.Empty(t, doneMembers(facts))
	facts["new"] = fact{phase: v1.PodPending, owner: next}
	require.Empty(t, doneMembers(facts), "another Job's pod")
	facts["replacement"] = fact{phase: v1.PodPending, owner: job}
	require.Equal(t, []types.UID{"also done", "done"}, doneMembers(facts))
}

func TestTrimmedKeepsWhatIsUsed(t *testing.T) {
	pod := podOf("g", "m")
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []v1.Container{{Name: "large"}}
	pod.Status.Phase = v1.PodRunning
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	pod.OwnerReferences = []metav1.OwnerReference{
		{Name: "b", UID: "b-uid", Controller: ptr.To(true)}, {Name: "a", UID: "a-uid"},
	}
	small, err := trimmed(pod)
	require.NoError(t, err)
	require.Empty(t, small.(*v1.Pod).Spec.Containers)
	require.Equal(t, factOf(pod), factOf(small.(*v1.Pod)))
	require.Equal(t, fact{phase: v1.PodRunning, bound: true, terminating: true, owner: "b-uid", owners: "ns/a,ns/b"}, factOf(pod))
	key, ok := gangOf(small.(*v1.Pod))
	require.True(t, ok)
	require.Equal(t, "ns/g", key.String())
}
