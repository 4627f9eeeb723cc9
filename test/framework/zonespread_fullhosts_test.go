package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// overHosts is a hard constraint over hosts for the app web.
func overHosts(pod *v1.Pod) {
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	})
}

// withZoneConstraint adds a hard constraint over zones for the app web.
func withZoneConstraint(pod *v1.Pod) {
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, overZones())
}

// TestZoneIsFullByHosts: a zone whose one host has its pod already, by a constraint over hosts, is full for a policy
// over zones. By a constraint over the zones themselves it is not, as that is what the policy would wait for anyway.
func TestZoneIsFullByHosts(t *testing.T) {
	for _, test := range []struct {
		name  string
		edits []func(*v1.Pod)
		want  map[string]int
	}{
		{"over hosts", []func(*v1.Pod){overHosts}, map[string]int{"a": 3, "b": 2, "c": 1}},
		{"over hosts and zones", []func(*v1.Pod){overHosts, withZoneConstraint}, map[string]int{"a": 2, "b": 2, "c": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// Given: zone c has one host, the others have three.
				c := newSpreadCluster(t)
				c.addNodes("64", "a1", "a2", "a3", "b1", "b2", "b3", "c1")
				c.policies.Put(newPolicy(failover(time.Hour, 30*time.Second)))
				c.start()
				// When: six pods want hosts of their own.
				c.createPods(newPods(5, "web", "1", test.edits...)...)
				c.waitBound("web", 5)
				c.createPods(newPod("last", "1", test.edits...))
				c.pass(2 * time.Minute)
				// Then: the last one goes to another zone once zone c is full, if nothing else refuses it.
				require.Equal(t, test.want, sorted(c.byZone("")), fmt.Sprint(c.bound("")))
			})
		})
	}
}
