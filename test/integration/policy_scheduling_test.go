package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestPolicyRollout: a cap of 40% with 10 replicas and quorumSafe with 3 stand through a rolling update and a scale-up,
// and block neither.
func TestPolicyRollout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas int32
		most     int
		edit     func(*v1alpha1.ZoneSpreadPolicySpec)
	}{
		"40% of 10": {10, 4, func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.MaxPerZone = ptr.To(intstr.FromString("40%"))
			s.MaxSkew = 10
		}},
		"quorumSafe of 3": {3, 1, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.QuorumSafe = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPolicyWorld(t)
			w.needControllers()
			w.addNodes("100", "a1") // the best by every score
			w.addNodes("16", "b1", "c1")
			w.spreadBy("web", c.edit)
			w.startScheduler()
			web := w.deploy(c.replicas, "100m", surgeOnly(1))
			w.waitBoundCount(int(c.replicas), labelled("web"))
			check := func() {
				t.Helper()
				for zone, n := range w.byZone(labelled("web")) {
					require.LessOrEqual(t, n, c.most, zone)
				}
			}
			check()
			w.rollOut(web)
			check()
			w.scale(2*c.replicas + 1)
			w.waitBoundCount(int(2*c.replicas+1), labelled("web"))
		})
	}
}

// TestPolicyCRDComesLater: without the CustomResourceDefinition pods are placed as before; once it is there, policies
// hold.
func TestPolicyCRDComesLater(t *testing.T) {
	w := newPolicyWorldWithout(t)
	w.uninstallCRD(policyCRD)
	w.addNodes("16", "a1", "b1")
	w.startScheduler()
	w.waitBound(w.create(
		newPod("before-a", "100m", build.Label("app", "web"), build.Selects("kubernetes.io/hostname", "a1")),
		newPod("before-b", "100m", build.Label("app", "web"), build.Selects("kubernetes.io/hostname", "b1")))...)

	w.installCRD(policyCRD)
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(1)) })
	bad := w.spreadBy("bad", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}}
	})
	w.waitStatus(bad, "rejected", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	})
	w.waitStatus(p, "seen", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue)
	})
	w.waitUnschedulable("policy "+w.namespace+"/web", w.create(newPod("after", "100m", build.Label("app", "web")))...)
	w.waitBound(w.create(newPod("other", "100m"))...)
}
