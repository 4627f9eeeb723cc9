package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/test/chaos/judge"
	"zonewise.dev/test/internal/program"
)

// seeds are those of the short runs, and short is how long their faults go on.
var seeds = []uint64{1, 2, 3}

const short = 18 * time.Second

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // of the clients, to which the API server is away at times
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestSeeds makes short runs. One that fails leaves its record and its logs in dist/chaos.
func TestSeeds(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	chosen := seeds
	if testing.Short() {
		chosen = seeds[:1]
	}
	for _, seed := range chosen {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := filepath.Join(root, "dist", "chaos", fmt.Sprintf("short-%d", seed))
			require.NoError(t, os.RemoveAll(dir))
			record, err := Run(t.Context(), Options{Seed: seed, Duration: short, Root: root, Program: scheduler, Dir: dir, Logf: t.Logf})
			require.NoError(t, err, "seed %d, logs in %s", seed, dir)
			verdicts := judge.All(record)
			var summary strings.Builder
			Summarize(&summary, record, verdicts)
			require.False(t, judge.Failed(verdicts), "the record is in %s\n%s", dir, summary.String())
			t.Log(summary.String())
			require.NotEmpty(t, record.Faults)
			for _, v := range verdicts {
				switch v.Judge {
				case "Overcommitted", "BoundTwice", "StaleWrites", "MaxSkews", "Unbound", "Leftovers":
					require.Positive(t, v.Judged, "%s has judged nothing, so the run shows nothing", v.Judge)
				}
			}
			require.NoError(t, os.RemoveAll(dir))
		})
	}
}

// TestPlan: a seed is a plan. In each all is over before its end, and a long one has every kind of fault.
func TestPlan(t *testing.T) {
	all := 0
	for _, lane := range kinds {
		all += len(lane)
	}
	for seed := range uint64(50) {
		const length = 5 * time.Minute
		p := newPlan(seed, length, "")
		require.Equal(t, p, newPlan(seed, length, ""))
		require.NotEqual(t, p, newPlan(seed+1, length, ""))
		seen := map[string]bool{}
		for _, lane := range p.lanes {
			end := warmUp
			for _, f := range lane {
				require.GreaterOrEqual(t, f.at, end, "two faults of a lane at a time")
				end = f.at + f.lasts
				seen[f.kind] = true
			}
			require.Less(t, end, length)
		}
		require.Len(t, seen, all)
		for _, s := range p.steps {
			require.LessOrEqual(t, s.at, length)
		}
		only := newPlan(seed, length, "killed").lanes
		require.Len(t, only, 2)
		for _, lane := range only {
			for _, f := range lane {
				require.Contains(t, f.kind, "killed")
			}
		}
	}
	for _, seed := range seeds {
		for lane, faults := range newPlan(seed, short, "").lanes {
			require.NotEmpty(t, faults, "seed %d, lane %d: too short for a fault", seed, lane)
		}
	}
}

// TestDemand: whatever the steps, the demand is one that a cluster can be asked for.
func TestDemand(t *testing.T) {
	for seed := range uint64(10) {
		d := newDemand()
		for _, s := range newPlan(seed, 2*time.Minute, "").steps {
			d.apply(s)
			names := map[string]bool{}
			for _, s := range d.all() {
				require.False(t, names[s.name], s.name)
				names[s.name] = true
				require.GreaterOrEqual(t, s.replicas, 0)
			}
			require.LessOrEqual(t, len(d.gangs), mostGangs)
			for _, g := range d.gangs {
				require.Positive(t, g.minMember)
				require.LessOrEqual(t, g.minMember, g.size)
			}
			require.GreaterOrEqual(t, d.percent, 60)
			require.LessOrEqual(t, d.percent, 110)
		}
	}
}
