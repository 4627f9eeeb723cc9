package framework

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

// newSpreadCluster makes a cluster without a scheduler, to be one with ZoneSpread.
func newSpreadCluster(t testing.TB, objects ...runtime.Object) *cluster {
	t.Helper()
	return newCluster(t, zoneSpreadOnly, objects...)
}

// addNodes adds nodes with room; the first letter of a name is its zone.
func (c *cluster) addNodes(cpu string, names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.add(newNode(name, name[:1], cpu))
	}
}

// newPod makes a pod of the app web.
func newPod(name, cpu string, edit ...func(*v1.Pod)) *v1.Pod {
	return build.Pod(name, cpu, slices.Insert(edit, 0, build.App("web"))...)
}

// newPods makes n pods of the app web that are alike.
func newPods(n int, name, cpu string, edit ...func(*v1.Pod)) []*v1.Pod {
	return build.Pods(n, name, cpu, slices.Insert(edit, 0, build.App("web"))...)
}

// bound maps the pods of a name that begins so, and that count, to their nodes; all for an empty name.
func (c *cluster) bound(name string) map[string]string {
	on := map[string]string{}
	for _, pod := range c.listPods(name) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			on[pod.Name] = pod.Spec.NodeName
		}
	}
	return on
}

func (c *cluster) byZone(name string) map[string]int {
	counts := map[string]int{}
	for _, node := range c.bound(name) {
		counts[node[:1]]++
	}
	return counts
}

func (c *cluster) waitZones(name string, want map[string]int) {
	c.t.Helper()
	c.eventually(fmt.Sprint(want), func() bool { return maps.Equal(want, c.byZone(name)) })
}

func (c *cluster) waitBound(name string, n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d of %s are bound", n, name), func() bool { return len(c.bound(name)) == n })
}

// newPolicy is policy default/web for the app web.
func newPolicy(edit ...func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, e := range edit {
		e(&p.Spec)
	}
	return p
}

func failover(downAfter, fullAfter time.Duration) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.UnavailableZones.DownAfter, s.UnavailableZones.FullAfter = &metav1.Duration{Duration: downAfter}, &metav1.Duration{Duration: fullAfter}
	}
}

func declaring(names ...string) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		for _, name := range names {
			s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: name})
		}
	}
}

// status returns the policy's status, as the API server has it.
func (c *cluster) status() v1alpha1.ZoneSpreadPolicyStatus {
	p, _ := crdtest.Get(c.policies, newPolicy())
	return p.Status
}

func matching(s *v1alpha1.ZoneSpreadPolicySpec) { s.Replicas = ptr.To(intstr.FromString("Matching")) }

// overZones is a hard constraint over zones for the app web.
func overZones() v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
}
