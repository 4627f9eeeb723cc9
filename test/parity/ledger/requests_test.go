package ledger

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// FuzzPod decodes pods as an API server could send them and compares what the ledger and kube-scheduler's
// NodeInfo make of them.
func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata":{"uid":"a"},"spec":{"nodeName":"n","containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi","example.com/gpu":"1"}}}]}}`,
		`{"metadata":{"uid":"a"},"spec":{"nodeName":"n","overhead":{"cpu":"1m"},"initContainers":[{"name":"i","restartPolicy":"Always","resources":{"requests":{"hugepages-2Mi":"2Mi"}}}]}}`,
		`{"metadata":{"uid":"a"},"spec":{"nodeName":"n","resources":{"requests":{"cpu":"9223372036854775807"}},"containers":[{"name":"c","resources":{"requests":{"cpu":"-1"}}}]},"status":{"phase":"Failed"}}`,
		`{"metadata":{"uid":"a","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"1"}}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod v1.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}
		l := ledger.New(ledger.DefaultOptions())
		change, err := l.AddPod(&pod)
		if pod.UID == "" {
			require.ErrorIs(t, err, ledger.ErrNoUID)
			return
		}
		require.NoError(t, err)
		if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			require.Equal(t, ledger.Unchanged, change)
			require.Equal(t, ledger.Stats{}, l.Stats())
			return
		}
		require.Equal(t, ledger.PodAdded, change)
		want := amounts(framework.NewNodeInfo(&pod).Requested)
		want.Pods = 1
		n := l.Dump().Nodes[0]
		require.True(t, want.Equal(&n.Requested), "want %+v, got %+v", want, n.Requested)

		require.ErrorIs(t, l.AssumePod(&pod, pod.Spec.NodeName, time.Time{}), ledger.ErrAdded)
		require.Equal(t, ledger.PodRemoved, l.RemovePod(pod.UID))
		require.Equal(t, ledger.Stats{}, l.Stats())
	})
}
