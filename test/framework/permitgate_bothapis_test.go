package framework

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/native"
)

// api is one of the APIs of gangs.
type api struct {
	// create creates a gang and its members, and returns their names.
	create func(c *cluster, name string, size int, changes ...change) []string
	// rolledBack reports whether a gang has been said to be rolled back.
	rolledBack func(c *cluster, name string) bool
}

// inBothAPIs runs a test for gangs of each API.
func inBothAPIs(t *testing.T, test func(t *testing.T, a *api)) {
	t.Helper()
	runInBubble(t, "PodGroup CRD", func(t *testing.T) {
		test(t, &api{(*cluster).createGang, func(c *cluster, name string) bool {
			return c.recorder.count("PodGroup "+name+" GangRolledBack", "") > 0
		}})
	})
	nativeBubble(t, "native", func(t *testing.T) {
		test(t, &api{(*cluster).createNativeGang, func(c *cluster, name string) bool {
			released := c.groupCondition(name, native.ConditionReleased)
			return released != nil && released.Status == metav1.ConditionFalse
		}})
	})
}

// TestBindIsRefusedForLong: the API server refuses the bind of one member by its name, which no rehearsal of a sibling
// shows. Its node is kept for one more attempt and not for ever, other pods hear why they have to wait until then, and
// the gang is whole a second after the refusal has ended, however long that has lasted.
func TestBindIsRefusedForLong(t *testing.T) {
	inBothAPIs(t, func(t *testing.T, a *api) {
		c := startGangCluster(t, guarded, 3, 1)
		c.bind("node-1", member("", "busy"))
		var refuses atomic.Bool
		refuses.Store(true)
		c.refuseBinds(func(pod string) error {
			if pod == "g-1" && refuses.Load() {
				return errors.New("admission webhook denied the request: not this one")
			}
			return nil
		})
		names := a.create(c, "g", 3)
		c.requireBound("g-0", "g-2")
		c.create(member("", "other"))
		c.quiet()
		c.pass(30 * time.Second)
		require.Len(t, c.boundAmong("other"), 1, "the node is still kept: %s", refusal(c.getPod("other")))
		c.delete("busy")
		c.pass(5 * time.Minute)
		refuses.Store(false)
		ended := c.clock.Now()
		c.requireBound(names...)
		require.LessOrEqual(t, c.clock.Since(ended), 2*time.Second)
	})
}

// TestReleaseInVain: a member cannot be prepared for its bind, which shows after ten minutes each time, or when a node
// goes before that. What the gang holds for it is a tenth of the time.
func TestReleaseInVain(t *testing.T) {
	t.Run("no node goes", func(t *testing.T) { releaseInVain(t, false) })
	t.Run("nodes go", func(t *testing.T) { releaseInVain(t, true) })
}

func releaseInVain(t *testing.T, nodesGo bool) {
	inBothAPIs(t, func(t *testing.T, a *api) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 1, 1)
		held := time.Duration(0)
		c.mishap.set(func(m *mishap) {
			m.preBind = func(ctx context.Context, pod string) *fwk.Status {
				if pod != "g-1" {
					return nil
				}
				begin := time.Now()
				select { // as VolumeBinding does for a class that cannot provision
				case <-time.After(10 * time.Minute):
				case <-ctx.Done():
				}
				held += time.Since(begin)
				return fwk.AsStatus(errors.New("timed out waiting for the condition"))
			}
		})
		a.create(c, "g", 2)
		const all = 8 * time.Hour
		for passed := time.Duration(0); passed < all; passed += 8 * time.Minute {
			c.pass(8 * time.Minute)
			if nodesGo { // and another one comes in its place
				c.deleteNode("node-0")
				c.addNode("node-0", 1)
			}
		}
		require.NotZero(t, held)
		require.LessOrEqual(t, held, all/10+10*time.Minute)
	})
}

// TestDevicesAreGivenBack: a gang that was rolled back after a member's claim had been allocated keeps no device,
// whether it backs off or waits for another member.
func TestDevicesAreGivenBack(t *testing.T) {
	for name, gone := range map[string]bool{"backoff": false, "a member is gone": true} {
		t.Run(name, func(t *testing.T) {
			inBothAPIs(t, func(t *testing.T, a *api) {
				c := newGangCluster(t, 4, 4)
				c.addDevices(1, "", "node-0", "node-1")
				c.start(withArgs(`{"initialBackoff": "30s", "maxBackoff": "30s", "bindRehearsal": "Never"}`))
				c.mishap.set(func(m *mishap) {
					m.preBind = func(_ context.Context, pod string) *fwk.Status {
						if pod == "g-1" {
							time.Sleep(time.Second)
							return fwk.AsStatus(errors.New("its volume cannot be attached"))
						}
						return nil
					}
				})
				a.create(c, "g", 2, c.claiming)
				c.soon(func() bool { return a.rolledBack(c, "g") })
				if gone {
					c.delete("g-1")
				}
				c.pass(time.Second)
				require.LessOrEqual(t, c.requireBound(c.createPlain("other", 2, c.claiming)...), 10*time.Second)
			})
		})
	}
}

// TestNodeGoesWhileMembersWait for a sibling's volume, behind the release. No member is bound to a node that does not
// exist.
func TestNodeGoesWhileMembersWait(t *testing.T) {
	inBothAPIs(t, func(t *testing.T, a *api) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 1, 1, 1, 1)
		c.mishap.set(func(m *mishap) {
			m.preBind = func(_ context.Context, pod string) *fwk.Status {
				if pod == "g-2" {
					time.Sleep(time.Minute) // its volume is provisioned
				}
				return nil
			}
		})
		names := a.create(c, "g", 3)
		c.pass(10 * time.Second)
		node := ""
		for name, info := range c.scheduler.Cache.Dump().Nodes {
			for _, p := range info.GetPods() {
				if p.GetPod().Name == "g-0" {
					node = name
				}
			}
		}
		require.NotEmpty(t, node)
		c.deleteNode(node)
		c.pass(15 * time.Minute) // ten times the minute until the volume was there, and one more
		require.Len(t, c.boundAmong(names...), 3)
		for pod, at := range c.bound("g-") {
			require.NotEqual(t, node, at, pod)
		}
	})
}

// TestPreemptedNodeIsLost: a gang waits for the end of pods on a node that is cordoned or deleted meanwhile. It
// preempts elsewhere at once.
func TestPreemptedNodeIsLost(t *testing.T) {
	inBubbles(t, map[string]func(c *cluster, node string){
		"cordoned": func(c *cluster, node string) {
			c.editNode(node, func(n *v1.Node) { n.Spec.Unschedulable = true })
		},
		"deleted": func(c *cluster, node string) {
			c.deleteNode(node)
		},
	}, func(t *testing.T, lose func(c *cluster, node string)) {
		c, gang := preemptSlowly(t, 2, 2)
		first := c.leaving("low-0", "low-1")[0]
		lose(c, c.nodeOf(first))
		other := map[string]string{"low-0": "low-1", "low-1": "low-0"}[first]
		began := c.clock.Now()
		c.soon(func() bool { return len(c.leaving(other)) == 1 })
		require.LessOrEqual(t, c.clock.Since(began), 5*time.Second)
		c.finish(other)
		c.requireBound(gang...)
	})
}

// TestLowGangsHaveTheirTurn: gangs of a higher priority that pods which come and go wake again and again keep those of
// a lower priority from what these can use until the backoffs of these are over, and not for ever.
func TestLowGangsHaveTheirTurn(t *testing.T) {
	inBothAPIs(t, func(t *testing.T, a *api) {
		const highs, most = 20, 4 * time.Second
		c := newGangCluster(t, 2, 1)
		c.start(withArgs(`{"bindRehearsal": "Never", "gangPreemption": false, "starvationAfter": "24h", "initialBackoff": "2s", "maxBackoff": "2s"}`))
		c.bind("node-0", member("", "full", 2).Priority(100))
		for i := range highs {
			a.create(c, fmt.Sprint("high-", i), 4, ranked(10))
		}
		low := a.create(c, "low", 2)
		c.pass(time.Second)
		comeAndGo := func() {
			c.bind("node-1", member("", "other").Priority(100))
			c.pass(10 * time.Millisecond)
			c.delete("other")
		}
		for range 300 {
			comeAndGo()
		}
		c.delete("full")
		began := c.clock.Now()
		for len(c.boundAmong(low...)) < len(low) {
			require.Less(t, c.clock.Since(began), most)
			comeAndGo()
		}
	})
}
