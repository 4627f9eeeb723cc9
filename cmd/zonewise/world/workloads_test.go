package world

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/cmd/zonewise/clitest"
)

// TestAJobThatHasFailedWantsNoPods: what the command line counts as desired is what the scheduler does.
func TestAJobThatHasFailedWantsNoPods(t *testing.T) {
	c := zones()
	policy := c.Policy("batch", nil)
	job := func(name string, parallelism int32, conditions ...batchv1.JobCondition) {
		c.Jobs = append(c.Jobs, batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: name, UID: types.UID(name)},
			Spec:       batchv1.JobSpec{Parallelism: ptr.To(parallelism), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "batch"}}}},
			Status:     batchv1.JobStatus{Conditions: conditions},
		})
	}
	job("runs", 4)
	job("failed", 10, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue})
	job("goes-on", 3, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionFalse})

	w := New(c.Snapshot, clitest.Now)
	require.Equal(t, policy.Name, w.Policies()[0].Object.Name)
	require.Equal(t, int64(4+3), w.Status(w.Policies()[0], 0).Replicas)
}
