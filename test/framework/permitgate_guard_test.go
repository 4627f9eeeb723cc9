package framework

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/native"
)

// The args with which native gangs are guarded, and left to GangScheduling alone.
const (
	guarded = `{"nativeGroups": "Guard", "initialBackoff": "1s"}`
	alone   = `{"nativeGroups": "Ignore"}`
)

// nativeBubble runs a test with kube-scheduler's pod groups on, and other gates. The gates are those of the process, so
// nothing runs beside it.
func nativeBubble(t *testing.T, name string, test func(t *testing.T), gates ...featuregate.Feature) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for _, gate := range append([]featuregate.Feature{features.GenericWorkload}, gates...) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, true)
		}
		synctest.Test(t, test)
	})
}

// nativeMember returns a pod of a native group.
func nativeMember(group, name string) *st.PodWrapper {
	p := member("", name)
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	return p
}

// createPodGroup creates a native PodGroup with a gang policy, or with a basic one without a minCount.
func (c *cluster) createPodGroup(name string, minCount int32, edits ...func(spec *schedulingv1beta1.PodGroupSpec)) {
	c.t.Helper()
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1},
	}
	if minCount > 0 {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	} else {
		group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	}
	for _, edit := range edits {
		edit(&group.Spec)
	}
	_, err := c.client.SchedulingV1beta1().PodGroups("default").Create(c.t.Context(), group, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.settle() // the scheduler knows it before its pods, which come by another watch
}

// createNativeGang creates a PodGroup and its members, and returns their names.
func (c *cluster) createNativeGang(name string, size int, changes ...change) []string {
	c.t.Helper()
	c.createPodGroup(name, int32(size))
	return c.createNativeMembers(name, size, changes...)
}

// createNativeMembers creates pods of a native group, and returns their names.
func (c *cluster) createNativeMembers(group string, size int, changes ...change) []string {
	c.t.Helper()
	return c.createAlike(group, size, func(name string) *st.PodWrapper { return nativeMember(group, name) }, changes)
}

// groupCondition returns a condition of a native PodGroup, nil without one.
func (c *cluster) groupCondition(name, kind string) *metav1.Condition {
	c.t.Helper()
	group, err := c.client.SchedulingV1beta1().PodGroups("default").Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return apimeta.FindStatusCondition(group.Status.Conditions, kind)
}

func (c *cluster) requireGroupCondition(name, kind string, status metav1.ConditionStatus, words string) {
	c.t.Helper()
	c.soon(func() bool {
		condition := c.groupCondition(name, kind)
		return condition != nil && condition.Status == status && strings.Contains(condition.Message, words)
	})
}

// TestNativeBindsAreRefused by admission. Guarded, no member is bound, and the group backs off. GangScheduling alone
// lets each member try by itself, and again at once.
func TestNativeBindsAreRefused(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 4)
		c.stage.setAnswer(refusing("n-"))
		start := c.clock.Now()
		names := c.createNativeGang("n", 3)
		c.soon(func() bool { return c.stage.count("") == 4 })
		require.GreaterOrEqual(t, c.clock.Since(start), 3500*time.Millisecond, "the backoffs, at least half of 1s, 2s and 4s")
		require.Less(t, c.clock.Since(start), 8*time.Second, "at most 1s, 2s and 4s, and no more than a moment until all are back")
		require.Empty(t, c.boundAmong(names...))
		for _, name := range names {
			require.Equal(t, 4, c.mishap.tried(name), "one cycle for each backoff")
		}
		c.requireGroupCondition("n", native.ConditionReleased, metav1.ConditionFalse, "not on a Friday")
		require.Equal(t, metav1.ConditionTrue, c.groupCondition("n", schedulingv1beta1.PodGroupInitiallyScheduled).Status, "kube-scheduler's own is left alone")
		c.requireRoomFor(4)

		c.stage.setAnswer(nil)
		c.requireBound(names...)
		c.requireGroupCondition("n", native.ConditionReleased, metav1.ConditionTrue, "3 members")
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c := startGangCluster(t, alone, 4)
		refused := refusing("n-2")
		const most = 100
		var binds atomic.Int32
		c.refuseBinds(func(pod string) error {
			if err := refused(pod); err != nil && binds.Add(1) <= most {
				return err
			}
			return nil
		})
		took := c.requireBound(c.createNativeGang("n", 3)...)
		require.EqualValues(t, most+1, binds.Load())
		require.Less(t, took, time.Second, "there was no pause between them")
		require.Nil(t, c.groupCondition("n", native.ConditionReleased))
	})
}

// TestNativeMemberIsDeletedAtTheBarrier: guarded, the others give their nodes back with it. GangScheduling alone has no
// barrier: a member is bound as soon as it is prepared.
func TestNativeMemberIsDeletedAtTheBarrier(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		c.loseAtTheBarrier(c.slowPreparation("n-1"), c.createNativeGang("n", 3), nativeMember("n", "n-0"))
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c := startGangCluster(t, alone, 3)
		p := c.slowPreparation("n-1")
		c.createNativeGang("n", 3)
		<-p.started
		c.requireBound("n-0", "n-2")
		close(p.goOn)
		c.requireBound("n-1")
	})
}

// TestAnotherPermitPluginRefusesTheLastNativeMember: guarded, no member is bound before all can be. GangScheduling
// alone has bound the others by then.
func TestAnotherPermitPluginRefusesTheLastNativeMember(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		c.mishap.set(func(m *mishap) { m.permit = c.failFirst("n-2", fwk.Unschedulable, 3) })
		names := c.createNativeGang("n", 3)
		c.requireBound(names...)
		for _, name := range names {
			require.Equal(t, 4, c.mishap.tried(name), "each cycle has all members")
		}
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c := startGangCluster(t, alone, 3)
		var binds atomic.Int32
		c.mishap.set(func(m *mishap) {
			m.permit = func(pod string) *fwk.Status {
				if pod == "n-2" && binds.Load() < 2 {
					return fwk.NewStatus(fwk.Unschedulable, "a mishap until the others are bound")
				}
				return nil
			}
		})
		c.refuseBinds(func(string) error {
			binds.Add(1)
			return nil
		})
		c.requireBound(c.createNativeGang("n", 3)...)
	})
}

// TestNativeBindFails: its node is kept for the member's next attempt, a second later. GangScheduling alone lets
// another pod have it.
func TestNativeBindFails(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		const most = 1
		var binds atomic.Int32
		c.refuseBinds(func(pod string) error {
			if pod == "n-1" && binds.Add(1) <= most {
				return refusing("n-1")(pod)
			}
			return nil
		})
		start := c.clock.Now()
		names := c.createNativeGang("n", 3)
		c.requireBound("n-0", "n-2")
		c.soon(func() bool { return c.getPod("n-1").Status.NominatedNodeName == "node-0" })
		c.create(member("", "thief"))
		c.requireUnbound("thief")
		c.requireBound(names...)
		require.EqualValues(t, most+1, binds.Load())
		require.GreaterOrEqual(t, c.clock.Since(start), time.Second)
		require.Empty(t, c.boundAmong("thief"))
		c.requireGroupCondition("n", native.ConditionReleased, metav1.ConditionTrue, "3 members")
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c := newGangCluster(t, 3)
		failed, handled := c.holdFailure("n-1")
		c.start(withArgs(alone))
		c.refuseBinds(refusing("n-1"))
		c.createNativeGang("n", 3)
		<-failed
		c.create(member("", "thief"))
		close(handled)
		c.requireBound("n-0", "n-2", "thief")
		c.requireUnbound("n-1")
	})
}

// TestNativeGangStaysBoundInPart: the PodGroup says so, and when it is over.
func TestNativeGangStaysBoundInPart(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 1, 1)
		c.createPodGroup("n", 3)
		for i := range 2 { // what an earlier scheduler has left
			c.bind(fmt.Sprint("node-", i), nativeMember("n", fmt.Sprint("n-", i)))
		}
		c.create(nativeMember("n", "n-2"))
		c.start(withArgs(`{"nativeGroups": "Guard", "recoveryTimeout": "20s"}`))
		c.requireGroupCondition("n", native.ConditionPartlyBound, metav1.ConditionTrue, "2 of 3 members")
		c.addNode("another", 1)
		c.eventually("the gang is bound", func() bool { return len(c.boundAmong("n-2")) == 1 })
		c.requireGroupCondition("n", native.ConditionPartlyBound, metav1.ConditionFalse, "")
	})
}

// TestNativeGroupsThatAreNotGuarded: those with a basic policy are no gangs, and those of composite groups say that
// they are not guarded if the scheduler does not know these.
func TestNativeGroupsThatAreNotGuarded(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 4)
		c.createPodGroup("b", 0)
		c.create(nativeMember("b", "b-0"))
		c.requireBound("b-0")
		c.createPodGroup("leaf", 1, func(spec *schedulingv1beta1.PodGroupSpec) { spec.ParentCompositePodGroupName = ptr.To("tree") })
		c.requireGroupCondition("leaf", native.ConditionGuarded, metav1.ConditionFalse, "composite")
		require.Zero(t, c.stage.count(""))
	})
}

// TestPostFiltersKnowPodGroups: from Kubernetes 1.38 on the scheduler logs an error for each plugin with PostFilter
// that does not.
func TestPostFiltersKnowPodGroups(t *testing.T) {
	nativeBubble(t, "all plugins", func(t *testing.T) {
		c := newCluster(t, allPlugins)
		c.start()
		plugins := c.scheduler.Profiles["default-scheduler"].ListPlugins()
		require.NotEmpty(t, plugins.PostFilter.Enabled)
		for _, plugin := range plugins.PostFilter.Enabled {
			if plugin.Name != mishapName {
				require.True(t, slices.ContainsFunc(plugins.PodGroupPostFilter.Enabled, func(p config.Plugin) bool { return p.Name == plugin.Name }), plugin.Name)
			}
		}
	})
}

// TestGuardWithoutPodGroups: without kube-scheduler's gate the API is not asked for PodGroups, and pods are scheduled
// one by one.
func TestGuardWithoutPodGroups(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, false)
	synctest.Test(t, func(t *testing.T) {
		c := startGangCluster(t, guarded, 1)
		c.createPodGroup("n", 2)
		c.create(nativeMember("n", "n-0"))
		c.requireBound("n-0")
		for _, action := range c.client.Actions() {
			if resource := action.GetResource(); resource.Group == schedulingv1beta1.GroupName && resource.Resource == "podgroups" {
				require.Equal(t, "create", action.GetVerb(), "the test's own request")
			}
		}
	})
}

// TestNativeMembersGetTheCondition by which autoscalers size a cluster, from kube-scheduler itself: all of them, once
// the group has been tried in vain, with PermitGate beside GangScheduling or not. Before there are enough members none
// has it.
func TestNativeMembersGetTheCondition(t *testing.T) {
	for name, args := range map[string]string{"guarded": guarded, "alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			const members = 5
			c := startGangCluster(t, args, 2)
			c.createPodGroup("g", members)
			var names []string
			for i := range members {
				c.quiet()
				for _, name := range names {
					require.Empty(t, c.condition(name), "%d of %d members exist", i, members)
				}
				names = append(names, fmt.Sprintf("g-%d", i))
				c.create(nativeMember("g", names[i]))
			}
			for _, name := range names {
				c.soon(func() bool { return c.condition(name) != "" })
				_, condition := podutil.GetPodCondition(&c.getPod(name).Status, v1.PodScheduled)
				require.Equal(t, v1.ConditionFalse, condition.Status)
				require.Equal(t, v1.PodReasonUnschedulable, condition.Reason)
			}
			c.addNode("more", members)
			c.requireBound(names...)
		})
	}
}
