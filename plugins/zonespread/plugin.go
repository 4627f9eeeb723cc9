package zonespread

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/policies"
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

// ZoneSpread spreads pods over topology domains. Make one with New.
type ZoneSpread struct {
	lister      fwk.SharedLister
	parallelize fwk.Parallelizer
	features    features
	shared      *sharedIndex
	policies    *policies.Policies

	// What Filter returns copies of.
	tooSkewed, noDomain *fwk.Status

	defaultConstraints []v1.TopologySpreadConstraint
	// systemDefaulted lets nodes that lack one of the default topology keys take part in the spreading
	// over the others.
	systemDefaulted bool
	selectors       *defaultSelectors // nil without default constraints
}

// New builds the plugin for one profile. It is the framework's plugin factory; nil args stand for the
// defaults, and no API server is needed.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	if h.SnapshotSharedLister() == nil {
		return nil, errors.New("plugin " + Name + ": the framework handle has no snapshot lister")
	}
	registerMetrics()
	pl := &ZoneSpread{
		lister:             h.SnapshotSharedLister(),
		parallelize:        h.Parallelizer(),
		features:           currentFeatures(),
		shared:             indexFor(ctx, h),
		tooSkewed:          fwk.NewStatus(fwk.Unschedulable, ErrReasonConstraintsNotMatch),
		noDomain:           fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNodeLabelNotMatch),
		defaultConstraints: args.DefaultConstraints,
	}
	if pl.policies, err = policiesFor(ctx, h); err != nil {
		return nil, err
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
