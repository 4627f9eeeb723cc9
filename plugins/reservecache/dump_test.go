//go:build !windows

package reservecache

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
)

// lines collects what is logged from several goroutines.
type lines struct {
	mu     sync.Mutex // guards logged
	logged []string
}

func (l *lines) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.logged = append(l.logged, args)
	}, funcr.Options{})
}

func (l *lines) contains(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.logged {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// TestDumpOnSignal sends this process the signal that a person would send the scheduler.
func TestDumpOnSignal(t *testing.T) {
	var log lines
	ctx := klog.NewContext(t.Context(), log.logger())
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(makeNode("n1"), makePod("p", "n1")), 0)
	s := NewShared()
	plugin, err := s.New(ctx, nil, &handle{factory: factory})
	require.NoError(t, err)
	factory.StartWithContext(ctx)
	_, status := plugin.(*ReserveCache).PreFilter(ctx, &cycleState{}, makePod("q", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")
	require.False(t, log.contains("Compared"))

	require.NoError(t, syscall.Kill(os.Getpid(), dumpSignals[0].(syscall.Signal)))
	eventually(t, func() bool { return log.contains("Dump of the ledger", `"n1"`, "default/p uid=p state=Added") })

	// The next cycle sees no nodes.
	comparison := s.running.comparison
	eventually(t, func() bool {
		comparison.mu.Lock()
		defer comparison.mu.Unlock()
		return comparison.requested
	})
	_, status = plugin.(*ReserveCache).PreFilter(ctx, &cycleState{}, makePod("q", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")
	require.True(t, log.contains("Compared the ledger with the scheduler's snapshot", "node n1: the node is in the ledger only"))
}
