package policy

import (
	"cmp"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
)

// Unlimited is the cap of a zone that nothing caps.
const Unlimited = int64(math.MaxInt64)

// Policy is a ZoneSpreadPolicy in the form that decisions are made with. It is immutable: all methods may be
// called from any goroutine. Make one with Compile.
type Policy struct {
	uid        types.UID
	namespace  string
	name       string
	generation int64

	selector       labels.Selector
	matchLabelKeys []string
	topologyKey    string

	declared      []declaredZone
	declaredIndex map[string]int
	defaultWeight int64
	unequal       bool // weights above 0 differ

	maxSkew    int64
	minZones   int64
	perZone    limit
	quorumSafe bool
	soft       bool
	keepSpread bool // when workloads are made smaller

	ignoreAffinity bool
	ignoreTaints   bool

	replicas replicaSource
	gangs    bool // count gangs in place of pods

	downAfter      time.Duration
	fullAfter      time.Duration
	recoveryWindow time.Duration // 0 with Immediate
}

type declaredZone struct {
	name    string
	weight  int64
	maxPods int64 // Unlimited when absent
}

// replicaSource is spec.replicas: a number when it is above 0; neither a number nor matching is Owner.
type replicaSource struct {
	number   int64
	matching bool
}

// Compile reads a policy. Errors mean that the policy cannot be applied (condition Accepted is False, see Rejected):
// podSelector is empty or malformed, which no schema can find. All else is ensured by the schema and the rules of the
// CustomResourceDefinition. In an object that has not passed them, a number below its least value counts as that, and
// an unknown word as the default. Absent fields get the defaults of the CustomResourceDefinition.
func Compile(obj *v1alpha1.ZoneSpreadPolicy) (*Policy, field.ErrorList) {
	spec, path := &obj.Spec, field.NewPath("spec", "podSelector")
	selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(&spec.PodSelector), err.Error())}
	}
	if selector.Empty() {
		return nil, field.ErrorList{field.Required(path, "must not be empty: set matchLabels or matchExpressions")}
	}
	p := &Policy{
		uid:            obj.UID,
		namespace:      obj.Namespace,
		name:           obj.Name,
		generation:     obj.Generation,
		selector:       selector,
		matchLabelKeys: spec.MatchLabelKeys,
		topologyKey:    cmp.Or(spec.TopologyKey, v1alpha1.DefaultTopologyKey),
		declaredIndex:  make(map[string]int, len(spec.Zones)),
		defaultWeight:  atLeast(0, spec.DefaultWeight, 1),
		maxSkew:        max(1, int64(cmp.Or(spec.MaxSkew, v1alpha1.DefaultMaxSkew))),
		minZones:       atLeast(1, spec.MinZones, 0),
		perZone:        parseLimit(spec.MaxPerZone),
		quorumSafe:     spec.QuorumSafe,
		soft:           spec.WhenUnsatisfiable == v1alpha1.ScheduleAnyway,
		keepSpread:     spec.ScaleDownPolicy == v1alpha1.ScaleDownKeepSpread && spec.Unit != v1alpha1.UnitPodGroup,
		ignoreAffinity: spec.NodeAffinityPolicy == v1alpha1.Ignore,
		ignoreTaints:   spec.NodeTaintsPolicy == v1alpha1.Ignore,
		gangs:          spec.Unit == v1alpha1.UnitPodGroup,
		downAfter:      durationOr(spec.UnavailableZones.DownAfter, v1alpha1.DefaultDownAfter),
		fullAfter:      durationOr(spec.UnavailableZones.FullAfter, v1alpha1.DefaultFullAfter),
	}
	p.perZone.down = spec.PercentRounding == v1alpha1.RoundDown
	if spec.MatchLabelKeys == nil {
		p.matchLabelKeys = []string{v1alpha1.DefaultPodTemplateHash, v1alpha1.RolloutsPodTemplateHash}
	}
	if spec.UnavailableZones.Recovery != v1alpha1.RecoveryImmediate {
		p.recoveryWindow = durationOr(spec.UnavailableZones.RecoveryWindow, v1alpha1.DefaultRecoveryWindow)
	}
	if r := spec.Replicas; r != nil && r.Type == intstr.Int {
		p.replicas.number = max(1, int64(r.IntVal))
	} else {
		p.replicas.matching = p.gangs || r != nil && r.StrVal == v1alpha1.ReplicasMatching
	}
	for i := range spec.Zones {
		z := &spec.Zones[i]
		p.declaredIndex[z.Name] = len(p.declared)
		p.declared = append(p.declared,
			declaredZone{name: z.Name, weight: atLeast(0, z.Weight, 1), maxPods: atLeast(1, z.MaxPods, Unlimited)})
	}
	p.unequal = p.hasUnequalWeights()
	return p, nil
}

// hasUnequalWeights reports whether zones that pods may go to differ in weight.
func (p *Policy) hasUnequalWeights() bool {
	weights := map[int64]bool{p.defaultWeight: true}
	for i := range p.declared {
		weights[p.declared[i].weight] = true
	}
	delete(weights, 0)
	return len(weights) > 1
}

// atLeast reads a number that may be left out.
func atLeast(least int64, n *int32, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return max(least, int64(*n))
}

// durationOr reads a duration that may be left out; the default is one of the API package.
func durationOr(d *metav1.Duration, otherwise string) time.Duration {
	if d != nil {
		return d.Duration
	}
	value, err := time.ParseDuration(otherwise)
	if err != nil {
		panic(err)
	}
	return value
}

// UID is the policy object's UID, the key to everything that is kept about it.
func (p *Policy) UID() types.UID { return p.uid }

// Key is "namespace/name", for messages only.
func (p *Policy) Key() string { return p.namespace + "/" + p.name }

// Namespace is the namespace of the policy and of the pods that it selects.
func (p *Policy) Namespace() string { return p.namespace }

// TopologyKey is the node label whose value is a node's zone.
func (p *Policy) TopologyKey() string { return p.topologyKey }

// GroupBy is the pod label whose values name what counts as one, and "" when each pod counts (spec.unit).
func (p *Policy) GroupBy() string {
	if p.gangs {
		return v1alpha1.PodGroupLabel
	}
	return ""
}

// Hard reports whether the policy may refuse nodes: a soft one (ScheduleAnyway) does not.
func (p *Policy) Hard() bool { return !p.soft }

// KeepsSpread reports whether pods are to leave in the order of their DeletionCost (spec.scaleDownPolicy).
func (p *Policy) KeepsSpread() bool { return p.keepSpread }

// HonorsAffinity reports whether nodes that the pod's node selector and required affinity exclude are left out of the
// zones (spec.nodeAffinityPolicy).
func (p *Policy) HonorsAffinity() bool { return !p.ignoreAffinity }

// HonorsTaints reports whether nodes with taints that the pod does not tolerate are left out of the zones
// (spec.nodeTaintsPolicy).
func (p *Policy) HonorsTaints() bool { return !p.ignoreTaints }

// Selects reports whether the policy applies to a pod of its namespace with these labels.
func (p *Policy) Selects(podLabels labels.Set) bool { return p.selector.Matches(podLabels) }

// CountsAs reports whether two versions of a policy select the same pods and count them alike.
func (p *Policy) CountsAs(other *Policy) bool {
	return p.gangs == other.gangs && p.selector.String() == other.selector.String()
}

// Lookup returns a label of which every selected pod has one of the given values, so that policies can be found by
// the labels of a pod; no values when podSelector asks for no such label.
func (p *Policy) Lookup() (key string, values []string) {
	requirements, _ := p.selector.Requirements()
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if found := r.ValuesUnsorted(); values == nil || len(found) < len(values) {
				key, values = r.Key(), found
			}
		}
	}
	return key, values
}

// SelectorFor returns the selector of the pods that count for the skew of an incoming pod with these labels:
// podSelector, and the incoming pod's own values of matchLabelKeys. It selects the incoming pod itself when Selects
// does.
func (p *Policy) SelectorFor(podLabels labels.Set) labels.Selector {
	own := labels.Set{}
	for _, key := range p.matchLabelKeys {
		if value, ok := podLabels[key]; ok {
			own[key] = value
		}
	}
	if len(own) == 0 {
		return p.selector
	}
	return both(p.selector, labels.SelectorFromValidatedSet(own))
}

// Revision returns the part of a pod's labels that matchLabelKeys names, in a form that is equal for two pods
// exactly when they count for each other (given that the policy selects both).
func (p *Policy) Revision(podLabels labels.Set) string {
	revision := ""
	for _, key := range p.matchLabelKeys {
		value, ok := podLabels[key]
		if !ok {
			continue
		}
		if revision != "" {
			revision += ","
		}
		revision += key + "=" + value
	}
	return revision
}

// declares reports whether spec.zones has the zone.
func (p *Policy) declares(zone string) bool {
	_, ok := p.declaredIndex[zone]
	return ok
}

// weightOf returns the weight and the maxPods of a zone, declared or not.
func (p *Policy) weightOf(zone string) (weight, maxPods int64) {
	if i, ok := p.declaredIndex[zone]; ok {
		return p.declared[i].weight, p.declared[i].maxPods
	}
	return p.defaultWeight, Unlimited
}
