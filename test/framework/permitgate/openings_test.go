package permitgate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate"
)

// roomForAll is an account of holds that refuses nothing: with it gangs preempt.
type roomForAll struct{}

func (roomForAll) Place(permitgate.Claim, []permitgate.HoldSlot) error { return nil }
func (roomForAll) Move(types.UID, []permitgate.HoldMove) error         { return nil }
func (roomForAll) ReleaseMember(_, _ types.UID) []string               { return nil }
func (roomForAll) Release(types.UID) []string                          { return nil }
func (roomForAll) View() permitgate.HoldsView                          { return nil }
func (roomForAll) Placed(fwk.CycleState, *v1.Pod)                      {}
func (roomForAll) Woken(context.Context)                               {}

// startPreempting starts a scheduler whose gangs preempt, with nodes of four CPUs.
func startPreempting(t *testing.T, nodes int) *cluster {
	t.Helper()
	cpus := make([]int, nodes)
	for i := range cpus {
		cpus[i] = 4
	}
	const args = `{"initialBackoff": "50ms", "maxBackoff": "500ms", "bindRehearsal": "Never"}`
	c := startCluster(t, args, cpus...)
	c.stop() // its gangs do not preempt
	c.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		rehearsal := len(action.(clienttesting.DeleteActionImpl).DeleteOptions.DryRun) > 0
		return rehearsal, nil, nil
	})
	c.start(t, args, permitgate.WithHolds(func() permitgate.Holds { return roomForAll{} }))
	return c
}

// bind creates pods that have a node already.
func (c *cluster) bind(t *testing.T, node string, pods ...*st.PodWrapper) {
	t.Helper()
	for _, p := range pods {
		c.create(t, p.Node(node))
	}
}

// createFirst creates a gang of two of a high priority.
func (c *cluster) createFirst(t *testing.T, change func(p *st.PodWrapper) *st.PodWrapper) []string {
	t.Helper()
	c.groups.set("first", 2)
	c.create(t, change(member("first", "first-0").Priority(100)), change(member("first", "first-1").Priority(100)))
	return []string{"first-0", "first-1"}
}

func (c *cluster) exists(t require.TestingT, name string) bool {
	pods, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range pods.Items {
		if pods.Items[i].Name == name {
			return true
		}
	}
	return false
}

const port = 8080

// away keeps a pod away from gangs, over hosts; what it wants near is what the gangs are labelled with.
func away(p *st.PodWrapper) *st.PodWrapper {
	return p.PodAntiAffinity(v1.LabelHostname, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, st.PodAntiAffinityWithRequiredReq)
}

// TestGangPreemptsWhoClosesNodes: pods of a lower priority go that close nodes to a gang by something else than their room, and nobody else.
func TestGangPreemptsWhoClosesNodes(t *testing.T) {
	plain := func(p *st.PodWrapper) *st.PodWrapper { return p }
	train := func(p *st.PodWrapper) *st.PodWrapper { return p.Label("job", "train") }
	for name, test := range map[string]struct {
		blocker, member func(p *st.PodWrapper) *st.PodWrapper
	}{
		"host ports": {
			func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) },
			func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) },
		},
		"their anti-affinity":      {away, train},
		"the gang's anti-affinity": {train, func(p *st.PodWrapper) *st.PodWrapper { return away(p.Label("job", "train")) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := startPreempting(t, 2)
			for node, i := range map[string]string{"node-0": "0", "node-1": "1"} {
				c.bind(t, node, test.blocker(member("", "blocker-"+i).Priority(1)), plain(member("", "beside-"+i).Priority(1)))
			}
			c.requireBound(t, c.createFirst(t, test.member)...)
			require.True(t, c.exists(t, "beside-0"))
			require.True(t, c.exists(t, "beside-1"))
		})
	}
}

// TestGangPreemptsNobodyWhoClosesNodes: nobody goes when the gang would not be whole for it.
func TestGangPreemptsNobodyWhoClosesNodes(t *testing.T) {
	for name, test := range map[string]struct {
		blocker, member func(p *st.PodWrapper) *st.PodWrapper
	}{
		"host ports": {
			func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) },
			func(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) },
		},
		"their anti-affinity": {away, func(p *st.PodWrapper) *st.PodWrapper { return p.Label("job", "train").HostPort(port) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := startPreempting(t, 2)
			c.bind(t, "node-0", test.blocker(member("", "low").Priority(1)))
			c.bind(t, "node-1", test.blocker(member("", "high").Priority(100)))
			gang := c.createFirst(t, test.member)
			c.recorder.requireEvent(t, "PodGroup first GangRolledBack", "needs 2, plan found ")
			require.Never(t, func() bool { return !c.exists(t, "low") || !c.exists(t, "high") }, 4*aWhile, tick)
			require.Empty(t, c.bound(t, gang...))
			c.delete(t, "high")
			c.requireBound(t, gang...)
			require.False(t, c.exists(t, "low"))
		})
	}
}
