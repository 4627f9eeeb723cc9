package integration

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/admission"
)

// refuseBindingOf makes the API server refuse to bind one pod of the test's namespace, and waits until it does; a CEL
// expression says which requests are let through all the same.
func (w *world) refuseBindingOf(pod, except string) (lift func()) {
	w.t.Helper()
	const probe = "no-such-pod" // admission comes before the pod is looked for
	lift = admission.Refuse(w.t, w.cp.client, w.namespace, admissionv1.Create, "pods/binding", admissionv1.Validation{
		Expression: fmt.Sprintf("%s || !(request.name in ['%s', '%s'])", except, pod, probe), Message: bindingRefused,
	})
	w.eventually("the policy is in force", func() (bool, string) {
		err := w.cp.kube.CoreV1().Pods(w.namespace).Bind(w.ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: probe}, Target: v1.ObjectReference{Kind: "Node", Name: "a1"},
		}, metav1.CreateOptions{})
		return err != nil && contains(err.Error(), bindingRefused), fmt.Sprint(err)
	})
	return lift
}

// TestPolicyForOnePod: an admission policy refuses the bind of one member, by its name. A rehearsal of its template
// finds that out: no member is bound. A policy that lets dry runs pass is only found by the bind itself: the others
// stay bound, the member keeps its node. Either way the gang is whole once the policy is gone.
func TestPolicyForOnePod(t *testing.T) {
	for name, tt := range map[string]struct {
		except string
		known  bool // to a dry run
	}{
		"that a dry run knows":         {"false", true},
		"that a dry run does not know": {"request.dryRun", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("4", "a1", "b1")
			w.startScheduler(withGateArgs(`{"initialBackoff": "1s", "maxBackoff": "2s"}`))
			// The leader is the only one of its template.
			pods := append(newPods(4, "worker", "1", build.Member("train")), newPod("leader", "500m", build.Member("train")))
			lift := w.refuseBindingOf("leader", tt.except)
			w.createGroup("train", int32(len(pods)))
			gang := w.create(pods...)
			workers, leader := gang[:4], gang[4]
			if tt.known {
				w.waitEvent("PodGroup", "train", "GangRolledBack")
				w.waitEvent("PodGroup", "train", bindingRefused)
				w.requirePending(gang...)
			} else {
				w.waitBound(workers...)
				w.requirePending(leader)
				w.eventually("the leader keeps its node", func() (bool, string) {
					node := w.pod(leader).Status.NominatedNodeName
					return slices.Contains([]string{"a1", "b1"}, node), node
				})
			}
			lift()
			w.waitBound(gang...)
		})
	}
}
