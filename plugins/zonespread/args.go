package zonespread

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	config "k8s.io/kube-scheduler/config/v1"

	pluginargs "zonewise.dev/internal/args"
)

// ZoneSpreadArgs configure the plugin: they are the args of PodTopologySpread.
type ZoneSpreadArgs = config.PodTopologySpreadArgs

const (
	// SystemDefaulting gives pods without constraints those that kube-scheduler itself defaults to: prefer to spread
	// over hosts with a skew of 3 and over zones with a skew of 5.
	SystemDefaulting = config.SystemDefaulting
	// ListDefaulting gives them those of ZoneSpreadArgs.DefaultConstraints, which may be none.
	ListDefaulting = config.ListDefaulting
)

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
		errs = append(errs, field.NotSupported(typePath, args.DefaultingType,
			[]config.PodTopologySpreadConstraintsDefaulting{SystemDefaulting, ListDefaulting}))
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
		errs = append(errs, field.Forbidden(path.Child("labelSelector"),
			"constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}
