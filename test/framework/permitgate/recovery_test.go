package permitgate

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// partlyBoundGang leaves a gang of three with one bound member behind, and no room for the others, as a
// scheduler does that ends in the middle of a release. A new scheduler runs with the args.
func partlyBoundGang(t *testing.T, args string) *cluster {
	t.Helper()
	c := startCluster(t, args, 1)
	c.stop()
	c.groups.set("g", 3)
	c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1"), member("g", "g-2"))
	c.start(t, args)
	return c
}

func (c *cluster) evicted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.evictions)
}

func TestGangThatStaysBoundInPartIsReported(t *testing.T) {
	t.Parallel()
	c := partlyBoundGang(t, `{"recoveryTimeout": "1s", "initialBackoff": "4m", "maxBackoff": "4m"}`)
	c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "1 of 3 members have been bound for 1s, and the other 2 cannot join them")
	c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "with recoveryPolicy Keep the bound members keep running")
	require.Empty(t, c.evicted())

	// It is never too late.
	c.addNode(t, "new", 2)
	c.requireBound(t, "g-0", "g-1", "g-2")
}

// TestGangThatStaysBoundInPartIsEvicted, by the profile's policy or the PodGroup's own.
func TestGangThatStaysBoundInPartIsEvicted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args        string
		annotations map[string]string
	}{
		"by the profile":  {`{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`, nil},
		"by the PodGroup": {`{"recoveryTimeout": "1s"}`, map[string]string{podgroup.RecoveryPolicyAnnotation: "Evict"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, tt.args, 1)
			c.stop()
			c.groups.set("g", 3)
			if tt.annotations != nil {
				c.groups.annotate("g", tt.annotations)
			}
			c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1"), member("g", "g-2"))
			c.start(t, tt.args)
			require.Eventually(t, func() bool { return slices.Equal(c.evicted(), []string{"g-0"}) }, soon, tick)
			c.recorder.requireEvent(t, "Pod g-0 GangEvicted", "recoveryPolicy is Evict")

			// Its controller makes another, and the gang waits for room as a whole.
			c.create(t, member("g", "g-3"))
			c.requireUnbound(t, "g-1", "g-2", "g-3")
			c.addNode(t, "new", 2)
			c.requireBound(t, "g-1", "g-2", "g-3")
		})
	}
}

// TestPodsOfAnEarlierJobDoNotCount towards the quorum of the next, neither where it is bound in part nor where it has lost a member.
func TestPodsOfAnEarlierJobDoNotCount(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"stranded": true, "depleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, slowBackoff, 1)
			c.stop()
			c.groups.set("g", 2)
			owned := func(p *st.PodWrapper, by types.UID) *st.PodWrapper {
				owner := job
				owner.UID = by
				p.OwnerReferences = []metav1.OwnerReference{owner}
				return p
			}
			c.bind(t, "node-0", owned(member("g", "old-0", 0), "old"), owned(member("g", "old-1", 0), "old"), owned(member("g", "next-0"), "next"))
			c.run(t, v1.PodSucceeded, "old-0", "old-1")
			if waits {
				c.create(t, owned(member("g", "next-1"), "next"))
			}
			c.start(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`)
			if waits {
				require.Eventually(t, func() bool { return slices.Equal(c.evicted(), []string{"next-0"}) }, soon, tick)
			} else {
				c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "needs 2 members, 1 exist, 1 of them bound")
			}
		})
	}
}

// TestRecoveryBeginsLater: a gang that has been bound in part for long already is recovered when its PodGroup asks for that, or when a
// standby comes to lead.
func TestRecoveryBeginsLater(t *testing.T) {
	t.Parallel()
	t.Run("another policy", func(t *testing.T) {
		t.Parallel()
		c := partlyBoundGang(t, `{"recoveryTimeout": "1s"}`)
		c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "with recoveryPolicy Keep")
		c.groups.annotate("g", map[string]string{podgroup.RecoveryPolicyAnnotation: "Evict"})
		require.Eventually(t, func() bool { return slices.Equal(c.evicted(), []string{"g-0"}) }, soon, tick)
	})
	t.Run("another leader", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, 1)
		c.groups.set("g", 3)
		c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1"), member("g", "g-2"))
		c.standby = func() {
			for range 3 {
				c.pass(time.Second)
				require.Eventually(t, c.shared.Idle, soon, tick)
			}
		}
		c.start(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`)
		require.Eventually(t, func() bool { return slices.Equal(c.evicted(), []string{"g-0"}) }, soon, tick)
	})
}

// TestEvictionThatIsRefused: a PodDisruptionBudget may have it wait.
func TestEvictionThatIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 1)
	c.stop()
	var refusals atomic.Int32
	c.onEvict = func(string) error {
		if refusals.Add(1) <= 2 {
			return apierrors.NewTooManyRequests("disruption budget", 1)
		}
		return nil
	}
	c.groups.set("g", 4)
	c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1").Node("node-0"), member("g", "g-2"), member("g", "g-3"))
	c.start(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`)
	require.Eventually(t, func() bool { return len(c.evicted()) == 2 }, soon, tick)
	require.ElementsMatch(t, []string{"g-0", "g-1"}, c.evicted())
}

// TestRecoveryIsJudgedAgain: an attempt that failed, be it on a budget, an error of the API server or a read, says nothing about the gang.
// It has recovered meanwhile, and none of its members is evicted: not by another attempt, nor later in the same one.
func TestRecoveryIsJudgedAgain(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]struct{ evict, read error }{
		"a budget refuses": {evict: apierrors.NewTooManyRequests("disruption budget", 1)},
		"an error":         {evict: apierrors.NewInternalError(errors.New("etcd"))},
		"a failed read":    {read: apierrors.NewTooManyRequests("too busy", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, slowBackoff, 1)
			c.stop()
			var attempts atomic.Int32
			fail := func(err error) func() error {
				return func() error {
					if err != nil && attempts.Add(1) == 1 {
						c.groups.muffle("g", 2) // the quorum is lowered, and the watch says so late
						return err
					}
					return nil
				}
			}
			c.onEvict = func(string) error { return fail(failure.evict)() }
			c.groups.onRead = fail(failure.read)
			c.groups.set("g", 4)
			c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1").Node("node-0"), member("g", "g-2"), member("g", "g-3"))
			c.start(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`)
			require.Eventually(t, func() bool { return attempts.Load() > 0 }, soon, tick)
			for range 5 { // attempts
				c.pass(time.Minute)
				c.quiet(t)
			}
			require.Empty(t, c.evicted())
			c.groups.set("g", 2)
			c.quiet(t)
			require.Empty(t, c.evicted())
		})
	}
}

// TestTheAPIServerKnowsBetter: nobody is evicted on the strength of what the plugin believes alone.
func TestTheAPIServerKnowsBetter(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 1)
	c.stop()
	c.groups.set("g", 3)
	c.create(t, member("g", "g-0").Node("node-0"), member("g", "g-1"), member("g", "g-2"))
	c.groups.muffle("g", 1) // the quorum has been lowered, and the watch has not said so yet
	c.start(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`)
	c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "with recoveryPolicy Evict the bound members are evicted")
	c.quiet(t)
	require.Empty(t, c.evicted())
}

// TestGangThatLosesMembersForGood: those that are left run on, and a person hears of it.
func TestGangThatLosesMembersForGood(t *testing.T) {
	t.Parallel()
	c := startCluster(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`, 4)
	names := c.createGang(t, "g", 3)
	c.requireBound(t, names...)
	c.delete(t, "g-2")
	c.recorder.requireEvent(t, "PodGroup g GangPartlyBound",
		"bound in part for 1s: needs 3 members, 2 exist, 2 of them bound; the bound members keep running, whatever recoveryPolicy says")
	c.quiet(t)
	require.Empty(t, c.evicted())
}

// TestMembersThatFinishOneByOne are no reason to worry about the others, whoever made the pods.
func TestMembersThatFinishOneByOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t, `{"recoveryPolicy": "Evict", "recoveryTimeout": "1s"}`, 4)
	names := c.createGang(t, "g", 3)
	c.requireBound(t, names...)
	c.run(t, v1.PodSucceeded, "g-2")
	c.requireStatus(t, "g", v1alpha1.PodGroupScheduling, 0, 1, 0)
	c.pass(2 * time.Second)
	c.quiet(t)
	require.Zero(t, c.recorder.count("", "GangPartlyBound")+len(c.evicted()))

	c.delete(t, "g-1")
	c.recorder.requireEvent(t, "PodGroup g GangPartlyBound", "needs 3 members, 1 exist, 1 of them bound")
}

func TestRecoveryPolicyThatIsNone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 1)
	c.groups.set("g", 1)
	c.groups.annotate("g", map[string]string{podgroup.RecoveryPolicyAnnotation: "evict"})
	c.create(t, member("g", "g-0"))
	c.recorder.requireEvent(t, "PodGroup g InvalidRecoveryPolicy", `annotation zonewise.dev/recovery-policy is "evict", must be Keep or Evict: the scheduler's default Keep is used`)
	c.requireBound(t, "g-0")
}

// TestFailedBindKeepsItsNode: the member stays nominated to the node, goes there again, and the gang ends whole.
func TestFailedBindKeepsItsNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 3)
	var refuse atomic.Bool
	refuse.Store(true)
	c.refuseBinds(func(pod string) error {
		if pod == "g-1" && refuse.Load() {
			return errors.New("a mishap")
		}
		return nil
	})
	names := c.createGang(t, "g", 3)
	c.requireBound(t, "g-0", "g-2")
	c.recorder.requireEvent(t, "PodGroup g GangBindFailed", "member g-1: its bind to node node-0 failed after the gang had been released; the node is kept for the member")
	require.Eventually(t, func() bool {
		pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), "g-1", metav1.GetOptions{})
		return err == nil && pod.Status.NominatedNodeName == "node-0"
	}, soon, tick)
	refuse.Store(false)
	c.requireBound(t, names...)
}

// TestFailedBindKeepsItsNodeAtOnce: from the moment that a failed bind gives back its room until the framework has put the member back
// into its queue, a nomination keeps nothing, because the framework does not know what the member takes.
func TestFailedBindKeepsItsNodeAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	failed, handled, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	c.onFailure = func(pod string) {
		if pod == "g-1" {
			once.Do(func() {
				close(failed)
				<-handled
			})
		}
	}
	var refuse atomic.Bool
	refuse.Store(true)
	c.refuseBinds(func(pod string) error {
		if pod == "g-1" && refuse.Load() {
			return errors.New("a mishap")
		}
		return nil
	})
	c.start(t, slowBackoff)
	names := c.createGang(t, "g", 3)
	<-failed
	c.create(t, member("", "thief"))
	require.Eventually(t, func() bool { return c.condition(t, "thief") != "" || len(c.bound(t, "thief")) > 0 }, soon, tick)
	require.Empty(t, c.bound(t, "thief")) // Reserve refuses it, or a filter when a late event of the member has put that into a queue
	refuse.Store(false)
	close(handled)
	c.requireBound(t, names...)
	require.Empty(t, c.bound(t, "thief"))
}

// TestNominationsOfAnEarlierScheduler are taken back: nothing is planned for these members here.
func TestNominationsOfAnEarlierScheduler(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 3)
	c.stop()
	c.groups.set("g", 4)
	for _, name := range []string{"g-0", "g-1", "g-2"} {
		c.create(t, member("g", name).NominatedNodeName("node-0"))
	}
	c.create(t, member("g", "g-3"))
	c.start(t, slowBackoff)
	require.Eventually(t, func() bool {
		pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		// The scheduler hears of it last.
		return !slices.ContainsFunc(pods.Items, func(p v1.Pod) bool { return p.Status.NominatedNodeName != "" }) && c.nominated("node-0") == 0
	}, soon, tick)
	c.requireRoomFor(t, 3)
}

func TestMembersThatDiffer(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 3)
	c.groups.set("g", 2)
	for _, pod := range []*st.PodWrapper{
		member("g", "g-0").Priority(10), member("g", "g-1").Priority(-5), member("g", "g-2").SchedulerName("somebody-else"),
	} {
		c.create(t, pod)
	}
	c.recorder.requireEvent(t, "PodGroup g MixedMembers",
		`the members have different priorities, from -5 to 10: the gang is only as safe from preemption as the lowest of them; `+
			`some members name the scheduler "somebody-else", which does not schedule this gang`)
	c.requireBound(t, "g-0", "g-1")
}
