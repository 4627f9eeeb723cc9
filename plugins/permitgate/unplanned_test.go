package permitgate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/test/build"
)

// TestGangsWithoutAPlanGoByPriority: a gang for which no assignment was found, though there may be one, gathers while
// no other of its priority or a higher one does so. It does not keep a higher one waiting.
func TestGangsWithoutAPlanGoByPriority(t *testing.T) {
	g := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
	g.config = gang.Config{Timeout: time.Minute, InitialBackoff: time.Second, MaxBackoff: time.Second, Jitter: func() float64 { return 0 }}
	p := &PermitGate{gangs: g}
	for name, priority := range map[string]int32{"low": 0, "another": 0, "high": 1000} {
		g.change(gangNamed(name), func(e *gangEntry, now time.Time) {
			e.gang.SetGroup(gang.Spec{MinMember: 2}, now)
			for i := range 2 {
				pod := build.Pod(fmt.Sprintf("%s-%d", name, i), "1", build.Namespace("default"))
				pod.Spec.Priority = &priority
				e.add(pod.UID, &member{pod: pod})
				e.gang.SetPod(pod.UID, gang.Pod{}, now)
			}
		})
	}
	gather := func(name string) gang.Cause {
		result := &proposalResult{proposal: proposal.Result{Verdict: proposal.Unproven}}
		req := &gangRequest{gangID: gangNamed(name), minMember: 2, pods: map[types.UID]*v1.Pod{}}
		g.read(gangNamed(name), func(e *gangEntry) {
			c := proposal.Class{}
			for uid, m := range e.pods {
				c.Pod, c.Members = m.pod, append(c.Members, uid)
			}
			req.proposal.Classes = []proposal.Class{c}
		})
		p.gather(gangNamed(name), req, result)
		return result.refusal.Cause
	}
	require.Empty(t, gather("low"))
	require.Equal(t, gang.CauseNoRoom, gather("another"), "one of its priority gathers already")
	require.Empty(t, gather("high"))
	require.Len(t, g.unplanned, 2)
}

// TestMembersAlike: only what members without a node ask for counts.
func TestMembersAlike(t *testing.T) {
	e := &gangEntry{pods: map[types.UID]*member{}, priorities: map[int32]int{}}
	add := func(name, signature, node string) {
		pod := build.Pod(name, "1", build.Namespace("default"))
		pod.Spec.NodeName = node
		e.add(pod.UID, &member{pod: pod, signature: signature})
	}
	add("bound", "launcher", "node")
	add("worker-0", "worker", "")
	add("worker-1", "worker", "")
	require.True(t, e.membersAlike())
	add("evaluator", "evaluator", "")
	require.False(t, e.membersAlike())
}
