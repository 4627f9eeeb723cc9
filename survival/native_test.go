package survival_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// TestNativeGangsInCertificates: a certificate is true if the members that are lost with a zone find room, all
// together.
func TestNativeGangsInCertificates(t *testing.T) {
	for _, tc := range []struct {
		name    string
		nodes   []string
		want    metav1.ConditionStatus
		waiting int64
	}{
		{"there is room in the other zones", []string{"a", "a", "b", "c"}, metav1.ConditionTrue, 0},
		{"there is room for one of two", []string{"a", "a", "b", "b", "c"}, metav1.ConditionFalse, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			c.NativeGang("train", int32(len(tc.nodes)), "4", tc.nodes...) //nolint:gosec // a few
			status := certify(t, c, protecting("train"), survival.Options{})
			require.Equal(t, tc.want, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSurvives).Status)
			require.Equal(t, "a", status.Losses[0].Zone)
			require.Equal(t, tc.waiting, status.Losses[0].Waiting)
			if tc.waiting > 0 {
				require.Contains(t, status.Losses[0].Witnesses[0].Why, "PodGroup "+clitest.Namespace+"/train")
			}
		})
	}
}

// TestFingerprintOfANativeGang: an annotation of its PodGroup, which no generation counts, changes it.
func TestFingerprintOfANativeGang(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	group := c.NativeGang("native", 1, "1", "a")
	before := survival.Fingerprint(c.Objects())
	group.Annotations = map[string]string{"zonewise.dev/required-topology": v1.LabelTopologyZone}
	require.NotEqual(t, before, survival.Fingerprint(c.Objects()))
}
