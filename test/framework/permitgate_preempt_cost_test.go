package framework

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// budget creates a PodDisruptionBudget for the pods of an app that allows so many disruptions.
func (c *cluster) budget(app string, allowed int32) {
	c.t.Helper()
	c.createBudget(app, allowed)
	c.quiet()
}

func (c *cluster) createBudget(app string, allowed int32) {
	c.t.Helper()
	c.add(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
}

// nominatedNode returns the node that a pod is nominated to in the API.
func (c *cluster) nominatedNode(name string) string { return c.getPod(name).Status.NominatedNodeName }

// TestNoAutoscalerBuysForAPreemptingGang: kube-scheduler says of a pod that failed that it is unschedulable, also if
// its gang preempts. Autoscalers buy for such a pod unless it is nominated, so it is nominated by the same write.
func TestNoAutoscalerBuysForAPreemptingGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 1, 1)
		c.server.Graceful.Store(true)
		var unschedulable atomic.Int32
		c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch := action.(clienttesting.PatchAction)
			var pod v1.Pod
			if err := json.Unmarshal(patch.GetPatch(), &pod); err != nil {
				t.Error(err)
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == v1.PodScheduled && condition.Reason == v1.PodReasonUnschedulable && strings.HasPrefix(patch.GetName(), "urgent") {
					unschedulable.Add(1)
					if pod.Status.NominatedNodeName == "" {
						t.Errorf("%s is unschedulable and not nominated: %s", patch.GetName(), patch.GetPatch())
					}
				}
			}
			return false, nil, nil
		})
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim-0").Priority(1))
		c.bind("node-1", member("", "victim-1").Priority(1))
		c.quiet()
		members := c.createUrgent(2)
		c.soon(func() bool { return c.nominatedNode(members[0]) != "" && c.nominatedNode(members[1]) != "" })
		c.pass(time.Minute)
		c.quiet()
		require.Positive(t, unschedulable.Load(), "of the scout")
		c.finish("victim-0")
		c.finish("victim-1")
		c.requireBound(members...)
	})
}

// TestNominationsEndWithThePreemption: a gang that is gone keeps no room in the API.
func TestNominationsEndWithThePreemption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, members := preemptSlowly(t, 1, 2)
		c.soon(func() bool { return c.nominatedNode(members[0]) != "" })
		c.groups.delete("urgent")
		c.soonEqual("", func() any { return c.nominatedNode(members[0]) + c.nominatedNode(members[1]) })
	})
}

// TestVictimWhoseStatusConflicts: the condition could not be written among other writes. The pod is there, and goes.
func TestVictimWhoseStatusConflicts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 2)
		c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if name := action.(clienttesting.PatchAction).GetName(); name == "victim" {
				return true, nil, apierrors.NewConflict(v1.Resource("pods"), name, errors.New("the object has been modified"))
			}
			return false, nil, nil
		})
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim", 2).Priority(1))
		c.quiet()
		c.requireBound(c.createUrgent(2)...)
		c.requireLeft(nil, []string{"victim"})
	})
}

// TestPreemptionDelay: a gang gives an autoscaler its time before it preempts.
func TestPreemptionDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "2s", "bindRehearsal": "Never", "preemptionDelay": "10m"}`, 2)
		c.bind("node-0", member("", "victim", 2).Priority(1))
		c.quiet()
		c.groups.set("urgent", 2)
		members := c.createUrgent(2)
		c.requireEvent("PodGroup urgent GangRolledBack", "needs 2")
		c.pass(5 * time.Minute)
		c.quiet()
		c.requireLeft([]string{"victim"}, nil)
		c.pass(5 * time.Minute)
		c.requireBound(members...)
	})
}
