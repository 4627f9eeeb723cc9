package framework

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stage is where binds are rehearsed, and what a deletion by the scheduler meets.
type stage struct {
	onDelete func(pod string) error // called before the scheduler deletes a pod, may refuse it; set before the scheduler starts

	mu        sync.Mutex // guards everything below
	answer    func(pod string) error
	rehearsed []string // the pods, each time
}

func (s *stage) rehearse(binding *v1.Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rehearsed = append(s.rehearsed, binding.Name)
	if binding.Target.Kind != "Node" || binding.Target.Name == "" || binding.UID == "" {
		return apierrors.NewBadRequest("not a bind of a pod to a node")
	}
	if s.answer == nil {
		return nil
	}
	return s.answer(binding.Name)
}

// setAnswer decides about rehearsals from now on; nil accepts all.
func (s *stage) setAnswer(f func(pod string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// count returns how often a pod's bind has been rehearsed, or all pods' for "".
func (s *stage) count(pod string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.rehearsed {
		if pod == "" || name == pod {
			n++
		}
	}
	return n
}

// refusing refuses one pod as an admission policy does.
func refusing(pod string) func(string) error {
	return func(name string) error {
		if name != pod {
			return nil
		}
		return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("ValidatingAdmissionPolicy 'no-such-binds' denied request: not on a Friday"))
	}
}

// condition returns the message of a pod's PodScheduled condition.
func (c *cluster) condition(pod string) string {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), pod, metav1.GetOptions{})
	require.NoError(c.t, err)
	for _, condition := range p.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}

// TestRefusedRehearsal: no member is bound, nothing is held, and an event says who refused which bind and why. Room does not
// wake the gang. Only the refused bind is rehearsed again.
func TestRefusedRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Always", "initialBackoff": "4m", "maxBackoff": "4m"}`, 3)
		c.stage.setAnswer(refusing("g-1"))
		names := c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack",
			"member g-1: the API server would not bind the pod to node node-0: pods \"g-1\" is forbidden: ValidatingAdmissionPolicy 'no-such-binds' denied request: not on a Friday")
		c.soon(func() bool { return strings.Contains(c.condition("g-1"), "not on a Friday") })
		require.Empty(t, c.boundAmong(names...))
		c.requireRoomFor(3)
		c.addNode("new", 3)
		c.requireUnbound(names...)
		require.LessOrEqual(t, c.stage.count("g-0"), 1)
		require.LessOrEqual(t, c.stage.count("g-2"), 1)
	})
}

func TestGangGoesOnWhenItsRehearsalsPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Always", "initialBackoff": "300ms"}`, 3)
		c.stage.setAnswer(refusing("g-1"))
		c.refuseBinds(func(pod string) error {
			if c.stage.count(pod) == 0 {
				t.Errorf("%s is bound without a rehearsal", pod)
			}
			return nil
		})
		names := c.createGang("g", 3)
		c.soon(func() bool { return c.stage.count("g-1") >= 2 })
		require.Empty(t, c.boundAmong(names...))
		c.stage.setAnswer(nil)
		c.requireBound(names...)
	})
}

// TestRehearsalWithoutAnswer: what may pass by itself is tried again, but not for ever.
func TestRehearsalWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Always", "initialBackoff": "4m", "maxBackoff": "4m"}`, 3)
		c.stage.setAnswer(func(pod string) error {
			if pod == "g-1" && c.stage.asked(pod) <= 2 || pod == "h-1" {
				return apierrors.NewInternalError(errors.New("failed calling webhook"))
			}
			return nil
		})
		names := c.createGang("g", 3)
		c.requireBound(names...)
		require.Equal(t, 3, c.stage.count("g-1"))
		c.delete(names...)

		names = c.createGang("h", 3)
		c.requireEvent("PodGroup h GangRolledBack", "the API server did not answer whether it would bind the pod to node node-0")
		require.Equal(t, 3, c.stage.count("h-1"))
		c.requireUnbound(names...)
	})
}

// asked is count for use within an answer.
func (s *stage) asked(pod string) (n int) {
	for _, name := range s.rehearsed {
		if name == pod {
			n++
		}
	}
	return n
}

// TestAutomaticRehearsal: binds are rehearsed while somebody may refuse them, and a gang that was refused
// comes back when that changes, without waiting for its backoff.
func TestAutomaticRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		// Until the policies have been read all binds are rehearsed; then none, since nobody may refuse one.
		c.quiet()
		names := c.createGang("first", 3)
		c.requireBound(names...)
		c.delete(names...)
		require.Zero(t, c.stage.count(""))

		_, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "binds"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "binds.example.com", Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
			}}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		c.stage.setAnswer(refusing("third-1"))
		third := []string{"third-0", "third-1", "third-2"}
		c.quiet()
		c.createGang("third", 3)
		c.requireEvent("PodGroup third GangRolledBack", "not on a Friday")
		c.requireUnbound(third...)

		require.NoError(t, c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "binds", metav1.DeleteOptions{}))
		c.requireBound(third...)
	})
}

func TestNoRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 3)
		c.requireBound(c.createGang("g", 3)...)
		require.Zero(t, c.stage.count(""))
	})
}
