package native

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestConditionsAreNotSentTwice: until the informer shows the version that has them, whoever else has written meanwhile.
func TestConditionsAreNotSentTwice(t *testing.T) {
	e := &entry{group: &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1199"},
		Spec:       schedulingv1beta1.PodGroupSpec{ParentCompositePodGroupName: ptr.To("parent")}, // which is not guarded
	}}
	first := e.wrongConditions(time.Now())
	require.Len(t, first, 1)
	e.patched = e.group.DeepCopy()
	e.patched.ResourceVersion, e.patched.Status.Conditions = "1212", first
	for version, want := range map[string]int{"1199": 0, "1207": 0, "1212": 1, "1215": 1} {
		e.group.ResourceVersion = version
		require.Len(t, e.wrongConditions(time.Now()), want, "version %s, which lacks them", version)
	}
}
