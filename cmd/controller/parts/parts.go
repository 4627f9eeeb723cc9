package parts

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
)

// The requests of a part.
var (
	// Look is to do what the cluster and the part's meters ask for; it may be nothing.
	Look = reconcile.Request{NamespacedName: types.NamespacedName{Name: "look"}}
	// Step is to do the next step of work that is under way.
	Step = reconcile.Request{NamespacedName: types.NamespacedName{Name: "step"}}
)

// Soon is after how long the next step follows: at once, after what else is due.
const Soon = time.Nanosecond

// Shared is what the parts have in common.
type Shared struct {
	// Client reads and writes the API server, past all caches.
	Client client.Client
	// Read reads the cluster as it is known. It costs CPU.
	Read func() *snapshot.Snapshot
	// Wake has the part reconcile a request soon.
	Wake func(request reconcile.Request)
	// Sim is how the scheduler runs on copies of the cluster. What belongs to one snapshot is not set.
	Sim sim.Options
	// CPUFraction is how much of a core the process may use, above 0.
	CPUFraction float64
	// MemoryLimit is how many bytes the process may use, 0 or math.MaxInt64 if there is no limit; see TooLarge.
	MemoryLimit int64
}

// AfterStep returns the result of a step of work that is under way: the next step if there is more, or else a look,
// since there may be something to write. err is that of the step.
func (s *Shared) AfterStep(more bool, err error) (reconcile.Result, error) {
	if more {
		return reconcile.Result{RequeueAfter: Soon}, err
	}
	s.Wake(Look)
	return reconcile.Result{}, err
}

// Description says what a part is before it runs.
type Description struct {
	// Name is that of the flag that turns the part on and of its controller, and Help what the flag does.
	Name, Help string
	// MetricPrefix is that of the names of the part's metrics; empty if it has none.
	MetricPrefix string
	// AddFlags adds the flags of the part, and Validate returns an error that names one that is wrong. They are nil if
	// the part has no flags of its own.
	AddFlags func(*pflag.FlagSet)
	Validate func() error
	// New makes the part. If it is a manager.Runnable, too, it runs while this replica leads.
	New func(Shared) reconcile.Reconciler
}
