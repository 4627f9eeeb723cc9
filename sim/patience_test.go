package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// TestPatience: a run waits for the grace periods of the policy that has the longest ones, but not for those that are
// as good as endless.
func TestPatience(t *testing.T) {
	var objects []client.Object
	for i, u := range []v1alpha1.UnavailableZones{
		{},
		{DownAfter: &metav1.Duration{Duration: time.Hour}, FullAfter: &metav1.Duration{Duration: LongestGrace + 1}},
		{DownAfter: &metav1.Duration{Duration: time.Minute}, FullAfter: &metav1.Duration{Duration: 30 * time.Minute}},
	} {
		name := fmt.Sprintf("policy-%d", i)
		p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": name}
		p.Spec.UnavailableZones = u
		objects = append(objects, p)
	}
	s, err := New(t.Context(), objects, Options{})
	require.NoError(t, err)
	defer s.Close()
	want := 90*time.Minute + flushInterval + time.Second
	require.Equal(t, want, s.patience(nil))
	member := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{schedulingv1alpha1.PodGroupLabel: "gang"}}}
	require.Equal(t, want+gangPatience, s.patience([]*v1.Pod{member}))
}
