// Package leader tells a plugin whether its process is the one that schedules.
//
// Standby replicas of kube-scheduler build the plugins, run informers and PreEnqueue; only the leader
// may write to the API server. Plugins get no callback for the change, so this package reads what the
// process already knows about itself: the leader-election gauge that component-base keeps, and, for a
// scheduler without leader election, the configuration that it publishes under /configz. A scheduling
// cycle is a proof of its own, since standby replicas run none. A process that loses its lease exits, so
// that leading, once true, stays true.
package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	// The gauge is here, whatever else the program that has the plugins imports: without it no process would ever lead.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"

	"zonewise.dev/internal/perscheduler"
)

// pollInterval is how often the state is read until the process leads: well under the default retry
// period of a lease (2 s), at a cost of one gathering of the process's metrics.
const pollInterval = 500 * time.Millisecond

// gaugeName is the gauge of k8s.io/component-base/metrics/prometheus/clientgo/leaderelection.
const gaugeName = "leader_election_master_status"

// Handle is the part of the framework's handle that this package needs.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
}

// Leader tells whether the scheduler of a handle leads. Get one with Of. Its methods may be called from several
// goroutines.
type Leader struct {
	once    sync.Once
	led     chan struct{}
	leading atomic.Bool
}

// Of returns the Leader of the scheduler behind h: one for all plugins and profiles, with one goroutine that looks until
// the scheduler leads or ctx, which is the scheduler's, ends.
func Of(ctx context.Context, h Handle) *Leader {
	return perscheduler.Get(ctx, h, "leader", func() *Leader {
		l := &Leader{led: make(chan struct{})}
		go l.look(ctx, h)
		return l
	})
}

// Leading returns a channel that is closed once this scheduler leads: when it holds the lease, or, without leader
// election, when its informers have synced.
func (l *Leader) Leading() <-chan struct{} { return l.led }

// Cycle is called by a plugin in each scheduling cycle, which only a leader runs. It costs an atomic read, and makes
// leadership independent of the process's metrics as soon as there is something to schedule.
func (l *Leader) Cycle() {
	if !l.leading.Load() {
		l.lead()
	}
}

func (l *Leader) lead() {
	l.once.Do(func() {
		l.leading.Store(true)
		close(l.led)
	})
}

func (l *Leader) look(ctx context.Context, h Handle) {
	pods := h.SharedInformerFactory().Core().V1().Pods().Informer()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		// The scheduler publishes its configuration before it starts its informers, so once
		// they have synced the absence of leader election is a fact and not a race.
		return l.leading.Load() || leaseHeld() || pods.HasSynced() && !electionConfigured(), nil
	})
	if err == nil {
		l.lead()
	}
}

// leaseHeld reports whether an elector of this process holds its lease. Collectors that fail are not its concern: what
// the others say is returned beside the error.
func leaseHeld() bool {
	families, _ := legacyregistry.DefaultGatherer.Gather()
	for _, family := range families {
		if family.GetName() != gaugeName {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				return true
			}
		}
	}
	return false
}

// electionConfigured reports whether the scheduler of this process runs with leader election. A process
// that publishes no configuration (one that runs the scheduler as a library) counts as one without.
func electionConfigured() bool {
	var reader configzReader
	configz.InstallHandler(&reader)
	if reader.handler == nil {
		return false
	}
	request, err := http.NewRequest(http.MethodGet, configz.DefaultConfigzPath, http.NoBody)
	if err != nil {
		return false
	}
	response := memoryResponse{header: http.Header{}}
	reader.handler.ServeHTTP(&response, request)

	var published map[string]struct {
		LeaderElection struct {
			LeaderElect bool `json:"leaderElect"`
		} `json:"leaderElection"`
	}
	if err := json.Unmarshal(response.body.Bytes(), &published); err != nil {
		return false
	}
	return published["componentconfig"].LeaderElection.LeaderElect
}

// configzReader takes configz's handler, the one way to read what the process has published.
type configzReader struct{ handler http.Handler }

func (r *configzReader) Handle(_ string, handler http.Handler) { r.handler = handler }

// memoryResponse keeps a response in memory.
type memoryResponse struct {
	header http.Header
	body   bytes.Buffer
}

func (r *memoryResponse) Header() http.Header         { return r.header }
func (r *memoryResponse) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *memoryResponse) WriteHeader(int)             {}
