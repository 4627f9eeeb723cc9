package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestPodThatTerminatesForEver (its finalizer, a volume that is not unmounted) costs nothing to wait for. But a gang
// does not wait for it for ever.
func TestPodThatTerminatesForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 2, 2)
		now := metav1.Time{Time: c.clock.Now()}
		stuck := member("", "stuck", 2).Priority(1)
		stuck.DeletionTimestamp, stuck.Finalizers = &now, []string{"example.com/never"}
		c.bind("node-0", stuck)
		c.bind("node-1", member("", "low", 2).Priority(1))
		c.quiet()
		gang := c.createUrgent(2, plain)
		c.pass(3 * time.Minute)
		require.Len(t, c.boundAmong(gang...), 2)
	})
}

// TestPreemptionInManyDomains: pods of the gang's priority keep a packed gang off all zones but the last, for a reason
// that the search's arithmetic does not know. It looks at eight zones at a time, at others each time.
func TestPreemptionInManyDomains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const zones = 20
		c := newGangCluster(t)
		c.packed("urgent", 2, podgroup.RequiredTopologyAnnotation)
		for i := range zones {
			for k := range 2 {
				c.addZonalNode(fmt.Sprintf("z%02d-%d", i, k), fmt.Sprintf("z%02d", i), 8)
			}
		}
		c.start(withArgs(`{"bindRehearsal": "Never"}`))
		for i := range zones {
			for k := range 2 {
				p := member("", fmt.Sprintf("noisy-%02d-%d", i, k)).Label("noisy", "true").Priority(100)
				if i == zones-1 {
					p.Priority(1)
				}
				node := fmt.Sprintf("z%02d-%d", i, k)
				c.bind(node, p, member("", "low-"+node).Priority(1))
			}
		}
		c.quiet()
		for i := range 2 {
			c.create(member("urgent", fmt.Sprint("urgent-", i)).Priority(100).PodAntiAffinityExists("noisy", v1.LabelHostname, st.PodAntiAffinityWithRequiredReq))
		}
		c.pass(10 * time.Minute)
		require.Len(t, c.boundAmong("urgent-0", "urgent-1"), 2, refusal(c.getPod("urgent-0")))
	})
}

// TestTouchedPodGroup: a packed gang goes on with its domains when somebody else writes something into its PodGroup now
// and then.
func TestTouchedPodGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const zones = 60
		c := newGangCluster(t)
		for i := range zones {
			zone := fmt.Sprintf("z%d", i)
			c.addZonalNode(zone+"-0", zone, 2+i) // the tightest is tried first
		}
		c.addDevices(2, "", fmt.Sprintf("z%d-0", zones-1)) // only the roomiest has devices
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.start(withArgs(`{"bindRehearsal": "Never", "initialBackoff": "1s", "maxBackoff": "30s"}`))
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(string) *fwk.Status { time.Sleep(10 * time.Millisecond); return nil }
		})
		for i := range 2 {
			name := fmt.Sprint("g-", i)
			c.addClaim(name)
			p := member("g", name)
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
			c.create(p)
		}
		for i := range 6 {
			c.pass(10 * time.Second)
			c.groups.edit("g", func(group *v1alpha1.PodGroup) { group.Annotations["example.com/heartbeat"] = fmt.Sprint(i) })
		}
		require.Len(t, c.boundAmong("g-0", "g-1"), 2)
	})
}
