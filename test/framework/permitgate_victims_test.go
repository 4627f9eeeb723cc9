package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// low returns a pod that any gang may evict.
func low(name string) *st.PodWrapper { return member("", name).Priority(1) }

// TestWhoKeepsMembersOffOtherNodesGoes alone: the others that were taken off its node for a look come back.
func TestWhoKeepsMembersOffOtherNodesGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		c.addZonalNode("large", "a", 16)
		c.addZonalNode("small", "a", 1)
		c.start(withArgs(preempting))
		c.budget("guarded", 0)
		c.bind("large",
			ported(low("holds-the-port")), low("noisy").Label("app", "noisy"), low("beside"), low("guarded").Label("app", "guarded"))
		c.quiet()
		c.groups.set("urgent", 2)
		c.create(
			ported(member("urgent", "urgent-0", 4)).Priority(100),
			member("urgent", "urgent-1").Priority(100).NodeSelector(map[string]string{v1.LabelHostname: "small"}).
				PodAntiAffinity(v1.LabelTopologyZone, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}}, st.PodAntiAffinityWithRequiredReq),
		)
		c.requireBound("urgent-0", "urgent-1")
		c.requireLeft([]string{"beside", "guarded"}, []string{"holds-the-port", "noisy"})
	})
}

// TestNoBudgetIsViolatedForAPreference of the gang to be in one zone.
func TestNoBudgetIsViolatedForAPreference(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		for _, node := range []string{"a-0", "a-1", "b-0", "c-0"} {
			c.addZonalNode(node, node[:1], 1)
		}
		c.start(withArgs(preempting))
		c.budget("guarded", 0)
		for _, node := range []string{"a-0", "a-1"} {
			c.bind(node, low("low-"+node).Label("app", "guarded"))
		}
		for _, node := range []string{"b-0", "c-0"} {
			c.bind(node, low("low-"+node))
		}
		c.quiet()
		c.packed("urgent", 2, podgroup.PreferredTopologyAnnotation)
		names := []string{"urgent-0", "urgent-1"}
		for _, name := range names {
			c.create(member("urgent", name).Priority(100))
		}
		c.requireBound(names...)
		c.requireLeft([]string{"low-a-0", "low-a-1"}, []string{"low-b-0", "low-c-0"})
	})
}

// TestDevicesThatAreTooFew for the gang, of which the search for victims counts those of one member at a time: it evicts pods in vain, but not
// again and again.
func TestDevicesThatAreTooFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 4)
		c.addDevices(1, "", "node-0")
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "1s", "bindRehearsal": "Never"}`))
		c.groups.set("urgent", 2)
		evicted := 0
		refill := func() {
			for i := range 4 {
				if name := fmt.Sprint("low-", i); !c.exists(name) {
					c.bind("node-0", low(name))
					evicted++
				}
			}
		}
		refill()
		evicted = 0
		c.quiet()
		for i := range 2 {
			name := fmt.Sprint("urgent-", i)
			c.addClaim(name)
			pod := member("urgent", name, 2).Priority(100)
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
			c.create(pod)
		}
		for range 300 {
			c.pass(time.Second)
			refill()
		}
		t.Logf("%d evicted in five minutes", evicted)
		require.LessOrEqual(t, evicted, 4)
		require.Empty(t, c.boundAmong("urgent-0", "urgent-1"))
	})
}
