package parity

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"zonewise.dev/plugins/zonespread"
)

// The framework and the scheduler's cache report to metrics that kube-scheduler registers at its start.
func init() { metrics.Register() }

// Plugin is what both plugins implement.
type Plugin interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.EnqueueExtensions
	fwk.SignPlugin
}

// Pair is the two plugins on one snapshot.
type Pair struct {
	InTree, Ours Plugin
	Lister       fwk.SharedLister
}

// Options configure both plugins of a pair alike.
type Options struct {
	// Constraints are the default constraints; with none, pods have no default constraints unless
	// System is set.
	Constraints []v1.TopologySpreadConstraint
	// System asks for the system's default constraints.
	System bool
	// Objects are the services and owners that exist.
	Objects []runtime.Object
}

// NewHandle builds a framework handle on a snapshot, in a cluster of the given services and owners. Pairs on
// one handle are profiles of one scheduler.
func NewHandle(ctx context.Context, lister fwk.SharedLister, objects ...runtime.Object) (fwk.Handle, error) {
	// The one with managed fields makes a map of all kinds with each update, which takes 2 ms and garbage for the
	// collector.
	client := fake.NewSimpleClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithSnapshotSharedLister(lister),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithClientSet(client),
	)
	if err != nil {
		return nil, fmt.Errorf("building a framework handle: %w", err)
	}
	return handle, nil
}

// NewPair builds both plugins on a handle of their own.
func NewPair(ctx context.Context, lister fwk.SharedLister, o Options) (*Pair, error) {
	handle, err := NewHandle(ctx, lister, o.Objects...)
	if err != nil {
		return nil, err
	}
	return NewPairOn(ctx, handle, o)
}

// NewPairOn builds both plugins on a handle, with the features that kube-scheduler would give them, and
// waits for the handle's informers. The options' objects are the handle's.
func NewPairOn(ctx context.Context, handle fwk.Handle, o Options) (*Pair, error) {
	inTreeArgs := &config.PodTopologySpreadArgs{DefaultConstraints: o.Constraints, DefaultingType: config.ListDefaulting}
	ourArgs := &zonespread.ZoneSpreadArgs{DefaultConstraints: o.Constraints, DefaultingType: zonespread.ListDefaulting}
	if o.System {
		inTreeArgs.DefaultingType = config.SystemDefaulting
		ourArgs.DefaultingType = zonespread.SystemDefaulting
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	inTree, err := podtopologyspread.New(ctx, inTreeArgs, handle, features)
	if err != nil {
		return nil, fmt.Errorf("building PodTopologySpread: %w", err)
	}
	ours, err := zonespread.New(ctx, ourArgs, handle)
	if err != nil {
		return nil, fmt.Errorf("building ZoneSpread: %w", err)
	}
	handle.SharedInformerFactory().Start(ctx.Done())
	handle.SharedInformerFactory().WaitForCacheSync(ctx.Done())
	//nolint:forcetypeassert // a plugin that lost an interface must not pass
	return &Pair{InTree: inTree.(Plugin), Ours: ours.(Plugin), Lister: handle.SnapshotSharedLister()}, nil
}
