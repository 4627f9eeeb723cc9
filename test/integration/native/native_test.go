package native

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/admission"
)

// The args with which native gangs are guarded, and left to GangScheduling alone.
const (
	guarded = `{"nativeGroups": "Guard", "initialBackoff": "1s", "maxBackoff": "2s"}`
	alone   = `{"nativeGroups": "Ignore"}`
)

// members are the pods of the gang of each test.
var members = []string{"n-0", "n-1", "n-2"}

// TestNativeGangs on a real API server: its admission refuses binds, another Permit plugin refuses the last member, and
// a member is deleted while it waits at the barrier.
func TestNativeGangs(t *testing.T) {
	c := startCluster(t)

	// Guarded, no member is bound, and the group is tried once for each backoff.
	c.run("binds are refused, Guard", guarded, func(c *cluster) {
		lift := c.refuseBinds()
		c.createGang(members...)
		c.eventually("the gang is tried three times", func() bool { return c.probe.cycles("n-0") >= 3 })
		c.eventually("the PodGroup says why", func() bool { return c.condition(native.ConditionReleased) == metav1.ConditionFalse })
		require.Empty(t, c.bound())
		require.LessOrEqual(t, c.probe.cycles("n-0"), 6, "it backs off")
		lift()
		c.eventually("all are bound", func() bool { return len(c.bound()) == len(members) })
		c.eventually("the PodGroup says so", func() bool { return c.condition(native.ConditionReleased) == metav1.ConditionTrue })
		require.Equal(t, metav1.ConditionTrue, c.condition(schedulingv1beta1.PodGroupInitiallyScheduled), "kube-scheduler's own is left alone")
	})
	// Alone, each member is tried again at once.
	c.run("binds are refused, GangScheduling alone", alone, func(c *cluster) {
		lift := c.refuseBinds()
		c.createGang(members...)
		c.eventually("the members are tried again and again", func() bool { return c.probe.cycles("n-0") >= 30 })
		lift()
		c.eventually("all are bound", func() bool { return len(c.bound()) == len(members) })
	})

	c.run("another plugin refuses the last member, Guard", guarded, func(c *cluster) {
		refusals, lift := c.refuseLast()
		c.createGang(members...)
		c.eventually("it is refused", func() bool { return refusals.Load() >= 3 })
		require.Empty(t, c.bound())
		lift()
		c.eventually("all are bound", func() bool { return len(c.bound()) == len(members) })
	})
	c.run("another plugin refuses the last member, GangScheduling alone", alone, func(c *cluster) {
		c.refuseLast()
		c.createGang(members...)
		c.eventually("the others are bound", func() bool { return slices.Equal(c.bound(), members[:2]) })
	})

	c.run("a member is deleted at the barrier, Guard", guarded, func(c *cluster) {
		started, goOn := c.keepInPreBind("n-1")
		c.createGang(members...)
		<-started
		c.delete("n-0")
		c.eventually("the others are sent back", func() bool { return c.condition(native.ConditionReleased) == metav1.ConditionFalse })
		require.Empty(t, c.bound())
		close(goOn)
		c.createPod("n-0")
		c.eventually("all are bound", func() bool { return len(c.bound()) == len(members) })
	})
	c.run("a member is deleted at the barrier, GangScheduling alone", alone, func(c *cluster) {
		started, goOn := c.keepInPreBind("n-1")
		c.createGang(members...)
		<-started
		c.eventually("the others do not wait", func() bool { return slices.Equal(c.bound(), []string{"n-0", "n-2"}) })
		close(goOn)
	})
}

// createGang creates a gang named n.
func (c *cluster) createGang(members ...string) {
	c.t.Helper()
	c.createGroup("n", len(members), nil)
	for _, name := range members {
		c.createPod(name)
	}
}

func (c *cluster) createGroup(name string, minCount int, annotations map[string]string) *schedulingv1beta1.PodGroup {
	c.t.Helper()
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Annotations: annotations}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(minCount)}
	c.create(group)
	return group
}

func (c *cluster) create(obj client.Object) {
	c.t.Helper()
	require.NoError(c.t, c.objects.Create(c.t.Context(), obj))
}

// createPod creates a member of the gang named n.
func (c *cluster) createPod(name string) {
	c.t.Helper()
	pod := build.Pod(name, "1", build.Namespace(c.namespace))
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("n")}
	c.create(pod)
	require.NotNil(c.t, pod.Spec.SchedulingGroup, "the API server has the feature")
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	require.NoError(c.t, c.admin.CoreV1().Pods(c.namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}

// bound lists the bound members, by name.
func (c *cluster) bound() []string {
	c.t.Helper()
	return slices.Sorted(maps.Keys(c.nodes()))
}

// condition returns the status of a condition of the PodGroup, empty without one.
func (c *cluster) condition(kind string) metav1.ConditionStatus {
	c.t.Helper()
	status, _ := c.conditionOf("n", kind)
	return status
}

// conditionOf returns the status and the message of a condition of a PodGroup, empty without one.
func (c *cluster) conditionOf(group, kind string) (status metav1.ConditionStatus, message string) {
	c.t.Helper()
	g, err := c.admin.SchedulingV1beta1().PodGroups(c.namespace).Get(c.t.Context(), group, metav1.GetOptions{})
	require.NoError(c.t, err)
	if condition := apimeta.FindStatusCondition(g.Status.Conditions, kind); condition != nil {
		return condition.Status, condition.Message
	}
	return "", ""
}

func (c *cluster) eventually(what string, condition func() bool) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) { return condition(), nil })
	require.NoError(c.t, err, what)
}

// refuseBinds makes the API server refuse all binds of the namespace, and waits until it does.
func (c *cluster) refuseBinds() (lift func()) {
	c.t.Helper()
	lift = admission.Refuse(c.t, c.objects, c.namespace, admissionv1.Create, "pods/binding", admissionv1.Validation{
		Expression: "false", Message: "the test refuses this binding",
	})
	c.eventually("the policy is in force", func() bool {
		err := c.admin.CoreV1().Pods(c.namespace).Bind(c.t.Context(), &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "no-such-pod"}, Target: v1.ObjectReference{Kind: "Node", Name: "node"},
		}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "the test refuses")
	})
	return lift
}

// refuseLast has another Permit plugin refuse n-2, until lift is called.
func (c *cluster) refuseLast() (refusals *atomic.Int32, lift func()) {
	refusals = &atomic.Int32{}
	var lifted atomic.Bool
	c.probe.mu.Lock()
	defer c.probe.mu.Unlock()
	c.probe.permit = func(pod string) *fwk.Status {
		if pod != "n-2" || lifted.Load() {
			return nil
		}
		refusals.Add(1)
		return fwk.NewStatus(fwk.Unschedulable, "the test refuses it")
	}
	return refusals, func() { lifted.Store(true) }
}

// keepInPreBind keeps a pod in PreBind until the second channel is closed. The first has a value for each time that it
// comes there.
func (c *cluster) keepInPreBind(name string) (started, goOn chan struct{}) {
	started, goOn = make(chan struct{}, 100), make(chan struct{})
	c.probe.mu.Lock()
	defer c.probe.mu.Unlock()
	c.probe.preBind = func(ctx context.Context, pod string) *fwk.Status {
		if pod != name {
			return nil
		}
		started <- struct{}{}
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return fwk.AsStatus(context.Cause(ctx))
		}
	}
	return started, goOn
}
