package zonespread

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/zonespread/serve"
)

const (
	// Name is the name of the plugin in the registry and in profiles.
	Name = "ZoneSpread"

	// ErrReasonConstraintsNotMatch is the reason of a node on which the pod would exceed a maxSkew. It
	// is PodTopologySpread's, so that events and dashboards that look for it keep working.
	ErrReasonConstraintsNotMatch = "node(s) didn't match pod topology spread constraints"
	// ErrReasonNodeLabelNotMatch is the reason of a node that lacks a constraint's topology key.
	ErrReasonNodeLabelNotMatch = ErrReasonConstraintsNotMatch + " (missing required label)"
)

// Option changes what NewShared makes.
type Option = serve.Option

// WithClock makes the plugin use c instead of the system's clock.
func WithClock(c clock.WithTicker) Option { return serve.WithClock(c) }

// WithPodBackoff has waiting pods tried again after this backoff instead of that which kube-scheduler has published.
func WithPodBackoff(initial, longest time.Duration) Option {
	return serve.WithPodBackoff(initial, longest)
}

// WithSource takes ZoneSpreadPolicies from source instead of from the API server of the framework's handle.
func WithSource(source crd.Source) Option { return serve.WithSource(source) }

// Shared is what the plugins of all profiles of one scheduler share: they see one snapshot, and one set of policies.
type Shared struct {
	index    *sharedIndex
	policies *serve.Policies
}

// NewShared returns the Shared of one scheduler. It starts nothing; New does.
func NewShared(options ...Option) *Shared {
	return &Shared{index: newSharedIndex(), policies: serve.New(options...)}
}

// Idle reports whether the workers have nothing to do until an event comes or the clock moves.
func (s *Shared) Idle() bool { return s.policies.Idle() }

// New builds the plugin for one profile of its own scheduler; all profiles share what can be shared.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	if h.SharedInformerFactory() == nil {
		// Nothing tells which other handles are of the same scheduler.
		return NewShared().New(ctx, obj, h)
	}
	return perscheduler.Get(ctx, h, Name, func() *Shared { return NewShared() }).New(ctx, obj, h)
}

// ZoneSpread spreads pods over topology domains. Make one with New.
type ZoneSpread struct {
	lister      fwk.SharedLister
	parallelize fwk.Parallelizer
	features    features
	shared      *Shared
	leader      *leader.Leader // nil without informers

	// What Filter returns copies of.
	tooSkewed, noDomain *fwk.Status

	defaultConstraints []v1.TopologySpreadConstraint
	// systemDefaulted lets nodes that lack one of the default topology keys count for the spreading over
	// the others.
	systemDefaulted bool
	selectors       *defaultSelectors // nil without default constraints
}

// features are those gates of kube-scheduler that change what PodTopologySpread decides, as they were when the plugin
// was made. NodeInclusionPolicyInPodTopologySpread is not among them: it is locked on.
type features struct {
	matchLabelKeys       bool
	comparisonOperators  bool
	skipDeferredResizing bool
}

// New builds the plugin for one profile. It is the framework's plugin factory. Nil args mean the
// defaults, and no API server is needed.
func (s *Shared) New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	if h.SnapshotSharedLister() == nil {
		return nil, errors.New("plugin " + Name + ": the framework handle has no snapshot lister")
	}
	registerMetrics()
	pl := &ZoneSpread{
		lister:      h.SnapshotSharedLister(),
		parallelize: h.Parallelizer(),
		features: features{
			matchLabelKeys:       feature.Enabled("MatchLabelKeysInPodTopologySpread", true),
			comparisonOperators:  feature.TolerationOperators(),
			skipDeferredResizing: feature.Enabled("InPlacePodVerticalScalingSchedulerPreemption", false),
		},
		shared:             s,
		tooSkewed:          fwk.NewStatus(fwk.Unschedulable, ErrReasonConstraintsNotMatch),
		noDomain:           fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNodeLabelNotMatch),
		defaultConstraints: args.DefaultConstraints,
	}
	if h.SharedInformerFactory() != nil {
		pl.leader = leader.Of(ctx, h)
		if err := s.policies.Join(ctx, h); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
	}
	if args.DefaultingType == SystemDefaulting {
		pl.defaultConstraints = systemDefaultConstraints()
		pl.systemDefaulted = true
	}
	if len(pl.defaultConstraints) > 0 {
		if h.SharedInformerFactory() == nil {
			return nil, errors.New("plugin " + Name + ": default constraints need the framework handle's informers")
		}
		pl.selectors = newDefaultSelectors(h.SharedInformerFactory())
	}
	return pl, nil
}

// Name returns the plugin's name.
func (pl *ZoneSpread) Name() string { return Name }
