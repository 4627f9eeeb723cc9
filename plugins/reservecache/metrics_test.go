package reservecache

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

const gaugeHelp = `
# HELP zonewise_reservecache_assumed_pods [ALPHA] Number of assumed pods that the API server has not shown bound yet.
# TYPE zonewise_reservecache_assumed_pods gauge
zonewise_reservecache_assumed_pods 2
# HELP zonewise_reservecache_ghost_nodes [ALPHA] Number of nodes that are gone, or not there yet, but have pods in the ledger.
# TYPE zonewise_reservecache_ghost_nodes gauge
zonewise_reservecache_ghost_nodes 1
# HELP zonewise_reservecache_nodes [ALPHA] Number of nodes in the ledger, without ghosts.
# TYPE zonewise_reservecache_nodes gauge
zonewise_reservecache_nodes 1
# HELP zonewise_reservecache_oldest_assumed_pod_age_seconds [ALPHA] Time since the oldest assumed pod was assumed; 0 if no pod is assumed.
# TYPE zonewise_reservecache_oldest_assumed_pod_age_seconds gauge
zonewise_reservecache_oldest_assumed_pod_age_seconds 90
# HELP zonewise_reservecache_pods [ALPHA] Number of pods in the ledger, including assumed ones.
# TYPE zonewise_reservecache_pods gauge
zonewise_reservecache_pods 3
`

func TestMetrics(t *testing.T) {
	// Schedulers of other tests have ended, so that only this one counts.
	eventually(t, func() bool { return collected.Live() == 0 })
	f := newFixture(t, nil, makeNode("n1"), makePod("bound", "n1")).start(t)
	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1"))
	f.clock.SetTime(t0.Add(time.Minute))
	require.NoError(t, f.shared.Ledger().AssumePod(makePod("q", ""), "gone", f.clock.Now()))
	f.clock.SetTime(t0.Add(90 * time.Second))
	_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("r", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")

	names := []string{}
	for line := range strings.SplitSeq(gaugeHelp, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(rest)[0])
		}
	}
	require.Len(t, names, 5)
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(gaugeHelp), names...))
}
