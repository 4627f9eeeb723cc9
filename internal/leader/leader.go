// Package leader tells a plugin whether its process is the one that schedules.
//
// Standby replicas of kube-scheduler build the plugins, run informers and PreEnqueue; only the leader
// may write to the API server. Plugins get no callback for the change, so this package reads what the
// process already knows about itself: the leader-election gauge that component-base keeps, and, for a
// scheduler without leader election, the configuration that it publishes under /configz. A process that
// loses its lease exits, so that leading, once true, stays true.
package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	// The gauge is here, whatever else the program that has the plugins imports: without it no process would ever lead.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	"k8s.io/klog/v2"
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

// Leading returns a channel that is closed once this process schedules: when it holds the lease, or,
// without leader election, when its informers have synced. It never closes when ctx ends first.
//
// It returns at once and may be called from several goroutines; each call polls for itself, so a plugin
// calls it once per process.
func Leading(ctx context.Context, h Handle) <-chan struct{} {
	led := make(chan struct{})
	logger := klog.FromContext(ctx)
	pods := h.SharedInformerFactory().Core().V1().Pods().Informer()
	go func() {
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
			held, err := leaseHeld()
			if err != nil {
				// Metrics that cannot be gathered now may be gathered later.
				logger.V(4).Info("Could not read the leader election gauge", "err", err)
				return false, nil
			}
			if held {
				return true, nil
			}
			// The scheduler publishes its configuration before it starts its informers, so once
			// they have synced the absence of leader election is a fact and not a race.
			return pods.HasSynced() && !electionConfigured(), nil
		})
		if err == nil {
			close(led)
		}
	}()
	return led
}

// leaseHeld reports whether an elector of this process holds its lease.
func leaseHeld() (bool, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return false, err
	}
	for _, family := range families {
		if family.GetName() != gaugeName {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				return true, nil
			}
		}
	}
	return false, nil
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
