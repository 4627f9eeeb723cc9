package lease

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// readInterval is how old what is known of a Lease may be. An elector renews every two seconds by default.
	readInterval = 2 * time.Second
	// readTimeout bounds one read.
	readTimeout = 5 * time.Second
	// defaultDuration is that of a Lease that does not say how long it is held without being renewed, which is
	// kube-scheduler's default.
	defaultDuration = 15 * time.Second
)

// Observer observes the Leases of other schedulers. Make one with NewObserver. Its methods may be called from several
// goroutines; they may take a request, so they are not for scheduling cycles.
type Observer struct {
	leases coordination.LeasesGetter
	clock  clock.PassiveClock

	mu   sync.Mutex // guards seen, and what it points to; it is not held during a request
	seen map[string]*observation
}

// observation is what is known of a Lease.
type observation struct {
	read      time.Time         // when it was last asked for
	renewTime *metav1.MicroTime // as of the last answer
	// until is by when another renewal has to be seen; zero for a Lease that is missing or has no holder.
	until   time.Time
	unknown bool // there is no answer yet, or the last read failed
}

// NewObserver returns an Observer that reads Leases with a client.
func NewObserver(leases coordination.LeasesGetter, c clock.PassiveClock) *Observer {
	return &Observer{leases: leases, clock: c, seen: map[string]*observation{}}
}

// Yields reports whether the scheduler that leads under the Lease own leaves an object alone whose status names another
// Lease. Either is empty if there is none.
func (o *Observer) Yields(ctx context.Context, own, named string) bool {
	return own != "" && named != "" && named != own && o.Renewed(ctx, named)
}

// Renewed reports whether a Lease, as "namespace/name", is renewed, as of two seconds ago at most.
func (o *Observer) Renewed(ctx context.Context, name string) bool {
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.seen[name]
	if known == nil {
		known = &observation{unknown: true}
		o.seen[name] = known
	}
	if known.read.IsZero() || now.Sub(known.read) >= readInterval {
		failedBefore := known.unknown && !known.read.IsZero()
		known.read = now
		o.mu.Unlock()
		latest, err := o.get(ctx, name)
		o.mu.Lock()
		known.update(latest, err, now)
		if err != nil && !failedBefore {
			klog.FromContext(ctx).Error(err, "Cannot read the Lease of another scheduler, so what names it is left to that one",
				"lease", name)
		}
	}
	return known.unknown || known.until.After(now)
}

// state is what a Lease says about its renewal; nil for a Lease that is missing or has no holder.
type state struct {
	renewTime *metav1.MicroTime
	duration  time.Duration
}

func (o *Observer) get(ctx context.Context, name string) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(name, "/")
	latest, err := o.leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case ptr.Deref(latest.Spec.HolderIdentity, "") == "":
		return nil, nil
	}
	duration := defaultDuration
	if seconds := latest.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	return &state{latest.Spec.RenewTime, duration}, nil
}

// update takes in the answer to a read.
func (k *observation) update(latest *state, err error, now time.Time) {
	switch {
	case err != nil:
		k.unknown = true
	case latest == nil:
		k.unknown, k.renewTime, k.until = false, nil, time.Time{}
	case k.until.IsZero() || !latest.renewTime.Equal(k.renewTime):
		k.unknown, k.renewTime, k.until = false, latest.renewTime, now.Add(latest.duration)
	default:
		k.unknown = false
	}
}
