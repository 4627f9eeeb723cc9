package chaos

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/internal/program"
)

// TestBlind: both ways to configure a scheduler bind pods after a restart, and come to see the cluster as it is.
func TestBlind(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	schedulers := []BlindScheduler{{Name: "shipped", Program: scheduler}, {Name: "in-tree", Program: scheduler, InTree: true}}
	seen, err := Blind(t.Context(), BlindOptions{Restarts: 1, Schedulers: schedulers, Root: root, Dir: t.TempDir(), Logf: t.Logf})
	require.NoError(t, err)
	for _, s := range schedulers {
		require.Len(t, seen[s.Name], 1)
		require.GreaterOrEqual(t, seen[s.Name][0].Binds, seesAfter)
		require.Positive(t, seen[s.Name][0].First)
	}
}

// TestSights: a bind is by an old view when its node had been cordoned before the pod was created, and counts for the last restart.
func TestSights(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	record := &history.Record{}
	see := func(seconds int, c history.Change) {
		c.Revision, c.Time = int64(len(record.Changes)+1), start.Add(time.Duration(seconds)*time.Second)
		record.Changes = append(record.Changes, c)
	}
	cordon := func(seconds int, name string, cordoned bool) {
		node := newNode("a", 1)
		node.Name, node.Spec.Unschedulable = name, cordoned
		see(seconds, history.Change{Node: node})
	}
	pod := func(seconds int, scheduler, name, node string) {
		see(seconds, history.Change{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{SchedulerName: scheduler, NodeName: node},
		}})
	}
	restart := func(from, to int) {
		record.Faults = append(record.Faults, history.Fault{
			Kind: apiServerRestarted, Began: start.Add(time.Duration(from) * time.Second), Ended: start.Add(time.Duration(to) * time.Second),
		})
	}
	cordon(0, "a1", false)
	cordon(0, "a2", false)
	restart(5, 10)
	pod(11, "one", "early", "")
	cordon(12, "a1", true)
	pod(12, "one", "late", "")
	pod(12, "two", "other", "")
	pod(13, "one", "late", "a1")
	pod(14, "one", "early", "a1") // it was created before
	pod(15, "two", "other", "a2")
	pod(16, "one", "waits", "")
	restart(20, 30)
	for i := range seesAfter {
		pod(31, "one", fmt.Sprint(i), "")
		pod(32, "one", fmt.Sprint(i), "a2")
	}
	x := history.NewIndex(record)
	require.Equal(t, []Sight{
		{First: 3 * time.Second, Blind: 3 * time.Second, Binds: 2, Wrong: 1},
		{First: 2 * time.Second, Binds: seesAfter},
	}, sights(x, "one"))
	require.Equal(t, []Sight{{First: 5 * time.Second, Binds: 1}, {}}, sights(x, "two"))
	require.True(t, sees(x, "one"))
	require.False(t, sees(x, "two"), "it has bound none")

	var out strings.Builder
	require.NoError(t, SummarizeBlind(&out, []BlindScheduler{{Name: "one"}}, map[string][]Sight{"one": sights(x, "one")}))
	require.Regexp(t, `one +2 +3\.0s +3\.0s +3\.0s +3\.0s +1 +10\n`, out.String())

	pod(33, "one", "wrong", "")
	pod(34, "one", "wrong", "a1")
	require.False(t, sees(history.NewIndex(record), "one"))
}
