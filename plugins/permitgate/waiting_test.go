package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestOldestWaitingGang: gangs that are whole, and those without a quorum, do not wait for room.
func TestOldestWaitingGang(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	age := func(after time.Duration) time.Duration {
		p.shared.mu.Lock()
		defer p.shared.mu.Unlock()
		return p.shared.oldestWaitingLocked(time.Now().Add(after)).Round(time.Minute)
	}
	require.Zero(t, age(time.Hour), "no gang")
	p.shared.groupSeen(groupOf("pending", 2))
	require.Zero(t, age(time.Hour), "a gang without members")
	a, b := backingOff(p.shared, "old")
	require.Equal(t, time.Hour, age(time.Hour))
	for _, member := range []*v1.Pod{a, b} {
		bound := member.DeepCopy()
		bound.Spec.NodeName = "n"
		p.shared.podSeen(bound)
	}
	require.Zero(t, age(time.Hour), "a gang that is whole")
}
