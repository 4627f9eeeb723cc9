package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// loseConnections has the first bind call of every fifth pod fail before the pod is bound, and that of the next one
// after it.
func (c *cluster) loseConnections() {
	lost := errors.New("the connection was lost")
	before, after := map[string]bool{}, map[string]bool{} // the pods that have had a call
	fail := func(had map[string]bool, rest int) func(pod string) error {
		return func(pod string) error {
			var n int
			read, _ := fmt.Sscanf(pod, "pod-%d", &n)
			if read != 1 || had[pod] || n%5 != rest {
				return nil
			}
			had[pod] = true
			return lost
		}
	}
	c.server.BeforeBind(fail(before, 0))
	c.server.AfterBind(fail(after, 1))
}

// TestLedgerFollowsTheScheduler schedules pods of two profiles while bind calls fail before and after they
// have bound, pods are deleted at every stage, and a node comes and goes.
func TestLedgerFollowsTheScheduler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const pods = 120
		c := startHoldCluster(t)
		c.loseConnections()
		withGPUs := func(n *v1.Node) {
			n.Status.Allocatable["example.com/gpu"], n.Status.Capacity["example.com/gpu"] = resource.MustParse("8"), resource.MustParse("8")
		}
		for i := range 6 {
			c.smallNode(fmt.Sprintf("n%d", i), string(rune('a'+i%3)), "64", withGPUs)
		}
		for i := range pods {
			pod := podOf(fmt.Sprintf("pod-%d", i), []string{"default-scheduler", "batch"}[i%2])
			if i%10 == 3 {
				pod.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
			}
			c.createPods(pod)
			if i%7 == 0 {
				// At whatever stage of its scheduling it is by now.
				c.delete(fmt.Sprintf("pod-%d", i/7*4))
			}
		}
		c.requireSettled()
		c.requireSameAsSchedulerCache()
		require.Zero(t, c.shared.Ledger().Stats().Ghosts)

		c.deleteNode("n0")
		c.settle()
		require.Equal(t, 5, c.shared.Ledger().Stats().Nodes)
		require.Equal(t, 1, c.shared.Ledger().Stats().Ghosts, "its pods are still there")
		c.smallNode("n0", "c", "64", withGPUs)
		c.requireSettled()
		c.requireSameAsSchedulerCache()
		require.Zero(t, c.shared.Ledger().Stats().Ghosts)
	})
}

// TestTheLedgerForgetsBeforeTheCache: a cycle that comes after a failed pod's Unreserve, and before kube-scheduler's
// cache has forgotten the pod, settles the floor from NodeInfos that the ledger is ahead of. Though no cycle comes
// after it, the status says that the pod's room is held.
func TestTheLedgerForgetsBeforeTheCache(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, reserveCacheOnly)
		c.edit = func(p *config.KubeSchedulerProfile) {
			p.Plugins.Reserve.Enabled = append(p.Plugins.Reserve.Enabled, config.Plugin{Name: mishapName}) // its Unreserve is the last
		}
		c.start()
		var forgotten atomic.Bool
		cacheForgets := make(chan struct{})
		forget := sync.OnceFunc(func() { close(cacheForgets) })
		defer forget()
		c.mishap.set(func(m *mishap) {
			m.preBind = func(context.Context, string) *fwk.Status { return fwk.NewStatus(fwk.Error, "its volume is gone") }
			m.unreserve = func(string) {
				forgotten.Store(true)
				<-cacheForgets
			}
		})
		c.smallNode("n0", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 2, nil))
		c.requireSlots("r", 2, 0)

		c.pod("fails", "batch", "3", priority(1000))
		c.soon(forgotten.Load)
		c.mishap.set(func(m *mishap) {
			m.preEnqueue = func(pod string) *fwk.Status { // it has no other cycle
				if pod != "fails" {
					return nil
				}
				return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "it waits for its volume")
			}
		})
		c.pod("elsewhere", "batch", "1", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }) // no room wakes it
		c.refused("elsewhere")
		forget()
		c.pass(soonest)
		c.requireSlots("r", 2, 0)
		require.Equal(t, []int{1, 1}, []int{c.mishap.tried("fails"), c.mishap.tried("elsewhere")}, "no cycle has come since")
	})
}
