package permitgate

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

const preempting = `{"initialBackoff": "4m", "maxBackoff": "4m", "bindRehearsal": "Never"}`

// bind creates pods that have a node already.
func (c *cluster) bind(t *testing.T, node string, pods ...*st.PodWrapper) {
	t.Helper()
	for _, p := range pods {
		c.create(t, p.Node(node))
	}
}

// createUrgent creates a gang of a high priority, and returns its members.
func (c *cluster) createUrgent(t *testing.T, size int, change func(p *st.PodWrapper) *st.PodWrapper) []string {
	t.Helper()
	c.groups.set("urgent", int32(size))
	names := make([]string, size)
	for i := range names {
		names[i] = fmt.Sprintf("urgent-%d", i)
		c.create(t, change(member("urgent", names[i]).Priority(100)))
	}
	return names
}

func plain(p *st.PodWrapper) *st.PodWrapper { return p }

// requireLeft makes sure that of some pods those are left when the gang is bound.
func (c *cluster) requireLeft(t *testing.T, left, gone []string) {
	t.Helper()
	for _, name := range left {
		require.True(t, c.exists(t, name), name)
	}
	for _, name := range gone {
		require.False(t, c.exists(t, name), name)
	}
}

const port = 8080

// away keeps a pod away from what the gang is labelled with, over hosts.
func away(p *st.PodWrapper) *st.PodWrapper {
	return p.PodAntiAffinity(v1.LabelHostname, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, st.PodAntiAffinityWithRequiredReq)
}

func train(p *st.PodWrapper) *st.PodWrapper { return p.Label("job", "train") }

// four asks for four CPUs.
func four(p *st.PodWrapper) *st.PodWrapper {
	p.Spec.Containers = nil
	return p.Req(map[v1.ResourceName]string{"cpu": "4"})
}

func ported(p *st.PodWrapper) *st.PodWrapper { return p.HostPort(port) }

// TestGangPreempts: whichever pods of a lower priority are in the way go, the fewest and lowest, and no others. No other plugin is
// needed for it.
func TestGangPreempts(t *testing.T) {
	low := func(name string, cpu ...int) *st.PodWrapper { return member("", name, cpu...).Priority(1) }
	for name, tt := range map[string]struct {
		cpus       []int
		bound      func(t *testing.T, c *cluster)
		size       int
		change     func(p *st.PodWrapper) *st.PodWrapper
		left, gone []string
	}{
		"the lowest": {
			[]int{2, 2}, func(t *testing.T, c *cluster) {
				c.bind(t, "node-0", low("low-0"), member("", "lowest-0").Priority(-5))
				c.bind(t, "node-1", low("low-1"), member("", "lowest-1").Priority(-5))
			}, 2, plain, []string{"low-0", "low-1"}, []string{"lowest-0", "lowest-1"},
		},
		"the fewest": {
			[]int{4, 4}, func(t *testing.T, c *cluster) {
				c.bind(t, "node-0", low("small-0"), low("small-1"), low("small-2"), low("small-3"))
				c.bind(t, "node-1", low("large", 4))
			}, 4, plain, []string{"small-0", "small-1", "small-2", "small-3"}, []string{"large"},
		},
		"none of the same priority": {
			[]int{2, 2}, func(t *testing.T, c *cluster) {
				c.bind(t, "node-0", member("", "same", 1).Priority(100), low("low-0"))
				c.bind(t, "node-1", low("low-1"))
			}, 3, plain, []string{"same"}, []string{"low-0", "low-1"},
		},
		"beside what is free": {
			[]int{4, 2}, func(t *testing.T, c *cluster) {
				c.bind(t, "node-0", low("low-0"))
				c.bind(t, "node-1", low("low-1", 2))
			}, 4, plain, []string{"low-1"}, []string{"low-0"},
		},
		"what violates no budget": {
			[]int{1, 1}, func(t *testing.T, c *cluster) {
				c.bind(t, "node-0", low("guarded").Label("app", "guarded"))
				c.bind(t, "node-1", low("free"))
				_, err := c.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guard"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
					},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				c.quiet(t)
			}, 1, func(p *st.PodWrapper) *st.PodWrapper { return p.Label("x", "y") }, []string{"guarded"}, []string{"free"},
		},
		"a spare member of another gang": {
			[]int{4}, func(t *testing.T, c *cluster) {
				c.groups.set("other", 3)
				for i := range 4 {
					c.bind(t, "node-0", member("other", fmt.Sprintf("other-%d", i)).Priority(1))
				}
			}, 1, plain, nil, nil,
		},
		"a gang as a whole": {
			[]int{2, 2}, func(t *testing.T, c *cluster) {
				c.groups.set("other", 2)
				c.bind(t, "node-0", member("other", "other-0").Priority(1), low("low-0"))
				c.bind(t, "node-1", member("other", "other-1").Priority(1), low("low-1"))
			}, 4, plain, nil, []string{"other-0", "other-1", "low-0", "low-1"},
		},
		"rather single pods than a gang": {
			[]int{2, 2}, func(t *testing.T, c *cluster) {
				c.groups.set("other", 2)
				c.bind(t, "node-0", member("other", "other-0").Priority(1), low("low-0"))
				c.bind(t, "node-1", member("other", "other-1").Priority(1), low("low-1"))
			}, 2, plain, []string{"other-0", "other-1"}, []string{"low-0", "low-1"},
		},
		"who closes nodes by host ports": {
			[]int{4, 4}, func(t *testing.T, c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind(t, "node-"+i, ported(low("blocker-"+i)), low("beside-"+i))
				}
			}, 2, ported, []string{"beside-0", "beside-1"}, []string{"blocker-0", "blocker-1"},
		},
		"who closes nodes by anti-affinity": {
			[]int{4, 4}, func(t *testing.T, c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind(t, "node-"+i, away(low("blocker-"+i)), member("", "beside-"+i, 2).Priority(2))
				}
			}, 4, train, []string{"beside-0", "beside-1"}, []string{"blocker-0", "blocker-1"},
		},
		"whom its own anti-affinity refuses": {
			[]int{4, 4}, func(t *testing.T, c *cluster) {
				for _, i := range []string{"0", "1"} {
					c.bind(t, "node-"+i, train(low("blocker-"+i)), low("beside-"+i))
				}
			}, 2, func(p *st.PodWrapper) *st.PodWrapper { return away(train(p)) }, []string{"beside-0", "beside-1"}, []string{"blocker-0", "blocker-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, preempting, tt.cpus...)
			tt.bound(t, c)
			c.quiet(t)
			if tt.size == 1 { // a gang of one preempts as any pod does
				tt.size = 2
				c.addNode(t, "extra", 1)
			}
			c.requireBound(t, c.createUrgent(t, tt.size, tt.change)...)
			c.requireLeft(t, tt.left, tt.gone)
		})
	}
}

// TestGangPreemptsNone: none goes when the gang would not be whole for it, or must not preempt.
func TestGangPreemptsNone(t *testing.T) {
	low := func(name string, cpu ...int) *st.PodWrapper { return member("", name, cpu...).Priority(1) }
	for name, tt := range map[string]struct {
		low, high func(p *st.PodWrapper) *st.PodWrapper
		member    func(p *st.PodWrapper) *st.PodWrapper
		opens     bool // for the gang when the high one has gone
	}{
		"room":          {func(p *st.PodWrapper) *st.PodWrapper { return p }, plain, four, true},
		"host ports":    {ported, ported, ported, true},
		"anti-affinity": {away, away, func(p *st.PodWrapper) *st.PodWrapper { return train(ported(p)) }, true},
		"preemptionPolicy Never": {plain, plain, func(p *st.PodWrapper) *st.PodWrapper {
			return four(p).PreemptionPolicy(v1.PreemptNever)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, preempting, 4, 4)
			c.bind(t, "node-0", tt.low(low("low")))
			c.bind(t, "node-1", tt.high(member("", "high").Priority(100)))
			c.quiet(t)
			gang := c.createUrgent(t, 2, tt.member)
			c.requireUnbound(t, gang...)
			c.requireLeft(t, []string{"low", "high"}, nil)
			c.delete(t, "high")
			if !tt.opens {
				c.requireUnbound(t, gang...)
				c.requireLeft(t, []string{"low"}, nil)
				return
			}
			c.requireBound(t, gang...)
			c.requireLeft(t, nil, []string{"low"})
		})
	}
}

// TestVictimThatMayNotBeDeleted: the API server is asked for all victims before any of them goes, and the gang looks for others.
func TestVictimThatMayNotBeDeleted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 1, 1, 1)
	c.stage.onDelete = func(name string) error {
		if name == "protected" {
			return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("a webhook says no"))
		}
		return nil
	}
	c.bind(t, "node-0", member("", "protected").Priority(-9))
	c.bind(t, "node-1", member("", "low-1").Priority(1))
	c.bind(t, "node-2", member("", "low-2").Priority(1))
	c.quiet(t)
	gang := c.createUrgent(t, 2, plain)
	c.requireBound(t, gang...)
	c.requireLeft(t, []string{"protected"}, []string{"low-1", "low-2"})
	c.recorder.requireEvent(t, "PodGroup urgent GangPreemptionFailed", "pod default/protected could not be evicted")
}

// TestPodsThatLeaveAnyway are waited for, and no others are evicted. Meanwhile nothing takes their room.
func TestPodsThatLeaveAnyway(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2, 2)
	now := metav1.Time{Time: c.clock.Now()}
	leaving := func(name string) *st.PodWrapper {
		p := member("", name, 2).Priority(500)
		p.DeletionTimestamp, p.Finalizers = &now, []string{"example.com/slow"}
		return p
	}
	c.bind(t, "node-0", leaving("leaving"))
	c.bind(t, "node-1", member("", "low", 2).Priority(1))
	c.quiet(t)
	gang := c.createUrgent(t, 2, plain)
	c.requireUnbound(t, gang...)
	c.requireLeft(t, []string{"low", "leaving"}, nil)
	require.Equal(t, 2, c.booked("node-0"))
	c.create(t, member("", "late", 2))
	c.finish(t, "leaving")
	c.requireBound(t, gang...)
	c.requireLeft(t, []string{"low"}, nil)
	c.requireUnbound(t, "late")
}

// preemptTwo has a gang of two preempt node-0, of four CPUs: it waits for its victims, small and large.
func (c *cluster) preemptTwo(t *testing.T) {
	t.Helper()
	c.graceful.Store(true)
	for name, cpu := range map[string]int{"small": 1, "large": 3} {
		c.bind(t, "node-0", member("", name, cpu).Priority(1).TerminationGracePeriodSeconds(3600))
	}
	c.quiet(t)
	c.groups.set("urgent", 2)
	c.create(t, member("urgent", "urgent-0", 3).Priority(100), member("urgent", "urgent-1", 1).Priority(100))
	require.Eventually(t, func() bool { return len(c.leaving(t, "small", "large")) == 2 }, soon, tick)
	c.quiet(t)
	c.requireBooked(t, "node-0", 2)
}

// TestPreemptedRoomIsKeptFromCycleToCycle: a member that is looked at again while victims end loses its nomination, as any pod that is
// refused, but not its room.
func TestPreemptedRoomIsKeptFromCycleToCycle(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	var refused atomic.Int64 // members
	c.onFailure = func(pod string) {
		if strings.HasPrefix(pod, "urgent-") {
			refused.Add(1)
		}
	}
	c.start(t, `{"initialBackoff": "10s", "maxBackoff": "10s", "bindRehearsal": "Never"}`)
	c.preemptTwo(t)
	before := refused.Load()
	c.pass(10 * time.Second)
	require.Eventually(t, func() bool { return refused.Load() > before }, soon, tick)
	c.quiet(t)
	c.finish(t, "large")
	c.create(t, member("", "late", 2))
	c.requireUnbound(t, "late", "urgent-0", "urgent-1")
	c.finish(t, "small")
	c.requireBound(t, "urgent-0", "urgent-1")
	c.requireUnbound(t, "late")
}

// TestPreemptedRoomIsKeptAfterARollback: the gang preempts when a member fits nowhere, while another still has a node. When that one
// loses it, it is in no queue for a moment, and a nomination keeps nothing.
func TestPreemptedRoomIsKeptAfterARollback(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, 4)
	failed, handled, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	c.onFailure = func(pod string) {
		if pod == "urgent-0" {
			once.Do(func() {
				c.freeze() // however long the test takes, it is a moment
				close(failed)
				<-handled
			})
		}
	}
	c.start(t, preempting)
	c.graceful.Store(true)
	c.bind(t, "node-1", ported(member("", "blocker")).Priority(1).TerminationGracePeriodSeconds(3600))
	c.quiet(t)
	c.groups.set("urgent", 2)
	for _, name := range []string{"urgent-0", "urgent-1"} {
		c.create(t, ported(member("urgent", name, 3)).Priority(100))
	}
	<-failed
	c.recorder.requireEvent(t, "PodGroup urgent GangPreempts", "the gang preempts 1 pods")
	c.create(t, member("", "late", 3))
	require.Eventually(t, func() bool { return c.condition(t, "late") != "" || len(c.bound(t, "late")) > 0 }, soon, tick)
	require.Empty(t, c.bound(t, "late"))
	c.frozen.Store(false)
	close(handled)
	c.requireUnbound(t, "urgent-0", "urgent-1")
	c.finish(t, "blocker")
	c.requireBound(t, "urgent-0", "urgent-1")
	c.requireUnbound(t, "late")
}

// TestPreemptedRoomIsKeptWhenANominationEnds: kube-scheduler drops what is kept for a pod when the API no longer has a nomination of it.
func TestPreemptedRoomIsKeptWhenANominationEnds(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2)
	c.graceful.Store(true)
	c.bind(t, "node-0", member("", "low", 2).Priority(1).TerminationGracePeriodSeconds(3600))
	c.quiet(t)
	gang := c.createUrgent(t, 2, plain)
	c.requireUnbound(t, gang...)
	c.pass(10 * time.Second)
	require.Equal(t, 2, c.booked("node-0"))
	for _, node := range []string{"node-0", ""} {
		pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), "urgent-1", metav1.GetOptions{})
		require.NoError(t, err)
		pod.Status.NominatedNodeName = node
		_, err = c.client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.quiet(t)
	}
	require.Equal(t, 2, c.booked("node-0"))
}

// TestVictimsThatDoNotGo: the gang gives their room up after a time that grows with their number.
func TestVictimsThatDoNotGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2, 2)
	c.graceful.Store(true)
	c.bind(t, "node-0", member("", "low-0", 2).Priority(1).TerminationGracePeriodSeconds(30))
	c.bind(t, "node-1", member("", "low-1", 2).Priority(1).TerminationGracePeriodSeconds(30))
	c.quiet(t)
	gang := c.createUrgent(t, 4, plain)
	c.requireUnbound(t, gang...)
	require.Equal(t, 2, c.booked("node-0"))
	c.pass(80 * time.Second)
	c.quiet(t)
	require.Zero(t, c.recorder.count("PodGroup urgent GangPreemptionFailed", ""))
	c.pass(20 * time.Second)
	c.recorder.requireEvent(t, "PodGroup urgent GangPreemptionFailed", "2 victims had not left their nodes in time")
	c.finish(t, "low-0", "low-1")
	c.requireBound(t, gang...)
}

// TestVictimThatStaysIsNotCountedOn: while it is there no other pod is evicted for a room that would be complete without it.
func TestVictimThatStaysIsNotCountedOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, `{"initialBackoff": "1m", "maxBackoff": "1m", "bindRehearsal": "Never"}`, 2)
	c.graceful.Store(true)
	c.bind(t, "node-0", member("", "stays", 1).Priority(1).TerminationGracePeriodSeconds(30), member("", "goes", 1).Priority(1).TerminationGracePeriodSeconds(30))
	c.quiet(t)
	gang := c.createUrgent(t, 2, plain)
	c.requireUnbound(t, gang...)
	c.quiet(t)
	c.finish(t, "goes")
	c.quiet(t)
	c.pass(100 * time.Second)
	c.recorder.requireEvent(t, "PodGroup urgent GangPreemptionFailed", "1 victims had not left their nodes in time")
	c.create(t, member("", "other").Priority(1))
	c.requireBound(t, "other")
	c.pass(2 * time.Minute)
	c.quiet(t)
	other, err := c.client.CoreV1().Pods("default").Get(t.Context(), "other", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, other.DeletionTimestamp)

	c.finish(t, "stays")
	c.pass(2 * time.Minute)
	require.Eventually(t, func() bool { return len(c.leaving(t, "other")) == 1 }, soon, tick, "now it would make room")
	c.finish(t, "other")
	c.requireBound(t, gang...)
}

// TestPodsOfDaemonSetsStay: they would come back. What only claims to be one goes.
func TestPodsOfDaemonSetsStay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2, 2)
	agent := func(name, node, apiVersion string) *st.PodWrapper {
		p := member("", name).Priority(-9).NodeAffinityIn(metav1.ObjectNameField, []string{node}, st.NodeSelectorTypeMatchFields)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: ptr.To(true)}}
		return p
	}
	c.bind(t, "node-0", agent("agent-0", "node-0", "apps/v1"), member("", "low-0").Priority(1))
	c.bind(t, "node-1", agent("claims", "node-1", "example.com/v1"), member("", "low-1").Priority(1))
	c.quiet(t)
	c.requireBound(t, c.createUrgent(t, 3, plain)...)
	c.requireLeft(t, []string{"agent-0"}, []string{"claims", "low-0", "low-1"})
}

// TestPreemptionThatIsOvertaken: room appears elsewhere, and the gang takes it.
func TestPreemptionThatIsOvertaken(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2)
	c.graceful.Store(true)
	c.bind(t, "node-0", member("", "low", 2).Priority(1))
	c.quiet(t)
	gang := c.createUrgent(t, 2, plain)
	c.requireUnbound(t, gang...)
	c.delete(t, "urgent-1")
	c.finish(t, "urgent-1")
	c.requireUnbound(t, "urgent-0")
	require.Eventually(t, func() bool { return c.booked("node-0") == 0 }, soon, tick, "what is given up holds nothing")
}

// TestPodsThatWaitBesideNominations are tried again when a gang gives up what was kept for it, which is no event for them.
func TestPodsThatWaitBesideNominations(t *testing.T) {
	t.Parallel()
	c := startCluster(t, preempting, 2, 2)
	c.graceful.Store(true)
	c.bind(t, "node-0", member("", "low-0", 2).Priority(1))
	c.bind(t, "node-1", member("", "low-1", 2).Priority(1))
	c.quiet(t)
	gang := c.createUrgent(t, 4, plain)
	c.requireUnbound(t, gang...)
	c.finish(t, "low-0")
	c.create(t, member("", "late", 2))
	c.requireUnbound(t, "late")
	c.delete(t, "urgent-1")
	c.finish(t, "urgent-1")
	c.requireBound(t, "late")
	c.requireUnbound(t, "urgent-0", "urgent-2", "urgent-3")
}
