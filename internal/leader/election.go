package leader

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	// The gauge is here, whatever else the program that has the plugins imports: without it no process would ever lead.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
)

// gaugeName is the gauge of k8s.io/component-base/metrics/prometheus/clientgo/leaderelection.
const gaugeName = "leader_election_master_status"

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

// election is how the scheduler of this process takes part in leader election.
type election struct {
	LeaderElect       bool            `json:"leaderElect"`
	LeaseDuration     metav1.Duration `json:"leaseDuration"`
	RenewDeadline     metav1.Duration `json:"renewDeadline"`
	RetryPeriod       metav1.Duration `json:"retryPeriod"`
	ResourceName      string          `json:"resourceName"`
	ResourceNamespace string          `json:"resourceNamespace"`
}

// configured returns the leader election that the scheduler of this process has published. A process that publishes no
// configuration (one that runs the scheduler as a library) counts as one without.
func configured() election {
	var reader configzReader
	configz.InstallHandler(&reader)
	if reader.handler == nil {
		return election{}
	}
	request, err := http.NewRequest(http.MethodGet, configz.DefaultConfigzPath, http.NoBody)
	if err != nil {
		return election{}
	}
	response := memoryResponse{header: http.Header{}}
	reader.handler.ServeHTTP(&response, request)

	var published map[string]struct {
		LeaderElection election `json:"leaderElection"`
	}
	if err := json.Unmarshal(response.body.Bytes(), &published); err != nil {
		return election{}
	}
	return published["componentconfig"].LeaderElection
}

// Lease returns the namespace and name of the lease that the scheduler of this process asks for, as "namespace/name";
// empty without leader election. It is known once the scheduler starts its informers.
func Lease() string {
	e := configured()
	if !e.LeaderElect {
		return ""
	}
	return e.ResourceNamespace + "/" + e.ResourceName
}

// settledAfter is by when an elector without its lease has noticed: it pauses for the retry period, and then tries to
// renew until the deadline.
func (e election) settledAfter() time.Duration {
	return e.RenewDeadline.Duration + 2*e.RetryPeriod.Duration
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
