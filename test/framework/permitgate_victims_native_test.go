package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			c.createPodGroup("n", tt.minCount)
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
			c.requireBound(c.createUrgent(2)...) // node-4 is free
			c.requireLeft(tt.left, tt.gone)
		})
	}
	nativeBubble(t, "there is nobody else", func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1)
		c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`))
		c.createPodGroup("n", 2)
		c.bind("node-0", nativeMember("n", "n-0").Priority(1))
		c.bind("node-1", nativeMember("n", "n-1").Priority(1))
		c.quiet()
		c.requireBound(c.createUrgent(2)...)
		c.soon(func() bool { return !c.exists("n-0") && !c.exists("n-1") })
	})
}

// TestTerminatingMembersAreNoQuorum: kube-scheduler counts members that terminate, and evicted pods for the others, which
// were refused then. They are tried as soon as there are enough.
func TestTerminatingMembersAreNoQuorum(t *testing.T) {
	nativeBubble(t, "", func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1, 1)
		c.start(withArgs(`{"nativeGroups": "Guard", "bindRehearsal": "Never"}`))
		c.createPodGroup("n", 3)
		now := metav1.Time{Time: c.clock.Now()}
		stuck := nativeMember("n", "n-0")
		stuck.DeletionTimestamp, stuck.Finalizers = &now, []string{"example.com/never"}
		c.bind("node-0", stuck)
		c.bind("node-1", nativeMember("n", "n-1"))
		c.bind("node-2", low("low-2").Priority(-1))
		c.bind("node-3", low("low-3").Priority(-1))
		c.quiet()
		c.create(nativeMember("n", "n-2"))
		c.pass(3 * time.Minute)
		c.requireLeft([]string{"low-2", "low-3"}, nil)
		require.Contains(t, c.condition("n-2"), "needs 3 members, 2 exist")
		c.create(nativeMember("n", "n-3"))
		c.pass(5 * time.Second)
		c.requireBound("n-2", "n-3")
	})
}
