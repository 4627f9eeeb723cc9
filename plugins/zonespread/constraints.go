package zonespread

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
)

// constraint is a topologySpreadConstraint of one pod, parsed.
type constraint struct {
	topologyKey string
	maxSkew     int32
	minDomains  int32
	selector    labels.Selector
	honorTaints bool
	eligibility counts.Eligibility // nil: every node
}

// query asks for the constraint's counts. requiredKeys are those that nodes need to take part at all.
func (c *constraint) query(namespace string, requiredKeys []string) counts.Query {
	return counts.Query{
		Namespace:    namespace,
		Selector:     c.selector,
		TopologyKey:  c.topologyKey,
		RequiredKeys: requiredKeys,
		Eligibility:  c.eligibility,
	}
}

// constraintsOf returns the pod's constraints that have the given action, or the default ones if the
// pod has no constraints of its own.
func (pl *ZoneSpread) constraintsOf(pod *v1.Pod, action v1.UnsatisfiableConstraintAction) ([]constraint, error) {
	kind := "hard"
	if action == v1.ScheduleAnyway {
		kind = "soft"
	}
	if own := pods.SpreadConstraints(pod); len(own) > 0 {
		parsed, err := pl.parse(pod, own, action)
		if err != nil {
			return nil, fmt.Errorf("obtaining pod's %s topology spread constraints: %w", kind, err)
		}
		return parsed, nil
	}
	parsed, err := pl.parse(pod, pl.defaultConstraints, action)
	if err != nil {
		return nil, fmt.Errorf("setting default %s topology spread constraints: %w", kind, err)
	}
	if len(parsed) == 0 {
		return nil, nil
	}
	selector := pl.selectors.selectorFor(pod)
	if selector.Empty() {
		return nil, nil
	}
	for i := range parsed {
		parsed[i].selector = selector
	}
	return parsed, nil
}

// parse picks the constraints with the given action and resolves their defaults, as the API documents
// them: minDomains 1, nodeAffinityPolicy Honor, nodeTaintsPolicy Ignore.
func (pl *ZoneSpread) parse(
	pod *v1.Pod, constraints []v1.TopologySpreadConstraint, action v1.UnsatisfiableConstraintAction,
) ([]constraint, error) {
	var parsed []constraint
	type honors struct{ affinity, taints bool }
	known := map[honors]counts.Eligibility{} // most pods have one kind
	for i := range constraints {
		c := &constraints[i]
		if c.WhenUnsatisfiable != action {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, err
		}
		if pl.features.matchLabelKeys {
			selector = withMatchLabelKeys(selector, c.MatchLabelKeys, pod.Labels)
		}
		honor := honors{
			affinity: ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor,
			taints:   ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyHonor,
		}
		eligibility, ok := known[honor]
		if !ok {
			eligibility = counts.EligibilityOf(pod, honor.affinity, honor.taints, pl.features.comparisonOperators)
			known[honor] = eligibility
		}
		if parsed == nil {
			parsed = make([]constraint, 0, len(constraints)-i)
		}
		parsed = append(parsed, constraint{
			topologyKey: c.TopologyKey,
			maxSkew:     c.MaxSkew,
			minDomains:  ptr.Deref(c.MinDomains, 1),
			selector:    selector,
			honorTaints: honor.taints,
			eligibility: eligibility,
		})
	}
	return parsed, nil
}

// withMatchLabelKeys narrows a selector to the pods that have the incoming pod's values of the keys; keys
// that the pod lacks are ignored (KEP-3243). The API server has usually merged them into the selector
// already, and asking twice for one value changes nothing. A nil label selector selects nothing, with
// or without keys.
func withMatchLabelKeys(selector labels.Selector, keys []string, podLabels map[string]string) labels.Selector {
	values := labels.Set{}
	for _, key := range keys {
		if value, ok := podLabels[key]; ok {
			values[key] = value
		}
	}
	if len(values) == 0 {
		return selector
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return selector
	}
	return labels.SelectorFromSet(values).Add(requirements...)
}

// topologyKeys returns the keys of all constraints.
func topologyKeys(constraints []constraint) []string {
	keys := make([]string, len(constraints))
	for i := range constraints {
		keys[i] = constraints[i].topologyKey
	}
	return keys
}

// hasAllKeys reports whether a node's labels have the topology keys of all constraints.
func hasAllKeys(nodeLabels map[string]string, constraints []constraint) bool {
	for i := range constraints {
		if _, ok := nodeLabels[constraints[i].topologyKey]; !ok {
			return false
		}
	}
	return true
}
