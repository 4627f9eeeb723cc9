//go:debug randseednop=0

package worlds

import (
	"flag"
	"fmt"
	"go/parser"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

var (
	firstSeed  = flag.Uint64("seed", 1, "the first seed of TestSeeds")
	worldCount = flag.Int("worlds", 0, "how many worlds TestSeeds plays")
	patience   = flag.Duration("patience", time.Minute, "how long TestSeeds looks for a smaller world that fails, 0 for not at all")
	trace      = flag.Bool("trace", false, "whether all worlds write what happens in them to the standard output")
	reports    = flag.Bool("report", false, "whether TestSeeds says what became of each world")
)

func init() {
	metrics.Register()
	watch.DefaultChanSize = 4096 // a watch of the fake clientset panics when its channel is full
	// The first handler logs, the second slows errors down by a clock that all bubbles would share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	// The scheduler listens for a signal. The first one to do so starts the runtime's listener, which must not be in a
	// bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *trace {
		Trace = os.Stdout
	}
	if !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}

// TestWorlds plays a list of worlds, or those of the flags. One that fails is shrunk, and printed as Go source.
func TestWorlds(t *testing.T) {
	if *worldCount == 0 {
		playAll(t, seeds)
		return
	}
	given := make([]uint64, *worldCount)
	for i := range given {
		given[i] = *firstSeed + uint64(i)
	}
	playAll(t, given)
}

// TestManyWorlds plays a longer list.
func TestManyWorlds(t *testing.T) { playAll(t, moreSeeds) }

// playAll plays the worlds of seeds, and requires that what they leave behind does not grow with their number.
func playAll(t *testing.T, seeds []uint64) {
	t.Helper()
	goroutines, heap := runtime.NumGoroutine(), uint64(0)
	for i, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playSeed(t, seed) })
		if i == len(seeds)/4 {
			heap = heapInUse() // the process has warmed up
		}
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+1, "goroutines that outlive their worlds")
	if grown := heapInUse(); len(seeds) >= 8 {
		require.Less(t, grown, 2*heap+64<<20, "what worlds leave in memory")
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

func playSeed(t *testing.T, seed uint64) {
	t.Helper()
	w := New(seed)
	began := time.Now()
	r := Play(t, w)
	if *reports {
		fmt.Printf("seed %d: %v for %v of its own, %d cycles, %d bound, %d displaced, %d moved, %v\n", seed, time.Since(began).Round(time.Millisecond), r.Lived, r.Cycles, r.Bound, r.Displaced, r.Moved, r.Failures)
	}
	f, failed := r.Has("")
	if !failed {
		return
	}
	if *patience == 0 {
		t.Fatalf("seed %d breaks %s", seed, f)
	}
	small := Shrink(w, *patience, func(w World) (failed bool) {
		t.Run("smaller", func(t *testing.T) { _, failed = Play(t, w).Has(f.Invariant) })
		return failed
	})
	t.Fatalf("seed %d breaks %s\nsmaller: %v\n%v", seed, f, Play(t, small).Failures, small)
}

// TestWorldsOfOneSeedAreEqual, and print as Go source.
func TestWorldsOfOneSeedAreEqual(t *testing.T) {
	for seed := range uint64(200) {
		w := New(seed)
		require.Equal(t, w, New(seed))
		_, err := parser.ParseExpr(w.String())
		require.NoError(t, err, "%v", w)
	}
}

// TestShrink: what is left of a world is what the failure needs.
func TestShrink(t *testing.T) {
	w := New(1)
	w.Steps = append(w.Steps, Wait{time.Hour}, Run{Workload{Name: "w", Kind: Gang, Replicas: 6, CPU: 3, Spread: OverZones}}, Restart{}, Evict{"w", 3})
	needed := func(w World) bool {
		runs, evicts := false, false
		for _, step := range w.Steps {
			switch s := step.(type) {
			case Run:
				runs = runs || s.Workload.Name == "w" && s.Workload.Replicas > 2
			case Evict:
				evicts = evicts || runs && s.Workload == "w"
			}
		}
		return evicts
	}
	require.Equal(t, World{Steps: []Step{Run{Workload{Name: "w", Kind: Gang, Replicas: 3, CPU: 1}}, Evict{"w", 0}}}, Shrink(w, time.Minute, needed))
}
