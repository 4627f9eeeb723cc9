package permitgate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"zonewise.dev/plugins/permitgate/gang"
)

// recordingHandle has a recorder of events.
type recordingHandle struct{ *handle }

func (recordingHandle) EventRecorder() events.EventRecorderLogger { return events.NewFakeRecorder(1) }

// newLeader returns the shared state of a scheduler that leads, and has read all pods. Nothing of it runs.
func newLeader(t *testing.T) *Shared {
	t.Helper()
	args, err := decodeArgs(nil)
	require.NoError(t, err)
	s := NewShared()
	leading := make(chan struct{})
	close(leading)
	h := recordingHandle{newHandle()}
	s.args, s.groups, s.profiles[h.ProfileName()] = &args, served{}, h
	s.leading, s.historySynced = leading, func() bool { return true }
	return s
}

// reasons returns the reasons of the events that are due about the gang "g", by the kind that they are about.
func (s *Shared) reasons(now time.Time) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.gangs[types.NamespacedName{Namespace: "ns", Name: "g"}]
	found := map[string][]string{}
	msgs, _ := s.messagesLocked(e, gang.Actions{}, now)
	for _, m := range msgs {
		kind := "PodGroup"
		if _, ok := m.regarding.(*v1.Pod); ok {
			kind = "Pod"
		}
		found[kind] = append(found[kind], m.reason)
	}
	return found
}

func boundPod(name string) *v1.Pod {
	pod := podOf("g", name)
	pod.Spec.NodeName = "n"
	return pod
}

// TestEventsAboutMissingMembers: that there are too few is of interest while somebody waits for them, and that a part of the
// gang runs without them when that lasts.
func TestEventsAboutMissingMembers(t *testing.T) {
	s := newLeader(t)
	s.groupSeen(groupOf("g", 3))
	for _, name := range []string{"a", "b", "c"} {
		s.podSeen(boundPod(name))
	}
	now := time.Now()
	require.Empty(t, s.reasons(now))
	require.Zero(t, s.partlyBoundGangs(now.Add(time.Hour)))
	s.podGone(boundPod("c"))
	require.Empty(t, s.reasons(now))
	require.Empty(t, s.reasons(now.Add(2*reportGrace)))
	require.Zero(t, s.partlyBoundGangs(now.Add(2*reportGrace)))

	late := now.Add(time.Hour)
	require.InDelta(t, 1, s.partlyBoundGangs(late), 0)
	require.Equal(t, map[string][]string{"PodGroup": {reasonPartlyBound}}, s.reasons(late))
	require.Empty(t, s.reasons(late), "it is said once")

	s.podGone(boundPod("b"))
	s.podSeen(podOf("g", "d"))
	require.Equal(t, map[string][]string{"PodGroup": {reasonPartlyBound, "TooFewMembers"}, "Pod": {"TooFewMembers"}}, s.reasons(late))

	// Those that have succeeded had their turn.
	for _, name := range []string{"b", "c"} {
		pod := boundPod(name)
		pod.Status.Phase = v1.PodSucceeded
		s.factSeen(pod)
	}
	require.Zero(t, s.partlyBoundGangs(late))
}

// TestNobodyHearsOfMembersThatStillCome: a large gang is created within its time, not within five seconds, and an event about each of its
// members would say nothing.
func TestNobodyHearsOfMembersThatStillCome(t *testing.T) {
	s := newLeader(t)
	s.groupSeen(groupOf("g", 100))
	now := time.Now()
	for i := range 20 {
		s.podSeen(podOf("g", fmt.Sprint("m", i)))
		require.Empty(t, s.reasons(now))
		now = now.Add(reportGrace - time.Second)
	}
	// One that is replaced is no progress.
	s.podGone(podOf("g", "m0"))
	require.Empty(t, s.reasons(now))
	s.podSeen(podOf("g", "again"))
	got := s.reasons(now.Add(2 * time.Second))
	require.Equal(t, []string{"TooFewMembers"}, got["PodGroup"])
	require.Len(t, got["Pod"], 20)

	s.podSeen(podOf("g", "late"))
	require.Equal(t, map[string][]string{"Pod": {"TooFewMembers"}}, s.reasons(now.Add(2*time.Second)), "what has been said holds for those that come late")
	require.Empty(t, s.reasons(now.Add(time.Minute)))
}

func (s *Shared) partlyBoundGangs(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partlyBoundLocked(now)
}
