package parts

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cluster/snapshot"
)

// Looks are the looks of a part that concludes all from one reading of the cluster, within a budget of CPU. Make them
// with NewLooks. They are not safe for concurrent use.
type Looks struct {
	Meter
	kinds []string
}

// NewLooks returns the looks of a part that takes a share of what the process may use. The kinds decide, see Reconcile.
func (s *Shared) NewLooks(share float64, kinds ...string) Looks {
	return Looks{Meter: s.NewMeter(share), kinds: kinds}
}

// Reconcile is that of the part. It calls look with the cluster once the budget allows to read it, and with one of the
// kinds that could not be read, empty if all could: then nothing is to be concluded from what is not there. look
// returns after how long it is to be called again.
func (l *Looks) Reconcile(
	ctx context.Context, now time.Time, read func() *snapshot.Snapshot,
	look func(ctx context.Context, cluster *snapshot.Snapshot, unread string) time.Duration,
) (reconcile.Result, error) {
	if wait := l.TryBegin(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	defer l.End()
	cluster := read()
	unread := cluster.Unread(l.kinds...)
	if unread != "" {
		klog.FromContext(ctx).V(2).Info("All stays as it is: a resource cannot be read", "resource", unread)
	}
	return reconcile.Result{RequeueAfter: look(ctx, cluster, unread)}, nil
}
