package integration

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/test/build"
)

// TestReserveIsUndone: a pod that was reserved fails later, at each of the points where that can happen.
// While it fails the ledger returns to what it was, and what the pod had taken can be given to another.
func TestReserveIsUndone(t *testing.T) {
	t.Parallel()
	cases := map[string]func(h *hook, fail func(*v1.Pod) *fwk.Status){
		"a later plugin's Reserve": func(h *hook, fail func(*v1.Pod) *fwk.Status) { h.reserve = fail },
		"a rejected Permit":        func(h *hook, fail func(*v1.Pod) *fwk.Status) { h.permit = fail },
		"a failing PreBind":        func(h *hook, fail func(*v1.Pod) *fwk.Status) { h.preBind = fail },
	}
	statuses := map[string]func() *fwk.Status{
		"unschedulable": func() *fwk.Status { return fwk.NewStatus(fwk.Unschedulable, "the test says no") },
		"error":         func() *fwk.Status { return fwk.AsStatus(errors.New("the test says no")) },
	}
	for point, install := range cases {
		for kind, status := range statuses {
			t.Run(point+", "+kind, func(t *testing.T) {
				w := newWorld(t)
				w.addNodes("2", "a1")
				var s *runningScheduler
				var failures atomic.Int32
				h := &hook{}
				install(h, func(pod *v1.Pod) *fwk.Status {
					if pod.Labels["fails"] == "" {
						return nil
					}
					if !s.ledger().IsAssumedPod(pod.UID) {
						return fwk.AsStatus(errors.New("the ledger does not have the pod, so the test shows nothing"))
					}
					failures.Add(1)
					return status()
				})
				s = w.startScheduler(withTestPlugin(hookName, h.factory()))
				w.waitBound(w.create(newPod("before", "500m"))...)
				w.assertInvariants()
				before := s.ledgerAccount()

				failing := w.create(newPod("failing", "1500m", build.Label("fails", "yes")))[0]
				w.waitEvent("Pod", failing.Name, "the test says no")
				require.Positive(t, failures.Load())
				w.eventually("the ledger is as before", func() (bool, string) {
					now := s.ledgerAccount()
					return fmt.Sprint(now) == fmt.Sprint(before), fmt.Sprint(now)
				})
				require.Empty(t, w.pod(failing).Spec.NodeName)

				// What it could not use is there for a pod that needs all of it.
				w.waitBound(w.create(newPod("other", "1500m"))...)
			})
		}
	}
}

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
