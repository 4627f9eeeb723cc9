package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/test/build"
)

// makePod returns a pod whose UID is its name; nodeName is empty for a pod that is not bound.
func makePod(name, nodeName, cpu, memory string) *v1.Pod {
	return build.Pod(name, cpu, build.Bound(nodeName), build.Request(v1.ResourceMemory, memory))
}

func withScalar(pod *v1.Pod, name v1.ResourceName, amount string) *v1.Pod {
	pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
	return pod
}

func makeNode(name, zone string) *v1.Node {
	return build.Node(name, zone, "32", build.Capacity(v1.ResourceMemory, "64Gi"))
}

func mustAdd(t require.TestingT, l *Ledger, pod *v1.Pod, want Change) {
	if h, ok := t.(*testing.T); ok {
		h.Helper()
	}
	got, err := l.AddPod(pod)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// content is all that a ledger holds, without the generations, so that two ledgers that got to one state
// by different ways compare equal.
func content(l *Ledger) Dump {
	d := l.Dump()
	for i := range d.Nodes {
		d.Nodes[i].Generation = 0
	}
	return d
}

// milliCPU returns what is requested of each node, ghosts included.
func milliCPU(l *Ledger) map[string]int64 {
	got := map[string]int64{}
	for _, n := range l.Dump().Nodes {
		got[n.Name] = n.Requested.MilliCPU
	}
	return got
}

// nodeNames returns the order of a snapshot.
func nodeNames(s *Snapshot) []string {
	names := []string{}
	for _, n := range s.Nodes() {
		names = append(names, n.Node.Name)
	}
	return names
}
