package podgroup

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// The annotations of a PodGroup.
const (
	// RequiredTopologyAnnotation is the key of a node label: all members must be on nodes with the same value of it.
	RequiredTopologyAnnotation = "zonewise.dev/required-topology"
	// PreferredTopologyAnnotation is the same, if the nodes with some value can hold the gang.
	PreferredTopologyAnnotation = "zonewise.dev/preferred-topology"
	// ReplacementsAnnotation says what becomes of members that replace those that a running gang has lost:
	// ReplacementsTogether, the default, or ReplacementsOneByOne.
	ReplacementsAnnotation = "zonewise.dev/replacements"
	// DisruptionBudgetAnnotation is BudgetOfMinMember where the controller is to keep a PodDisruptionBudget for the
	// gang.
	DisruptionBudgetAnnotation = "zonewise.dev/disruption-budget"
)

// The values of ReplacementsAnnotation.
const (
	// ReplacementsTogether: as many as the quorum lacks are bound, or none.
	ReplacementsTogether = "Together"
	// ReplacementsOneByOne: each is scheduled like any pod.
	ReplacementsOneByOne = "OneByOne"
)

// BudgetOfMinMember is the only value of DisruptionBudgetAnnotation: minMember members are to stay.
const BudgetOfMinMember = "minMember"

// MaxTimeout is the longest that the framework lets a pod wait in Permit.
const MaxTimeout = 15 * time.Minute

// TimeoutOf returns how long members wait for the quorum, 0 for the scheduler's default, and what is wrong
// with the PodGroup's setting.
func TimeoutOf(group *v1alpha1.PodGroup) (timeout time.Duration, complaint string) {
	seconds := group.Spec.ScheduleTimeoutSeconds
	if seconds == nil {
		return 0, ""
	}
	switch timeout := time.Duration(*seconds) * time.Second; {
	case timeout <= 0:
		return 0, fmt.Sprintf("spec.scheduleTimeoutSeconds is %d, must be at least 1: the scheduler's default is used", *seconds)
	case timeout > MaxTimeout:
		return MaxTimeout, fmt.Sprintf("spec.scheduleTimeoutSeconds is %d, must be at most %d: the maximum is used", *seconds, int(MaxTimeout.Seconds()))
	default:
		return timeout, ""
	}
}

// Topology is the label whose values are the domains for packing a gang; the zero value means no packing.
type Topology struct {
	Key string
	// Required means that the gang waits if no domain can hold it; otherwise it is placed wherever it fits.
	Required bool
}

// TopologyOf returns how to pack the gang of a PodGroup of either API, and what is wrong with the PodGroup's
// annotations.
func TopologyOf(group metav1.Object) (t Topology, complaint string) {
	required, isRequired := group.GetAnnotations()[RequiredTopologyAnnotation]
	preferred, isPreferred := group.GetAnnotations()[PreferredTopologyAnnotation]
	name := RequiredTopologyAnnotation
	switch {
	case isRequired:
		t = Topology{Key: required, Required: true}
	case isPreferred:
		t, name = Topology{Key: preferred}, PreferredTopologyAnnotation
	default:
		return Topology{}, ""
	}
	if errs := content.IsLabelKey(t.Key); len(errs) > 0 {
		return Topology{}, fmt.Sprintf("annotation %s is %q, must be the key of a node label (%s): the gang is not packed", name, t.Key, errs[0])
	}
	if isRequired && isPreferred {
		complaint = fmt.Sprintf("annotations %s and %s are both set: the first is used", RequiredTopologyAnnotation, PreferredTopologyAnnotation)
	}
	return t, complaint
}

// ReplacedOneByOne returns whether the replacements of lost members are scheduled one by one, and what is wrong with
// the PodGroup's annotation.
func ReplacedOneByOne(group metav1.Object) (oneByOne bool, complaint string) {
	switch value, set := group.GetAnnotations()[ReplacementsAnnotation]; {
	case !set || value == ReplacementsTogether:
		return false, ""
	case value == ReplacementsOneByOne:
		return true, ""
	default:
		return false, fmt.Sprintf("annotation %s is %q, must be %s or %s: the first is used", ReplacementsAnnotation, value, ReplacementsTogether, ReplacementsOneByOne)
	}
}
