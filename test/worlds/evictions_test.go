package worlds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// apart is a workload that preempts another one, from whose pods its own are to be apart.
func apart(kind Kind, replicas int, runs time.Duration) World {
	return World{Native: kind == NativeGang, Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 3}},
		Add{Node{Name: "a2", Zone: "a", CPU: 3}},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 2, CPU: 1}},
		Run{Workload{Name: "apart", App: "fill", Kind: kind, Replicas: replicas, CPU: 1, Priority: 1, Spread: OnePerNode, Runs: runs}},
	}}
}

// TestKubeSchedulerEvictsForEver: it does so alone as well, be the preemptors pods of any kind. Once it does not any
// more, returnsFirst has no reason.
func TestKubeSchedulerEvictsForEver(t *testing.T) {
	for name, w := range map[string]World{
		"Deployment": apart(Deployment, 2, 0), "StatefulSet": apart(StatefulSet, 1, 0), "Job": apart(Job, 1, time.Minute), "native gang": apart(NativeGang, 2, 0),
	} {
		t.Run(name, func(t *testing.T) {
			for _, play := range []func(*testing.T, World) Report{Play, PlayAlone} {
				report := play(t, w)
				require.Empty(t, report.Failures)
				require.True(t, report.EvictsForEver)
			}
		})
	}
}

// TestGangIsApartFromVictims: a gang of ours does not, as it keeps its nodes from the pods that replace its victims.
func TestGangIsApartFromVictims(t *testing.T) {
	report := Play(t, apart(Gang, 2, 0))
	require.Empty(t, report.Failures)
	require.Equal(t, 4, report.Bound, "two pods, and then two members in their place")
}

// TestKubeSchedulerChoosesAnew: it does so alone as well. Once it does not any more, checkRestart has no reason to excuse
// what is bound.
func TestKubeSchedulerChoosesAnew(t *testing.T) {
	w := World{Native: true, Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 3}},
		Run{Workload{Name: "fill", Kind: StatefulSet, Replicas: 2, CPU: 1}},
		Wait{10 * time.Second},
		Stick{"fill", 0},
		Run{Workload{Name: "gang", Kind: NativeGang, Replicas: 2, CPU: 1, Priority: 1}},
	}}
	for _, play := range []func(*testing.T, World) Report{Play, PlayAlone} {
		report := play(t, w)
		require.Empty(t, report.Failures)
		require.True(t, report.ChoosesAnew)
	}
}

// TestReturnsFirst: nothing else that is evicted late is kube-scheduler's doing.
func TestReturnsFirst(t *testing.T) {
	pod := func(w Workload) *v1.Pod { return (&workload{Workload: w}).pod(w.Name + "-0") }
	for name, tt := range map[string]struct {
		victim, preemptor Workload
		returns           bool
	}{
		"apart from the victim":              {Workload{Name: "web"}, Workload{Name: "db", App: "web", Spread: OnePerNode}, true},
		"apart from others":                  {Workload{Name: "web"}, Workload{Name: "db", Spread: OnePerNode}, false},
		"the victim is apart from pods, too": {Workload{Name: "web", Spread: OnePerNode}, Workload{Name: "db", App: "web", Spread: OnePerNode}, false},
		"the victim alone is":                {Workload{Name: "web", App: "db", Spread: OnePerNode}, Workload{Name: "db"}, false},
		"spread over zones":                  {Workload{Name: "web"}, Workload{Name: "db", App: "web", Spread: OverZones}, false},
		"for room":                           {Workload{Name: "web"}, Workload{Name: "db", App: "web"}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.returns, returnsFirst(pod(tt.victim), pod(tt.preemptor))) })
	}
}

// TestKubeSchedulerWaitsForStuckPod: alone as well, although another victim would go. Once it does not any more,
// waitsForStuck has no reason.
func TestKubeSchedulerWaitsForStuckPod(t *testing.T) {
	w := World{Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 1}},
		Run{Workload{Name: "low", Kind: StatefulSet, Replicas: 1, CPU: 1}},
		Wait{time.Second},
		Add{Node{Name: "a2", Zone: "a", CPU: 1}},
		Run{Workload{Name: "mid", Kind: StatefulSet, Replicas: 1, CPU: 1, Priority: 1}},
		Wait{time.Second},
		Stick{"low", 0},
		Run{Workload{Name: "high", Kind: Deployment, Replicas: 1, CPU: 1, Priority: 2}},
	}}
	for _, play := range []func(*testing.T, World) Report{Play, PlayAlone} {
		report := play(t, w)
		require.Empty(t, report.Failures)
		require.Equal(t, 2, report.Bound, "the pod of the highest priority waits")
	}
}

// TestKubeSchedulerWakesNoPodForDevice: alone as well, a pod waits for a device that another one was to have, which
// failed. Once it does not any more, deviceFreedUnseen has no reason.
func TestKubeSchedulerWakesNoPodForDevice(t *testing.T) {
	w := World{Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4, Devices: 1}},
		FailPreBind{Workload: "fails", Pod: 1, After: time.Second},
		Run{Workload{Name: "fails", Kind: Deployment, Replicas: 1, CPU: 1, Device: TemplateClaim}},
		Wait{100 * time.Millisecond},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 1, Device: OwnClaim}},
		Wait{20 * time.Second},
		Stop{"fails"},
		Wait{4 * time.Minute}, // the queue's flush would come after five
		Stop{"web"},
	}}
	for _, play := range []func(*testing.T, World) Report{Play, PlayAlone} {
		report := play(t, w)
		require.Empty(t, report.Failures)
		require.Zero(t, report.Bound)
	}
}
