package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/test/build"
)

// TestRefusedBindLeavesNobodyBound: an admission policy refuses the binds of a gang. The rehearsal of one bind finds
// that out while all members wait, so that none is bound. The gang backs off, whatever room appears, and when the
// policy is gone it is bound.
func TestRefusedBindLeavesNobodyBound(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1", "b1")
	s := w.startScheduler(withGateArgs(`{"initialBackoff": "10s", "maxBackoff": "10s"}`))
	gang := w.create(newPods(6, "train", "1", build.Member("train"))...)
	lift := w.refuseBindings("train-")
	w.waitRefused(gang[2])
	before, start := w.bindRequests(), time.Now()

	w.createGroup("train", 6)
	w.waitEvent("PodGroup", "train", bindingRefused)
	w.waitUnschedulable(bindingRefused, gang...)
	w.requirePending(gang...)
	w.eventually("the gang holds nothing", func() (bool, string) {
		return s.ledger().Stats().Pods == 0, fmt.Sprint(s.assumed())
	})
	const times, atOnce = 3, 2
	for i := range times { // room does not help
		others := w.create(newPods(atOnce, fmt.Sprint("other", i), "4")...)
		w.waitBound(others...)
		for _, pod := range others {
			w.deletePod(pod)
		}
	}
	w.requirePending(gang...)
	rounds := 1 + int(time.Since(start).Seconds())/5 // the backoff, less a random part of up to half
	require.LessOrEqual(t, w.bindRequests()-before, times*atOnce+rounds, "one bind is asked for in a round")

	lift()
	w.waitBound(gang...)
}

// withGateArgs sets arguments of PermitGate.
func withGateArgs(args string) schedulerOption {
	return edited(func(c *configv1.KubeSchedulerConfiguration) {
		for i := range c.Profiles {
			for j := range c.Profiles[i].PluginConfig {
				if config := &c.Profiles[i].PluginConfig[j]; config.Name == permitgate.Name {
					config.Args = runtime.RawExtension{Raw: []byte(args)}
				}
			}
		}
	})
}

// waitRefused waits until the policy of refuseBindings is in force.
func (w *world) waitRefused(pod *v1.Pod) {
	w.t.Helper()
	w.eventually("the policy is in force", func() (bool, string) {
		err := w.cp.kube.CoreV1().Pods(w.namespace).Bind(w.ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod.Name, UID: pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: "a1"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && contains(err.Error(), bindingRefused), fmt.Sprint(err)
	})
}

// bindRequests returns how many binds the API server has been asked for, rehearsed ones included.
func (w *world) bindRequests() int {
	w.t.Helper()
	return w.requests(`resource="pods"`, `subresource="binding"`)
}

// requests returns how many requests the API server has counted under all of the labels.
func (w *world) requests(labels ...string) int {
	w.t.Helper()
	body, err := w.cp.kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(w.ctx)
	require.NoError(w.t, err)
	total := 0.0
	for line := range strings.Lines(string(body)) {
		missing := func(label string) bool { return !strings.Contains(line, label) }
		if strings.HasPrefix(line, "apiserver_request_total{") && !slices.ContainsFunc(labels, missing) {
			var n float64
			_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n)
			require.NoError(w.t, err)
			total += n
		}
	}
	return int(total)
}

// TestKilledInTheMiddleOfARelease: a scheduler is killed when a part of a gang is bound. The next one binds
// the rest, around those that are bound, although older pods of the same priority wait for the same room.
func TestKilledInTheMiddleOfARelease(t *testing.T) {
	const members, olderPods = 24, 50
	w := newWorld(t)
	w.addNodes("8", "a1", "b1", "c1")
	first := w.startReplica(1, 10)
	older := w.create(newPods(olderPods, "older", "1", build.Scheduler("zonewise-scheduler"), func(pod *v1.Pod) {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "zonewise.test/later"}}
	})...)
	w.createGroup("train", members)
	gang := w.create(newPods(members, "train", "1", build.Member("train"), build.Scheduler("zonewise-scheduler"))...)
	w.waitSome(4, "members are bound", gang, func(pod *v1.Pod) bool { return pod != nil && pod.Spec.NodeName != "" })
	require.NoError(t, first.cmd.Process.Kill())
	require.Error(t, <-first.done, "it was killed")
	nodes := map[string]string{}
	for _, pod := range w.pods(nil) {
		if pod.Spec.NodeName != "" {
			nodes[pod.Name] = pod.Spec.NodeName
		}
	}
	require.Less(t, len(nodes), members, "the gang was whole before the kill, so the test shows nothing")
	for _, pod := range older {
		require.NoError(t, w.cp.client.Patch(w.ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`))))
	}

	w.startReplica(2, 500)
	w.waitBound(gang...)
	w.requirePending(older...)
	for _, pod := range w.pods(nil) {
		if node, was := nodes[pod.Name]; was {
			require.Equal(t, node, pod.Spec.NodeName)
		}
		require.Empty(t, pod.DeletionTimestamp)
	}
	t.Logf("killed with %d of %d members bound", len(nodes), members)
}
