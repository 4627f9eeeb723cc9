package framework

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// TestMembersThatDifferInSelectedLabels: all members keep away from the leader's host, of which there is one. The
// others share hosts, whichever of the pods comes first.
func TestMembersThatDifferInSelectedLabels(t *testing.T) {
	inBubbles(t, map[string]int{"first": 0, "second": 1, "third": 2, "last": 3}, func(t *testing.T, leader int) {
		c := startGangCluster(t, slowBackoff, 8, 8, 8)
		c.requireBound(c.createGang("g", 4, func(p *st.PodWrapper) *st.PodWrapper {
			if p.Pod.Name == fmt.Sprint("g-", leader) {
				p.Label("role", "leader")
			}
			return p.PodAntiAffinity(v1.LabelHostname, &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}}, st.PodAntiAffinityWithRequiredReq)
		})...)
	})
}

// TestNominationBelowOneOfTheMembers: what is kept for a pod counts for a member only if that pod's priority is not
// lower than the member's, whatever the priorities of the others are.
func TestNominationBelowOneOfTheMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 2, 1)
		c.server.Graceful.Store(true)
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim").Priority(1))
		c.quiet()
		c.groups.set("middle", 1)
		c.create(member("middle", "middle-0", 2).Priority(50))
		c.requireKept("node-0", 1)
		c.groups.set("g", 2)
		c.create(member("g", "high").Priority(100), member("g", "low").Priority(10))
		c.requireBound("high", "low")
		c.requireUnbound("middle-0")
	})
}
