package permitgate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// budget creates a PodDisruptionBudget for the pods of an app that allows so many disruptions.
func (c *cluster) budget(t *testing.T, app string, allowed int32) {
	t.Helper()
	_, err := c.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.quiet(t)
}

// TestBudgetThatIsUsedUp by the first victim: the second is another pod, if there is one, though of a higher priority.
func TestBudgetThatIsUsedUp(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2, 2)
	c.budget(t, "a", 1)
	c.bind(t, "node-0", member("", "a-1").Label("app", "a").Priority(1), member("", "filler").Priority(1000))
	c.bind(t, "node-1", member("", "a-2").Label("app", "a").Priority(1), member("", "b").Priority(10))
	members := c.createUrgent(t, 2, ported)
	c.requireBound(t, members...)
	c.requireLeft(t, []string{"a-2", "filler"}, []string{"a-1", "b"})
}

// nominatedNode returns the node that a pod is nominated to in the API.
func (c *cluster) nominatedNode(t require.TestingT, name string) string {
	pod, err := c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod.Status.NominatedNodeName
}

// TestPreemptedRoomIsNominatedInTheAPI while the victims are on their way out, where autoscalers see it and a new leader finds it.
func TestPreemptedRoomIsNominatedInTheAPI(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1)
	c.graceful.Store(true)
	c.start(t, preempting)
	c.bind(t, "node-0", member("", "victim-0").Priority(1))
	c.bind(t, "node-1", member("", "victim-1").Priority(1))
	c.quiet(t)
	members := c.createUrgent(t, 2, plain)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		nodes := []string{c.nominatedNode(ct, members[0]), c.nominatedNode(ct, members[1])}
		require.ElementsMatch(ct, []string{"node-0", "node-1"}, nodes)
	}, soon, tick)
	c.stop()
	c.finish(t, "victim-0")
	c.create(t, member("", "late").Priority(1))
	c.start(t, preempting)
	c.requireUnbound(t, "late")
	c.finish(t, "victim-1")
	c.requireBound(t, members...)
	c.requireUnbound(t, "late")
}

// TestNominationsEndWithThePreemption: a gang that is gone keeps no room in the API.
func TestNominationsEndWithThePreemption(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1)
	c.graceful.Store(true)
	c.start(t, preempting)
	c.bind(t, "node-0", member("", "victim-0").Priority(1))
	c.bind(t, "node-1", member("", "victim-1").Priority(1))
	c.quiet(t)
	members := c.createUrgent(t, 2, plain)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.NotEmpty(ct, c.nominatedNode(ct, members[0])) }, soon, tick)
	c.groups.delete("urgent")
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		require.Empty(ct, c.nominatedNode(ct, members[0])+c.nominatedNode(ct, members[1]))
	}, soon, tick)
}

// TestVictimWhoseStatusConflicts: the condition could not be written among other writes. The pod is there, and goes.
func TestVictimWhoseStatusConflicts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if name := action.(clienttesting.PatchAction).GetName(); name == "victim" {
			return true, nil, apierrors.NewConflict(v1.Resource("pods"), name, errors.New("the object has been modified"))
		}
		return false, nil, nil
	})
	c.start(t, preempting)
	c.bind(t, "node-0", member("", "victim", 2).Priority(1))
	c.quiet(t)
	c.requireBound(t, c.createUrgent(t, 2, plain)...)
	c.requireLeft(t, nil, []string{"victim"})
}

// TestPreemptionDelay: a gang gives an autoscaler its time before it preempts, by the profile's setting or by the PodGroup's own.
func TestPreemptionDelay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, annotation string
		delayed          bool
	}{
		"of the profile":                 {`"preemptionDelay": "10m"`, "", true},
		"of the PodGroup":                {`"preemptionDelay": "0s"`, "10m", true},
		"the PodGroup has none":          {`"preemptionDelay": "10m"`, "0s", false},
		"the PodGroup's is not readable": {`"preemptionDelay": "0s"`, "soon", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, `{"initialBackoff": "1s", "maxBackoff": "2s", "bindRehearsal": "Never", `+tt.args+`}`, 2)
			c.bind(t, "node-0", member("", "victim", 2).Priority(1))
			c.quiet(t)
			c.groups.set("urgent", 2)
			if tt.annotation != "" {
				c.groups.annotate("urgent", map[string]string{podgroup.PreemptionDelayAnnotation: tt.annotation})
			}
			members := c.createUrgent(t, 2, plain)
			if tt.delayed {
				c.recorder.requireEvent(t, "PodGroup urgent GangRolledBack", "needs 2")
				c.pass(5 * time.Minute)
				c.quiet(t)
				c.requireLeft(t, []string{"victim"}, nil)
				c.pass(5 * time.Minute)
			}
			c.requireBound(t, members...)
		})
	}
}

// TestGangThatIsGoneIsCheap: when a gang goes for one member, the rest of its room costs nothing more, and no other gang goes.
func TestGangThatIsGoneIsCheap(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 1, 1, 1, 1, 1, 1)
	for i, gang := range []string{"x", "y"} {
		c.groups.set(gang, 3)
		for k := range 3 { // their members lie on every other node
			c.bind(t, fmt.Sprintf("node-%d", 2*k+i), member(gang, fmt.Sprintf("%s-%d", gang, k)).Priority(1))
		}
	}
	c.quiet(t)
	members := c.createUrgent(t, 3, func(p *st.PodWrapper) *st.PodWrapper { return p })
	c.requireBound(t, members...)
	left := 0
	for _, gang := range []string{"x", "y"} {
		for k := range 3 {
			if c.exists(t, fmt.Sprintf("%s-%d", gang, k)) {
				left++
			}
		}
	}
	require.Equal(t, 3, left, "one of the two gangs")
}
