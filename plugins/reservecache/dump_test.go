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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
)

func TestCompareFindsEveryDifference(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1"), makePod("p", "n1")).start(t)
	differences, err := compareWithStores(f.shared.Ledger().Dump(), f.handle.factory)
	require.NoError(t, err)
	require.Empty(t, differences)

	dump := f.shared.Ledger().Dump()
	done := makePod("done", "n1")
	done.Status.Phase = v1.PodSucceeded
	require.Empty(t, compareDump(dump, []*v1.Node{makeNode("n1")}, []*v1.Pod{makePod("p", "n1"), makePod("pending", ""), done}))
	require.Equal(t, []string{"node n1: the node is in the ledger only", "node n2: the node is in the informer only"},
		compareDump(dump, []*v1.Node{makeNode("n2")}, nil))
	require.Equal(t, []string{"node n1: a pod is in the informer only: q", "node n1: a pod is in the ledger only: p"},
		compareDump(dump, []*v1.Node{makeNode("n1")}, []*v1.Pod{makePod("q", "n1")}))
	require.Equal(t, []string{"node n1: a pod is in the ledger only: p", "node n2: a pod is in the informer only: p"},
		compareDump(dump, []*v1.Node{makeNode("n1")}, []*v1.Pod{makePod("p", "n2")}))
	bigger := makeNode("n1")
	bigger.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("9")
	require.Equal(t, []string{"node n1: the allocatable resources differ"}, compareDump(dump, []*v1.Node{bigger}, []*v1.Pod{makePod("p", "n1")}))

	// Assumed pods are not expected to be bound, but once they are, it should be there.
	require.NoError(t, f.shared.Ledger().AssumePod(makePod("a", ""), "n1", t0))
	dump = f.shared.Ledger().Dump()
	require.Empty(t, compareDump(dump, []*v1.Node{makeNode("n1")}, []*v1.Pod{makePod("p", "n1"), makePod("a", "")}))
	require.Equal(t, []string{"node n1: a pod is in the ledger only: a", "node n2: a pod is in the informer only: a"},
		compareDump(dump, []*v1.Node{makeNode("n1")}, []*v1.Pod{makePod("p", "n1"), makePod("a", "n2")}))

	// A ghost is a node that the informer rightly does not have.
	f.shared.Ledger().RemoveNode(makeNode("n1"))
	require.Empty(t, compareDump(f.shared.Ledger().Dump(), nil, []*v1.Pod{makePod("p", "n1"), makePod("a", "")}))
}

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
	eventually(t, func() bool { return log.contains("Compared the ledger with the informers", `"differences"=[]`) })
	require.True(t, log.contains("Dump of the ledger", `"n1"`, "default/p uid=p state=Added"))

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
