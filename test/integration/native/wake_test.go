package native

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/test/build"
)

// TestGangOfAHundredStartsWhenRoomAppears, guarded and not. How long each took is logged: GangScheduling alone waits for its backoff.
func TestGangOfAHundredStartsWhenRoomAppears(t *testing.T) {
	c := startCluster(t)
	c.createNode("large", "96") // beside one of 4
	for _, mode := range []struct{ name, args string }{{"Guard", guarded}, {"GangScheduling alone", alone}} {
		c.run(mode.name, mode.args, func(c *cluster) {
			_, err := c.admin.CoreV1().Pods(c.namespace).Create(c.t.Context(), build.Pod("blocker", "1", build.Namespace(c.namespace)), metav1.CreateOptions{})
			require.NoError(c.t, err)
			c.eventually("the blocker is bound", func() bool { return len(c.bound()) == 1 })
			names := make([]string, 100)
			for i := range names {
				names[i] = fmt.Sprint("n-", i)
			}
			c.createGang(names...)
			c.eventually("it is tried four times", func() bool { return c.probe.mostCycles() >= 4 })
			start := time.Now()
			c.delete("blocker")
			c.eventually("all are bound", func() bool { return len(c.bound()) == len(names) })
			c.t.Logf("whole %s after room had appeared", time.Since(start).Round(10*time.Millisecond))
		})
	}
}
