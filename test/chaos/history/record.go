// Package history is the record of a chaos run: what was in the API server's storage after each write, who asked for
// the writes, and which faults there were when. It is plain data in a file, so that a run can be judged long after it.
package history

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// Record is a run.
type Record struct {
	Seed uint64 `json:"seed"`
	// Changes are all that storage has seen, in its own order.
	Changes []Change `json:"changes"`
	// Requests are what schedulers have asked for, also what was refused, in the order of the answers.
	Requests []Request `json:"requests"`
	Faults   []Fault   `json:"faults"`
	// Started is when the replicas were started, by their names. What was there before is known to them.
	Started map[string]time.Time `json:"started"`
	// Quiet is when the last fault was over and nothing was changed any more but by schedulers; Settled is when all
	// that fits was bound, or zero; Judged is when the waiting for it ended.
	Quiet   time.Time `json:"quiet"`
	Settled time.Time `json:"settled"`
	Judged  time.Time `json:"judged"`
	// Remains is what the leader says after all has been deleted: its metrics without labels, and the sums of those
	// with labels.
	Remains map[string]float64 `json:"remains,omitempty"`
	// Goroutines are those of the last leader, after all has been deleted for the first time and for the last.
	Goroutines [2]float64 `json:"goroutines"`
}

// Change is a write to storage. It has one object: what is there since, or what was there until the deletion.
type Change struct {
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"` // when it was seen, in storage's own order
	Deleted  bool      `json:"deleted,omitempty"`
	// Writer is the replica that asked for it. It is empty if none did, and if the API server was killed before it had
	// noted it.
	Writer string `json:"writer,omitempty"`
	// Received is when the API server began to read that request; zero without one.
	Received time.Time `json:"received,omitzero"`

	Pod         *v1.Pod                      `json:"pod,omitempty"`
	Node        *v1.Node                     `json:"node,omitempty"`
	Group       *schedulingv1alpha1.PodGroup `json:"group,omitempty"`
	Policy      *v1alpha1.ZoneSpreadPolicy   `json:"policy,omitempty"`
	Reservation *v1alpha1.ZoneReservation    `json:"reservation,omitempty"`
	Lease       *coordinationv1.Lease        `json:"lease,omitempty"`
}

// Request is what a scheduler asked the API server to write.
type Request struct {
	Received    time.Time `json:"received"`
	Answered    time.Time `json:"answered"`
	Writer      string    `json:"writer"`
	Verb        string    `json:"verb"`
	Resource    string    `json:"resource"`
	Subresource string    `json:"subresource,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
	Code        int32     `json:"code"`
	DryRun      bool      `json:"dryRun,omitempty"`
	// UID and Node are those of a binding.
	UID  types.UID `json:"uid,omitempty"`
	Node string    `json:"node,omitempty"`
	// Revision is that of the object in the answer.
	Revision int64 `json:"revision,omitempty"`
	// Holder is the identity in a lease.
	Holder string `json:"holder,omitempty"`
	// KubeSchedulers means that it writes a condition of kube-scheduler's own to a native PodGroup.
	KubeSchedulers bool `json:"kubeSchedulers,omitempty"`
}

// Accepted reports whether the API server did what was asked.
func (r *Request) Accepted() bool { return r.Code >= 200 && r.Code < 300 && !r.DryRun }

// Binds reports whether the request is the bind of a pod.
func (r *Request) Binds() bool { return r.Resource == "pods" && r.Subresource == "binding" }

// Deletes reports whether the request is for the deletion of a pod.
func (r *Request) Deletes() bool {
	return r.Resource == "pods" && (r.Verb == "delete" || r.Subresource == "eviction")
}

// Fault is something that was done to the cluster or to a scheduler.
type Fault struct {
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	// Nodes means that it was done to a node, so that no process has lost what it knew.
	Nodes bool `json:"nodes,omitempty"`
}

// Save writes the record to a file.
func (r *Record) Save(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	zip := gzip.NewWriter(file)
	if err := json.NewEncoder(zip).Encode(r); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return file.Close()
}

// Load reads a record from a file.
func Load(path string) (*Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &Record{}
	if err := json.NewDecoder(zip).Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
