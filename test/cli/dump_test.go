package cli

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// testDump asks the scheduler for a dump, as docs/operations.md does: the log has the dump of kube-scheduler's cache
// and that of the ledger and, from the next scheduling cycle on, its comparison with the scheduler's snapshot.
func (c *cluster) testDump(t *testing.T, process *os.Process, log string) {
	logged := func(parts ...string) bool {
		content, err := os.ReadFile(log)
		require.NoError(t, err)
	lines:
		for line := range strings.Lines(string(content)) {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					continue lines
				}
			}
			return true
		}
		return false
	}
	untilLogged := func(parts ...string) {
		t.Helper()
		until(t, strings.Join(parts, ", "), func(context.Context) (bool, error) { return logged(parts...), nil })
	}
	require.False(t, logged("Dump of"))
	require.NoError(t, process.Signal(syscall.SIGUSR2))
	untilLogged("Dump of cached NodeInfo")
	untilLogged("Node name: node-a")
	untilLogged("Dump of the ledger", `node="node-a"`, `"MilliCPU":500`, "shop/web-")

	later := pod("later", "3900m", nil)
	c.Make(t, later)
	untilLogged("Compared the ledger with the scheduler's snapshot", "nodes=3", "differences=[]")
	require.NoError(t, c.Delete(t.Context(), later))
}
