package native

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// TestGangOfAHundredStartsWhenRoomAppears although its backoff would last for hours. GangScheduling alone waits for it: a pod that comes after the
// room has appeared takes it.
func TestGangOfAHundredStartsWhenRoomAppears(t *testing.T) {
	c := startCluster(t)
	c.createNode("large", "96") // beside one of 4
	// wait has the gang fail for lack of one CPU, and then makes room.
	wait := func(c *cluster, args string) (names []string) {
		c.startScheduler(args, func(cfg *configv1.KubeSchedulerConfiguration) {
			cfg.PodInitialBackoffSeconds, cfg.PodMaxBackoffSeconds = ptr.To[int64](3600), ptr.To[int64](3600)
		})
		c.createPlainPod("blocker")
		c.eventually("the blocker is bound", func() bool { return len(c.bound()) == 1 })
		names = make([]string, 100)
		for i := range names {
			names[i] = fmt.Sprint("n-", i)
		}
		c.createGang(names...)
		c.eventually("the gang is tried in vain", func() bool { return c.triedInVain(names...) })
		c.delete("blocker")
		return names
	}
	c.inNamespace("Guard", func(c *cluster) {
		names := wait(c, guarded)
		start := time.Now()
		c.eventually("all are bound", func() bool { return len(c.bound()) == len(names) })
		c.t.Logf("whole %s after room had appeared", time.Since(start).Round(10*time.Millisecond))
	})
	c.inNamespace("GangScheduling alone", func(c *cluster) {
		names := wait(c, alone)
		cycles := c.probe.mostCycles()
		c.createPlainPod("later")
		c.eventually("a later pod is bound", func() bool { return len(c.bound()) == 1 })
		require.Equal(c.t, cycles, c.probe.mostCycles(), "of %d members", len(names))
	})
}
