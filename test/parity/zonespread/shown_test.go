package parity

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestShownConstraintsAreNotCounted: a soft constraint that only shows a policy to autoscalers changes no verdict and
// no score, and leaves the pod its default constraints. The in-tree plugin sees the pod without it.
func TestShownConstraintsAreNotCounted(t *testing.T) {
	shown := spread(1, "zone", selects("foo"), soft)
	graded := 0
	for settingName, options := range map[string]Options{
		"System":      {System: true},
		"List, hard":  {Constraints: []v1.TopologySpreadConstraint{spread(1, "host", nil)}},
		"List, soft":  {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil, soft)}},
		"no defaults": {},
	} {
		for i := range options.Constraints {
			options.Constraints[i].LabelSelector = nil
		}
		options.Objects = defaultObjects()
		for clusterName, cluster := range clusters() {
			pair, _, _ := pairOn(t, cluster, options)
			for podName, plain := range map[string]*v1.Pod{
				"alone":                          incoming("foo"),
				"beside a hard constraint":       incoming("foo", spread(1, "zone", selects("foo"))),
				"beside a soft one over hosts":   incoming("foo", spread(1, "host", selects("foo"), soft)),
				"behind one over another domain": incoming("foo", spread(2, "foo", selects("foo"), soft)),
			} {
				name := settingName + "/" + clusterName + "/" + podName
				mutated := plain.DeepCopy()
				mutated.Annotations = map[string]string{v1alpha1.ShownToAutoscalersAnnotation: shown.TopologyKey}
				mutated.Spec.TopologySpreadConstraints = append(mutated.Spec.TopologySpreadConstraints, shown)
				want := pair.requireSame(t, name, plain, mutated, nil)
				graded += want.graded()
			}
		}
	}
	require.Greater(t, graded, 50)
}
