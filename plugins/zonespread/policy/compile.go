package policy

import (
	"cmp"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
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

// The largest numbers that the CustomResourceDefinition admits. They keep every product of the formulas far
// below the range of int64, with any number of pods that a cluster can have.
const (
	maxWeight = 10_000
	maxNumber = 1_000_000
)

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

	maxSkew    int64
	minZones   int64
	perZone    limit
	quorumSafe bool
	soft       bool

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

// Compile reads a policy. Errors name the field and mean that the policy cannot be applied (condition Accepted
// is False, see Rejected); an API server with the project's CustomResourceDefinition lets few of them
// pass, label selectors above all. Absent fields get the defaults of the CustomResourceDefinition.
func Compile(obj *v1alpha1.ZoneSpreadPolicy) (*Policy, field.ErrorList) {
	spec, path := &obj.Spec, field.NewPath("spec")
	var errs mistakes
	p := &Policy{
		uid:            obj.UID,
		namespace:      obj.Namespace,
		name:           obj.Name,
		generation:     obj.Generation,
		selector:       errs.selector(path.Child("podSelector"), &spec.PodSelector),
		matchLabelKeys: spec.MatchLabelKeys,
		topologyKey:    cmp.Or(spec.TopologyKey, v1alpha1.DefaultTopologyKey),
		quorumSafe:     spec.QuorumSafe,
	}
	if spec.MatchLabelKeys == nil {
		p.matchLabelKeys = []string{v1alpha1.DefaultPodTemplateHash}
	}
	if p.topologyKey == v1.LabelHostname {
		errs.invalid(path.Child("topologyKey"), p.topologyKey, "must not be kubernetes.io/hostname: use topologySpreadConstraints to spread over hosts")
	}
	p.compileZones(spec, path, &errs)
	maxSkew := cmp.Or(spec.MaxSkew, v1alpha1.DefaultMaxSkew)
	p.maxSkew = errs.number(path.Child("maxSkew"), &maxSkew, 0, 1, maxNumber)
	if spec.MaxPerZone != nil {
		var err error
		if p.perZone, err = parseLimit(*spec.MaxPerZone); err != nil {
			errs.invalid(path.Child("maxPerZone"), spec.MaxPerZone.String(), err.Error())
		}
	}
	p.perZone.down = choice(&errs, path.Child("percentRounding"), spec.PercentRounding, v1alpha1.RoundUp, v1alpha1.RoundDown)
	p.soft = choice(&errs, path.Child("whenUnsatisfiable"), spec.WhenUnsatisfiable, v1alpha1.DoNotSchedule, v1alpha1.ScheduleAnyway)
	p.gangs = choice(&errs, path.Child("unit"), spec.Unit, v1alpha1.UnitPod, v1alpha1.UnitPodGroup)
	p.ignoreAffinity = choice(&errs, path.Child("nodeAffinityPolicy"), spec.NodeAffinityPolicy, v1alpha1.Honor, v1alpha1.Ignore)
	p.ignoreTaints = choice(&errs, path.Child("nodeTaintsPolicy"), spec.NodeTaintsPolicy, v1alpha1.Honor, v1alpha1.Ignore)
	p.compileReplicas(spec.Replicas, path.Child("replicas"), &errs)
	p.compileUnavailable(&spec.UnavailableZones, path.Child("unavailableZones"), &errs)
	if len(errs) > 0 {
		return nil, field.ErrorList(errs)
	}
	return p, nil
}

func (p *Policy) compileZones(spec *v1alpha1.ZoneSpreadPolicySpec, path *field.Path, errs *mistakes) {
	p.defaultWeight = errs.number(path.Child("defaultWeight"), spec.DefaultWeight, 1, 0, maxWeight)
	p.declaredIndex = make(map[string]int, len(spec.Zones))
	allowed := int64(0)
	for i := range spec.Zones {
		z, zpath := &spec.Zones[i], path.Child("zones").Index(i)
		if z.Name == "" {
			*errs = append(*errs, field.Required(zpath.Child("name"), "the value of the topology key"))
		}
		if p.declares(z.Name) {
			*errs = append(*errs, field.Duplicate(zpath.Child("name"), z.Name))
		}
		zone := declaredZone{
			name:    z.Name,
			weight:  errs.number(zpath.Child("weight"), z.Weight, 1, 0, maxWeight),
			maxPods: errs.number(zpath.Child("maxPods"), z.MaxPods, Unlimited, 1, maxNumber),
		}
		if zone.weight > 0 {
			allowed++
		}
		p.declaredIndex[z.Name] = len(p.declared)
		p.declared = append(p.declared, zone)
	}
	p.minZones = errs.number(path.Child("minZones"), spec.MinZones, 0, 1, maxNumber)
	switch {
	case p.defaultWeight != 0:
	case allowed == 0:
		errs.invalid(path.Child("zones"), len(spec.Zones), "at least one weight must be above 0 when defaultWeight is 0")
	case p.minZones > allowed:
		errs.invalid(path.Child("minZones"), p.minZones, fmt.Sprintf("must not be above the %d zones with a weight above 0 when defaultWeight is 0", allowed))
	}
}

func (p *Policy) compileReplicas(r *intstr.IntOrString, path *field.Path, errs *mistakes) {
	switch {
	case r == nil:
		p.replicas.matching = p.gangs
	case r.Type == intstr.String && r.StrVal == v1alpha1.ReplicasOwner:
		if p.gangs {
			errs.invalid(path, r.String(), "must be Matching or a number when spec.unit is PodGroup: the replicas of workloads are pods, not gangs")
		}
	case r.Type == intstr.String && r.StrVal == v1alpha1.ReplicasMatching:
		p.replicas.matching = true
	case r.Type == intstr.Int && r.IntVal >= 1 && r.IntVal <= maxNumber:
		p.replicas.number = int64(r.IntVal)
	default:
		errs.invalid(path, r.String(), fmt.Sprintf("must be Owner, Matching or a number from 1 to %d", maxNumber))
	}
}

func (p *Policy) compileUnavailable(u *v1alpha1.UnavailableZones, path *field.Path, errs *mistakes) {
	p.downAfter = errs.duration(path.Child("downAfter"), u.DownAfter, v1alpha1.DefaultDownAfter)
	p.fullAfter = errs.duration(path.Child("fullAfter"), u.FullAfter, v1alpha1.DefaultFullAfter)
	if immediate := choice(errs, path.Child("recovery"), u.Recovery, v1alpha1.RecoveryGradual, v1alpha1.RecoveryImmediate); !immediate {
		p.recoveryWindow = errs.duration(path.Child("recoveryWindow"), u.RecoveryWindow, v1alpha1.DefaultRecoveryWindow)
	} else if u.RecoveryWindow != nil {
		*errs = append(*errs, field.Forbidden(path.Child("recoveryWindow"), "may only be set when recovery is Gradual"))
	}
}

// mistakes gathers what is wrong with a spec. Its methods read fields.
type mistakes field.ErrorList

func (m *mistakes) invalid(path *field.Path, value any, detail string) {
	*m = append(*m, field.Invalid(path, value, detail))
}

func (m *mistakes) selector(path *field.Path, s *metav1.LabelSelector) labels.Selector {
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		*m = append(*m, field.Required(path, "must not be empty: set matchLabels or matchExpressions"))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		m.invalid(path, metav1.FormatLabelSelector(s), err.Error())
	}
	return selector
}

// number reads a number that may be left out.
func (m *mistakes) number(path *field.Path, n *int32, otherwise, low, high int64) int64 {
	if n == nil {
		return otherwise
	}
	value := int64(*n)
	if value < low || value > high {
		m.invalid(path, value, fmt.Sprintf("must be from %d to %d", low, high))
	}
	return value
}

// duration reads a duration that may be left out. The default is a constant of the API package.
func (m *mistakes) duration(path *field.Path, d *metav1.Duration, otherwise string) time.Duration {
	if d == nil {
		value, err := time.ParseDuration(otherwise)
		if err != nil {
			panic(err)
		}
		return value
	}
	if d.Duration <= 0 {
		m.invalid(path, d.Duration.String(), "must be above 0")
	}
	return d.Duration
}

// choice reports whether a field has its other value instead of the usual one, which it also has when it is left out.
func choice[T ~string](m *mistakes, path *field.Path, value, usual, other T) bool {
	if value != usual && value != other && value != "" {
		*m = append(*m, field.NotSupported(path, value, []T{usual, other}))
	}
	return value == other
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

// SelectorFor returns the selector of the pods that count for the skew of an incoming pod with these labels: podSelector,
// and the incoming pod's own values of matchLabelKeys. It selects the incoming pod itself when Selects does.
func (p *Policy) SelectorFor(podLabels labels.Set) labels.Selector {
	var own labels.Requirements
	for _, key := range p.matchLabelKeys {
		value, ok := podLabels[key]
		if !ok {
			continue
		}
		r, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			continue // not a label key, so that no pod has it
		}
		own = append(own, *r)
	}
	if len(own) == 0 {
		return p.selector
	}
	return p.selector.Add(own...)
}

// Revision returns the part of a pod's labels that matchLabelKeys names, in a form that is equal for two pods
// exactly when they count for each other (given that the policy selects both).
func (p *Policy) Revision(podLabels labels.Set) string {
	own := labels.Set{}
	for _, key := range p.matchLabelKeys {
		if value, ok := podLabels[key]; ok {
			own[key] = value
		}
	}
	return own.String()
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
