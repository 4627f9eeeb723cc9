package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBindIsRefused: the API server's own admission refuses the binding, again and again. Nothing stays
// reserved, and the pod is bound once the policy is gone.
func TestBindIsRefused(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1")
	s := w.startScheduler()
	w.waitBound(w.create(newPod("before", "500m"))...)
	w.assertInvariants()
	before := s.ledgerAccount()

	// The gate keeps the pod out of the scheduler's hands until the policy works.
	refused := newPod("refused", "1500m")
	refused.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "zonewise.test/policy"}}
	w.create(refused)
	lift := w.refuseBindings("refused")
	w.eventually("the policy works", func() (bool, string) {
		err := w.cp.kube.CoreV1().Pods(w.namespace).Bind(w.ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: refused.Name, UID: refused.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: "a1"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && contains(err.Error(), bindingRefused), fmt.Sprint(err)
	})
	w.ungate(refused)

	w.waitEvent("Pod", refused.Name, bindingRefused)
	w.eventually("the ledger is as before", func() (bool, string) {
		now := s.ledgerAccount()
		return fmt.Sprint(now) == fmt.Sprint(before), fmt.Sprint(now)
	})
	require.Empty(t, w.pod(refused).Spec.NodeName)

	lift()
	w.waitBound(refused)
}
