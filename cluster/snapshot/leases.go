package snapshot

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/message"
)

// SecondScheduler is the name of Zonewise's scheduler, of its profile and of its lease, where it runs beside
// kube-scheduler.
const SecondScheduler = "zonewise-scheduler"

// LeaseResource is how Missing calls the leases.
const LeaseResource = "leases.coordination.k8s.io"

// Lease is the lease of a scheduler that the cluster has, or had.
type Lease struct {
	// Name is that of the lease, which is in kube-system.
	Name string `json:"name"`
	// Renewed is when its holder last renewed it.
	Renewed time.Time `json:"renewed"`
}

// silence is for how long a scheduler may not have renewed its lease. It does so every two seconds; the rest is for
// clocks that differ.
const silence = 5 * time.Minute

// Leads reports whether the holder of a scheduler's lease renews it.
func (s *Snapshot) Leads(name string) bool {
	for _, lease := range s.Leases {
		if lease.Name == name {
			return s.TakenAt.Sub(lease.Renewed) < silence
		}
	}
	return false
}

// Silent returns for how long no scheduler has renewed its lease; 0 if one does, or if none is known.
func (s *Snapshot) Silent() time.Duration {
	var last time.Time
	for _, lease := range s.Leases {
		if lease.Renewed.After(last) {
			last = lease.Renewed
		}
	}
	if since := s.TakenAt.Sub(last); !last.IsZero() && since >= silence {
		return since
	}
	return 0
}

// readLeases reads the leases of kube-scheduler and of the second scheduler. What cannot be read is missing.
func (r *reader) readLeases(ctx context.Context) error {
	for _, name := range []string{"kube-scheduler", SecondScheduler} {
		var lease coordinationv1.Lease
		err := r.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, &lease)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err):
		case err != nil:
			r.addMissing(missingOf(LeaseResource, err))
			return nil
		case lease.Spec.RenewTime != nil:
			r.mu.Lock()
			r.snapshot.Leases = append(r.snapshot.Leases, Lease{Name: name, Renewed: lease.Spec.RenewTime.UTC()})
			r.mu.Unlock()
		}
	}
	return nil
}

// missingOf returns what an error about a kind means for a snapshot.
func missingOf(resource string, err error) Missing {
	lack := Missing{Resource: resource, Reason: string(informer.RefusalOf(err))}
	if lack.Reason == "" {
		lack.Reason, lack.Detail = Unreadable, message.OneLine(err)
	}
	return lack
}
