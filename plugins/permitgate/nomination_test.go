package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
)

// realCycle is the state of a cycle that is no rehearsal.
type realCycle struct{ fwk.CycleState }

func (realCycle) IsPodGroupSchedulingCycle() bool { return false }

// nominate returns the pod as the API server shows it once it has a nomination.
func nominate(pod *v1.Pod, node, version string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.NominatedNodeName = node
	pod.ResourceVersion = version
	return pod
}

// TestNominationOfAMemberThatWasSentBack replays the order of events in which kube-scheduler forgets a
// nomination: the member is rejected before the informer shows the nomination that its wait began with.
func TestNominationOfAMemberThatWasSentBack(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	s := p.shared
	client := fake.NewClientset()
	go s.takeNominationsBack(t.Context(), client)

	m0, m1 := podOf("g", "m0"), podOf("g", "m1")
	for _, pod := range []*v1.Pod{m0, m1} {
		require.NoError(t, client.Tracker().Add(nominate(pod, "node-7", "5")))
	}
	s.groupSeen(groupOf("g", 2))
	s.podSeen(m0)
	s.podSeen(m1)

	status, _ := p.Permit(t.Context(), realCycle{}, m0, "node-7")
	require.True(t, status.IsWait(), status.Message())
	s.podSeen(nominate(m0, "node-7", "5"))
	require.Nil(t, s.stale(m0), "a member that waits keeps its nomination")
	s.groupGone(groupOf("g", 2))
	p.Unreserve(t.Context(), realCycle{}, m0, "node-7")
	require.NotNil(t, s.stale(m0))
	require.Eventually(t, func() bool {
		pod, err := client.CoreV1().Pods("ns").Get(t.Context(), "m0", metav1.GetOptions{})
		return err == nil && pod.Status.NominatedNodeName == ""
	}, 10*time.Second, 5*time.Millisecond)

	s.podSeen(nominate(m0, "", "6"))
	require.Nil(t, s.stale(m0))

	// A nomination that somebody else made is not ours to take back.
	s.podSeen(nominate(m1, "node-7", "5"))
	require.Nil(t, s.stale(m1))
	for _, action := range client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			require.Equal(t, "m0", patch.GetName())
			require.Equal(t, "status", patch.GetSubresource())
			require.JSONEq(t, `{"metadata":{"uid":"m0","resourceVersion":"5"},"status":{"nominatedNodeName":null}}`, string(patch.GetPatch()))
		}
	}
}

func TestNominationOfTheNextAttemptStays(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	s := p.shared
	m0, m1 := podOf("g", "m0"), podOf("g", "m1")
	s.groupSeen(groupOf("g", 2))
	s.podSeen(m0)
	s.podSeen(m1)
	status, _ := p.Permit(t.Context(), realCycle{}, m0, "node-7")
	require.True(t, status.IsWait())
	s.podGone(m1)
	p.Unreserve(t.Context(), realCycle{}, m0, "node-7")
	s.podSeen(nominate(m0, "node-7", "5"))
	require.NotNil(t, s.stale(m0))

	s.podSeen(m1) // the next attempt
	_, status = p.PreFilter(t.Context(), &stateless{}, m0, nodesOf(9))
	require.True(t, status.IsSuccess() || status.IsSkip(), status.Message())
	require.Nil(t, s.stale(m0), "in a cycle the nomination is the framework's")

	s.podGone(m1) // the quorum is out of reach while the cycle runs
	result, status := p.PostFilter(t.Context(), &stateless{}, m0, nothingLookedAt{})
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
	require.Equal(t, fwk.ModeOverride, result.Mode(), "the framework is asked to take the nomination back")
	require.Empty(t, result.NominatedNodeName)
	require.NotNil(t, s.stale(m0), "and it is looked after in case the framework does not")

	_, status = p.PreFilter(t.Context(), &stateless{}, m0, nodesOf(9))
	require.False(t, status.IsSuccess())
	require.NotNil(t, s.stale(m0), "a cycle that PreFilter ends at once gives no node")
}

// stateless is the state of a cycle in which nothing has been written.
type stateless struct{ realCycle }

func (*stateless) Read(fwk.StateKey) (fwk.StateData, error) { return nil, fwk.ErrNotFound }
func (*stateless) Write(fwk.StateKey, fwk.StateData)        {}

// nothingLookedAt has no status of any node.
type nothingLookedAt struct{ fwk.NodeToStatusReader }

// stale returns the pod if its nomination is to be taken back.
func (s *Shared) stale(pod *v1.Pod) *v1.Pod {
	key, _ := gangOf(pod)
	var found *v1.Pod
	s.look(key, func(e *entry, _ time.Time) { found = staleNomination(e, pod.UID) })
	return found
}
