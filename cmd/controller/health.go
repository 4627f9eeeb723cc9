package controller

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"

	"zonewise.dev/cluster/live"
)

// health is what /livez and /readyz say.
type health struct {
	lease   *leaderelection.HealthzAdaptor
	cluster atomic.Pointer[live.Live] // nil while this replica stands by
}

func newHealth() *health {
	return &health{lease: leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)}
}

// follow makes readiness that of a cluster.
func (h *health) follow(cluster *live.Live) { h.cluster.Store(cluster) }

// livez fails if a lease that this process believes to hold has not been renewed.
func (h *health) livez(w http.ResponseWriter, r *http.Request) {
	if err := h.lease.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// readyz fails with a line for each thing that is not known of the cluster.
func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	cluster := h.cluster.Load()
	if cluster == nil {
		_, _ = w.Write([]byte("ok: stands by\n"))
		return
	}
	if lacks := cluster.Lacks(); len(lacks) > 0 {
		http.Error(w, strings.Join(lacks, "\n"), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// processMetrics are the prefixes of the metrics about the process. Those of the scheduler and of its plugins are not
// about the cluster here, but about copies of it.
var processMetrics = []string{
	"go_", "process_", "rest_client_", "leader_election_", "kubernetes_build_info", "zonewise_build_info",
}

// serve serves health, and the metrics with these prefixes, until stop is called.
func serve(address string, h *health, prefixes []string) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", h.livez)
	mux.HandleFunc("/readyz", h.readyz)
	mux.Handle("/metrics", metricsHandler(prefixes))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return func() { _ = server.Close() }, nil
}

func metricsHandler(prefixes []string) http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := legacyregistry.DefaultGatherer.Gather()
		var out []*dto.MetricFamily
		for _, family := range all {
			for _, prefix := range prefixes {
				if strings.HasPrefix(family.GetName(), prefix) {
					out = append(out, family)
				}
			}
		}
		return out, err
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{})
}
