package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
)

// TestNativeGangsAreVictimsAsAWhole, or as far as they do without members: of a guarded gang minCount stay, of a group
// with the disruption mode All all do.
func TestNativeGangsAreVictimsAsAWhole(t *testing.T) {
	all := func(group *schedulingv1beta1.PodGroup) {
		group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	unguarded := func(group *schedulingv1beta1.PodGroup) {
		group.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	}
	for name, tt := range map[string]struct {
		minCount int32
		edits    []func(group *schedulingv1beta1.PodGroup)
		left     []string
		gone     []string
	}{
		"all members are needed":            {3, nil, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"one is not":                        {2, nil, []string{"single"}, nil},
		"it is to be disrupted all at once": {2, []func(*schedulingv1beta1.PodGroup){all}, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"a basic group, all at once":        {1, []func(*schedulingv1beta1.PodGroup){unguarded, all}, []string{"n-0", "n-1", "n-2"}, []string{"single"}},
		"a basic group":                     {1, []func(*schedulingv1beta1.PodGroup){unguarded}, []string{"single"}, nil},
	} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newGangCluster(t, 1, 1, 1, 1, 1)
			c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`))
			require.NoError(t, createNativeGang(t.Context(), c.client, "n", tt.minCount))
			for _, edit := range tt.edits {
				c.editNativeGroup("n", edit)
			}
			for i := range 3 {
				c.bind(fmt.Sprint("node-", i), nativeMember("n", fmt.Sprint("n-", i)).Priority(1))
			}
			single := low("single")
			if len(tt.gone) == 0 {
				single.Priority(2) // the members come first
			}
			c.bind("node-3", single)
			c.quiet()
			c.requireBound(c.createUrgent(2, plain)...) // node-4 is free
			c.requireLeft(tt.left, tt.gone)
		})
	}
	nativeBubble(t, "there is nobody else", func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1)
		c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`))
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 2))
		c.bind("node-0", nativeMember("n", "n-0").Priority(1))
		c.bind("node-1", nativeMember("n", "n-1").Priority(1))
		c.quiet()
		c.requireBound(c.createUrgent(2, plain)...)
		c.soon(func() bool { return !c.exists("n-0") && !c.exists("n-1") })
	})
}
