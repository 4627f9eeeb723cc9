package framework

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestPackedGangPausesBetweenDomains: all domains are refused by the filters only, pods come and go, and cycles of
// members take a second. They take a tenth of the time, also when each domain has been tried.
func TestPackedGangPausesBetweenDomains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		zones := []string{"a", "b", "c", "d", "e", "f"}
		for _, zone := range zones {
			c.addZonalNode(zone+"-0", zone, 1)
			c.addZonalNode(zone+"-1", zone, 1)
		}
		c.start(withArgs(`{"gangPreemption": false, "bindRehearsal": "Never"}`))
		for _, zone := range zones {
			c.bind(zone+"-0", guard(zone+"-0", v1.LabelTopologyZone))
		}
		c.quiet()
		var cycles atomic.Int64
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(pod string) *fwk.Status {
				if strings.HasPrefix(pod, "g-") {
					time.Sleep(time.Second)
					cycles.Add(1)
				}
				return nil
			}
		})
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.create(train(member("g", "g-0")), train(member("g", "g-1")))
		const seconds = 600
		for i := range seconds {
			other := fmt.Sprintf("other-%d", i)
			c.bind("a-0", member("", other, 0))
			c.pass(time.Second)
			c.delete(other)
		}
		require.Greater(t, cycles.Load(), int64(2*len(zones)), "all domains have had their turn, and again")
		require.LessOrEqual(t, cycles.Load(), int64(seconds/10+2*len(zones)))
		require.Positive(t, c.recorder.count("PodGroup g GangRolledBack", "none of the 6 domains"))
		require.Empty(t, c.boundAmong("g-0", "g-1"))
	})
}
