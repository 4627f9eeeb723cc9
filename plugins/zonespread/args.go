package zonespread

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	pluginargs "zonewise.dev/internal/args"
)

// Defaulting says where the constraints of a pod without any of its own come from.
type Defaulting string

const (
	// SystemDefaulting gives pods the constraints that kube-scheduler itself defaults to: prefer to
	// spread over hosts with a skew of 3 and over zones with a skew of 5.
	SystemDefaulting Defaulting = "System"
	// ListDefaulting gives pods the constraints of ZoneSpreadArgs.DefaultConstraints, which may be none.
	ListDefaulting Defaulting = "List"
)

// ZoneSpreadArgs configure the plugin. They are a superset of PodTopologySpreadArgs: what has a name
// there has the same name, meaning, default and limits here.
type ZoneSpreadArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultConstraints apply to the pods that have no topologySpreadConstraints. They must not have
	// a labelSelector: it is derived for each pod from the Services, ReplicationControllers, ReplicaSets
	// and StatefulSets that it belongs to; a pod that belongs to none gets no constraints. A non-empty
	// list needs defaultingType List.
	DefaultConstraints []v1.TopologySpreadConstraint `json:"defaultConstraints,omitempty"`

	// DefaultingType is System, the default, or List.
	DefaultingType Defaulting `json:"defaultingType,omitempty"`
}

// DeepCopyObject makes the args a runtime.Object, which is how the framework passes them.
func (in *ZoneSpreadArgs) DeepCopyObject() runtime.Object {
	if in == nil {
		return nil
	}
	out := *in
	out.DefaultConstraints = nil
	for i := range in.DefaultConstraints {
		out.DefaultConstraints = append(out.DefaultConstraints, *in.DefaultConstraints[i].DeepCopy())
	}
	return &out
}

// systemDefaultConstraints are those of kube-scheduler, see
// https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#internal-default-constraints.
func systemDefaultConstraints() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{
		{TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 5},
	}
}

// decodeArgs reads, defaults and validates the plugin's args.
func decodeArgs(obj runtime.Object) (*ZoneSpreadArgs, error) {
	args := &ZoneSpreadArgs{}
	if err := pluginargs.Decode(Name, obj, args); err != nil {
		return nil, err
	}
	if args.DefaultingType == "" {
		args.DefaultingType = SystemDefaulting
	}
	if err := pluginargs.Invalid(Name, validateArgs(args)); err != nil {
		return nil, err
	}
	return args, nil
}

// validateArgs checks what PodTopologySpread checks, with its messages.
func validateArgs(args *ZoneSpreadArgs) field.ErrorList {
	var errs field.ErrorList

	typePath := field.NewPath("defaultingType")
	switch {
	case args.DefaultingType != SystemDefaulting && args.DefaultingType != ListDefaulting:
		errs = append(errs, field.NotSupported(typePath, args.DefaultingType, []Defaulting{SystemDefaulting, ListDefaulting}))
	case args.DefaultingType == SystemDefaulting && len(args.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(typePath, args.DefaultingType, "when .defaultConstraints are not empty"))
	}

	type identity struct {
		key    string
		action v1.UnsatisfiableConstraintAction
	}
	seen := sets.New[identity]()
	listPath := field.NewPath("defaultConstraints")
	for i := range args.DefaultConstraints {
		c := &args.DefaultConstraints[i]
		errs = append(errs, validateDefaultConstraint(listPath.Index(i), c)...)
		id := identity{c.TopologyKey, c.WhenUnsatisfiable}
		if seen.Has(id) {
			errs = append(errs, field.Duplicate(listPath.Index(i), fmt.Sprintf("{%v, %v}", id.key, id.action)))
		}
		seen.Insert(id)
	}
	return errs
}

func validateDefaultConstraint(path *field.Path, c *v1.TopologySpreadConstraint) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if keyPath := path.Child("topologyKey"); c.TopologyKey == "" {
		errs = append(errs, field.Required(keyPath, "can not be empty"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, keyPath)...)
	}
	switch actionPath := path.Child("whenUnsatisfiable"); c.WhenUnsatisfiable {
	case v1.DoNotSchedule, v1.ScheduleAnyway:
	case "":
		errs = append(errs, field.Required(actionPath, "can not be empty"))
	default:
		errs = append(errs, field.NotSupported(actionPath, c.WhenUnsatisfiable,
			[]v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}
