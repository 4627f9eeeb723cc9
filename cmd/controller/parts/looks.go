package parts

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"zonewise.dev/cluster/snapshot"
)

// Looks are the turns of a part that concludes all from one reading of the cluster, within a budget of CPU. Make them
// with NewLooks. They are not safe for concurrent use.
type Looks struct {
	Meter
	part  string
	kinds []string
}

// NewLooks returns the looks of a part that takes a share of what the process may use. The kinds decide, see Turn.
func (s *Shared) NewLooks(part string, share float64, kinds ...string) Looks {
	return Looks{Meter: s.NewMeter(share), part: part, kinds: kinds}
}

// Turn is that of the part. It calls look with the cluster once the budget allows to read it, and with one of the kinds
// that could not be read, empty if all could: then nothing is to be concluded from what is not there. look returns
// after how long it is to be called again. An error is that of ctx.
func (l *Looks) Turn(
	ctx context.Context, now time.Time, read func() *snapshot.Snapshot,
	look func(ctx context.Context, cluster *snapshot.Snapshot, unread string) time.Duration,
) (next time.Duration, err error) {
	if wait := l.TryBegin(now); wait > 0 {
		return wait, nil
	}
	defer l.End()
	cluster := read()
	unread := cluster.Unread(l.kinds...)
	if unread != "" {
		klog.FromContext(ctx).V(2).Info(
			"All stays as it is: a resource cannot be read", "part", l.part, "resource", unread,
		)
	}
	return look(ctx, cluster, unread), ctx.Err()
}
