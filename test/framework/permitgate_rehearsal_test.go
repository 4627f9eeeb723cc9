package framework

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// stage is where binds are rehearsed, and what a deletion by the scheduler meets.
type stage struct {
	onDelete func(pod string) error // called before the scheduler deletes a pod, may refuse it; set before the scheduler starts

	mu        sync.Mutex // guards everything below
	answer    func(pod string) error
	rehearsed []string // the pods, each time
}

// askToDelete answers the scheduler's deletions of pods.
func (s *stage) askToDelete(pod string) error {
	if s.onDelete == nil {
		return nil
	}
	return s.onDelete(pod)
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

// refusing refuses the pods of a prefix as an admission policy does.
func refusing(prefix string) func(string) error {
	return func(name string) error {
		if !strings.HasPrefix(name, prefix) {
			return nil
		}
		return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("ValidatingAdmissionPolicy 'no-such-binds' denied request: not on a Friday"))
	}
}

// condition returns the message of a pod's PodScheduled condition.
func (c *cluster) condition(pod string) string { return refusal(c.getPod(pod)) }

// TestRefusedRehearsal: no member is bound, nothing is held, and an event says who refused which bind and why. Room
// does not wake the gang, and the others of the template are not rehearsed.
func TestRefusedRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.stage.setAnswer(refusing("g-"))
		names := c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack", "is forbidden: ValidatingAdmissionPolicy 'no-such-binds' denied request: not on a Friday")
		c.requireConditions("not on a Friday", "g-0")
		require.Empty(t, c.boundAmong(names...))
		c.requireRoomFor(3)
		c.addNode("new", 3)
		c.requireUnbound(names...)
		require.Equal(t, 1, c.stage.count(""))
	})
}

// TestRefusedBindThatBecomesPossible: the gang is whole soon after, with one request for a template.
func TestRefusedBindThatBecomesPossible(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{}`, 3)
		c.stage.setAnswer(refusing("g-"))
		names := c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack", "not on a Friday")
		require.Empty(t, c.boundAmong(names...))
		before := c.stage.count("")
		c.stage.setAnswer(nil)
		require.LessOrEqual(t, c.requireBound(names...), 1500*time.Millisecond)
		require.LessOrEqual(t, c.stage.count(""), before+2, "one may have been refused in between")
	})
}

// TestPolicyForOneMember: by its name. A gang that needs it stays unbound, whichever of its members waits first; one
// that does not need it goes without it, also where there is room for no more than the quorum.
func TestPolicyForOneMember(t *testing.T) {
	type test struct {
		quorum int32
		bound  []string
	}
	inBubbles(t, map[string]test{
		"whom the gang needs":            {3, nil},
		"whom the quorum can do without": {2, []string{"g-1", "g-2"}},
	}, func(t *testing.T, tt test) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "2s"}`, int(tt.quorum))
		c.stage.setAnswer(refusing("g-0"))
		c.groups.set("g", tt.quorum)
		for _, pod := range []string{"g-0", "g-1", "g-2"} {
			c.create(member("g", pod))
		}
		c.pass(30 * time.Second)
		require.ElementsMatch(t, tt.bound, c.boundAmong("g-0", "g-1", "g-2"))
		require.Equal(t, tt.bound != nil, c.stage.count("g-0") < c.stage.count(""))
		require.Positive(t, c.stage.count("g-0"))
	})
}

// TestEachTemplateIsRehearsed: members that ask for different things, or have different controllers, may be treated
// differently. Those that only select different nodes are copies of each other.
func TestEachTemplateIsRehearsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 10, 10)
		c.groups.set("g", 7)
		c.create(owned(member("g", "driver"), "driver"), owned(member("g", "large", 2), "workers"))
		for i := range 3 {
			c.create(owned(member("g", fmt.Sprint("worker-", i)), "workers"))
		}
		for i := range 2 {
			pod := member("g", fmt.Sprint("on-host-", i)).NodeSelector(map[string]string{v1.LabelHostname: fmt.Sprint("node-", i)})
			c.create(owned(pod, "workers"))
		}
		c.requireBound("driver", "large", "worker-0", "worker-1", "worker-2", "on-host-0", "on-host-1")
		require.Equal(t, 1, c.stage.count("driver"))
		require.Equal(t, 1, c.stage.count("large"))
		require.Equal(t, 3, c.stage.count(""))
	})
}

// TestRehearsalWithoutAnswer: what may pass by itself is tried again, but not for ever.
func TestRehearsalWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.stage.setAnswer(func(pod string) error {
			if strings.HasPrefix(pod, "g-") && len(c.stage.rehearsed) <= 2 || strings.HasPrefix(pod, "h-") {
				return apierrors.NewInternalError(errors.New("failed calling webhook"))
			}
			return nil
		})
		names := c.createGang("g", 3)
		c.requireBound(names...)
		require.Equal(t, 3, c.stage.count(""))
		c.delete(names...)

		names = c.createGang("h", 3)
		c.requireEvent("PodGroup h GangRolledBack", "the API server did not answer whether it would bind the pod to node node-0")
		require.Equal(t, 6, c.stage.count(""))
		c.requireUnbound(names...)
	})
}

func TestNoRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 3)
		c.requireBound(c.createGang("g", 3)...)
		require.Zero(t, c.stage.count(""))
	})
}
