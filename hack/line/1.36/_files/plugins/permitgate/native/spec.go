package native

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/execute"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Feature is kube-scheduler's gate for pod groups of the API that this package knows, which 1.36 does not have.
const Feature = "GenericWorkloadV1beta1"

// Mode says what becomes of native gangs.
type Mode string

// The modes.
const (
	Guard  Mode = "Guard"
	Ignore Mode = "Ignore"
)

// Config configures Gangs.
type Config struct {
	Clock clock.WithTicker
	Gang  gang.Config
	execute.Executor
	Pause       func(took time.Duration, refused int) time.Duration
	NeedsNoRoom func(key types.NamespacedName)
}

// Gangs are the native gangs of one scheduler: none.
type Gangs struct{}

// Watch is not called without the gate.
func Watch(context.Context, Config, informers.SharedInformerFactory) (*Gangs, []toolscache.InformerSynced, error) {
	return nil, nil, errors.New("native gangs are guarded from Kubernetes 1.37 on")
}

// Lead does nothing.
func (*Gangs) Lead(context.Context, fwk.Handle) {}

// LoseNode does nothing.
func (*Gangs) LoseNode(string) {}

// Idle returns true.
func (*Gangs) Idle() bool { return true }

// Each calls nothing.
func (*Gangs) Each(func(*gang.Gang)) {}

// Guards returns false.
func (*Gangs) Guards(*v1.Pod) bool { return false }

// Step returns false.
func (*Gangs) Step(*v1.Pod, bool, func(*gang.Gang, *barrier.Barrier, time.Time)) bool { return false }

// PreEnqueue returns nothing.
func (*Gangs) PreEnqueue(*v1.Pod) (reason gang.Reason, detail string) { return "", "" }

// PreFilter returns false, so that what follows is not called.
func (*Gangs) PreFilter(*v1.Pod) bool { return false }

// Request is what a gang asks for at the beginning of a run.
type Request struct {
	Key                 types.NamespacedName
	MinMember, Need     int
	Missing             map[types.UID]*v1.Pod
	Needs               map[types.UID]string
	Refused, Members    map[types.UID]bool
	PlacedOn, LostNodes []string
	Topology            podgroup.Topology
	Tried               map[string]bool
	Again, Running      bool
	Created, ReadySince time.Time
	Preempting, MovesOn bool
}

// Plan is the answer to a Request.
type Plan struct {
	Refusal   gang.Rollback
	Domain    string
	Exhausted bool
}

// Request returns false.
func (*Gangs) Request(*v1.Pod) (r Request, ok bool) { return r, false }

// Planned does nothing.
func (*Gangs) Planned(types.NamespacedName, *Plan) {}

// RoomFreed does nothing.
func (*Gangs) RoomFreed() {}

// Change does nothing.
func (*Gangs) Change(types.NamespacedName, func()) {}

// SendEvent does nothing.
func (*Gangs) SendEvent(context.Context, types.NamespacedName, string, string) {}

// Keeps returns none.
func (*Gangs) Keeps(types.NamespacedName) (atLeast int, bound []*v1.Pod) { return 0, nil }
