package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/apis/v1alpha1"
)

// reservationKinds are the ways in which a reservation holds slots of one CPU for its owners.
var reservationKinds = map[string]func(*v1alpha1.ZoneReservationSpec){
	"headroom":  func(*v1alpha1.ZoneReservationSpec) {},
	"guarantee": func(s *v1alpha1.ZoneReservationSpec) { s.Mode = v1alpha1.ModeGuarantee },
	"required":  func(s *v1alpha1.ZoneReservationSpec) { s.OwnerPolicy = v1alpha1.OwnerRequired },
}

// TestGangOfOwnersPreempts: a gang that owns slots, and needs more room than these, preempts pods of a lower priority
// on the node of its slots, or on another. Where owners run in their slots alone, it waits and evicts no pod. In its
// search PermitGate puts members on copies of nodes, which ReserveCache's Filter then reads.
func TestGangOfOwnersPreempts(t *testing.T) {
	nodes := map[string][]int{"one node": {4}, "another node": {2, 2}} // CPUs; the first node has the slots
	for name, change := range reservationKinds {
		for where, cpus := range nodes {
			t.Run(name+" on "+where, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newGangCluster(t, cpus[0])
					c.profile = allPlugins
					c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "1s"}`))
					c.reserve("r", "train", 2, change)
					for i, cpu := range cpus[1:] {
						c.addNode(fmt.Sprint("node-", i+1), cpu)
					}
					batch := []string{"batch-0", "batch-1"}
					c.create(member("", batch[0]), member("", batch[1]))
					c.requireBound(batch...)

					gang := c.createMembers("g", 3, func(p *st.PodWrapper) *st.PodWrapper { return p.Label("app", "train").Priority(100) })
					if name == "required" {
						c.pass(3 * time.Minute)
						c.requireUnbound(gang...)
						require.Len(t, c.boundAmong(batch...), 2, "no pod is evicted for a gang that stays without room")
						return
					}
					c.requireBound(gang...)
					require.Len(t, c.boundAmong(batch...), 1, "one member has no slot")
				})
			})
		}
	}
}

// TestGangOfRequiredOwners is larger than the slots in which alone it may run. It waits, and the scheduler goes on.
func TestGangOfRequiredOwners(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 8)
		c.profile = allPlugins
		c.start(withArgs(slowBackoff))
		c.reserve("r", "train", 4, reservationKinds["required"])
		gang := c.createMembers("g", 5, func(p *st.PodWrapper) *st.PodWrapper { return p.Label("app", "train") })
		c.pass(time.Minute)
		c.requireUnbound(gang...)
		c.create(member("", "other"))
		c.requireBound("other")
	})
}
