package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/manifests/shipped"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/admission"
)

// waitQuiet waits until no component has written to the test's pods for some looks in a row.
func (w *world) waitQuiet() {
	w.t.Helper()
	const looks = 20
	last, same := "", 0
	w.eventually("nobody writes to the pods", func() (bool, string) {
		var versions []string
		for _, pod := range w.pods(nil) {
			versions = append(versions, pod.Name+" "+pod.ResourceVersion)
		}
		slices.Sort(versions)
		now := strings.Join(versions, ", ")
		if same++; now != last {
			last, same = now, 0
		}
		return same >= looks, now
	})
}

// deletionRefused is what the policy of refuseDeletions says.
const deletionRefused = "the policy of the test protects this pod"

// refuseDeletions makes the API server refuse the scheduler to delete the test's pods of a name, and waits until that
// is in force for the pod. The policy ends with the world.
func (w *world) refuseDeletions(pod *v1.Pod) {
	w.t.Helper()
	admission.Refuse(w.t, w.cp.client, w.namespace, admissionv1.Delete, "pods", admissionv1.Validation{
		Expression: fmt.Sprintf("oldObject.metadata.name != '%s' || request.userInfo.username != '%s'", pod.Name, shipped.SchedulerUser.Name),
		Message:    deletionRefused,
	})
	config := rest.CopyConfig(w.cp.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: shipped.SchedulerUser.Name, Groups: shipped.SchedulerUser.Groups}
	asScheduler, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
	w.eventually("the policy is in force", func() (bool, string) {
		err := asScheduler.Delete(w.ctx, pod.DeepCopy(), client.DryRunAll)
		return err != nil && contains(err.Error(), deletionRefused), fmt.Sprint(err)
	})
}

// deletionsRehearsed returns how many deletions of pods the API server has been asked for without effect.
func (w *world) deletionsRehearsed() int {
	w.t.Helper()
	return w.requests(`verb="DELETE"`, `resource="pods"`, `subresource=""`, `dry_run="All"`)
}

// TestRefusedEvictionEvictsNobody: one of the pods that would have to go is protected by a policy. No pod is evicted
// for a gang that cannot have all of them, however often it tries; nothing is held, and the reason is there to be read.
func TestRefusedEvictionEvictsNobody(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	s := w.startScheduler(withGateArgs(`{"maxBackoff": "1s"}`))
	low, high := w.createPriorityClass(10), w.createPriorityClass(1000)
	small := w.create(newPods(4, "small", "1", build.PriorityClass(low))...)
	w.waitBound(small...)
	w.refuseDeletions(small[0])
	before := w.deletionsRehearsed()
	w.createGroup("train", 4)
	gang := w.create(newPods(4, "train", "1", build.Member("train"), build.PriorityClass(high))...)
	why := "pod " + w.namespace + "/small-0 could not be evicted: "
	w.waitEvent("PodGroup", "train", "GangPreemptionFailed: PodGroup "+w.namespace+"/train: "+why)
	w.eventually("it has been refused five times", func() (bool, string) {
		n := len(s.log.lines("Proposed for a gang"))
		return n >= 5, fmt.Sprint(n)
	})
	w.requireNotEvicted(small...)
	for _, pod := range small {
		for _, condition := range w.pod(pod).Status.Conditions {
			require.NotEqual(t, v1.DisruptionTarget, condition.Type, pod.Name)
		}
	}
	w.requirePending(gang...)
	require.LessOrEqual(t, w.deletionsRehearsed()-before, len(small), "each is asked for once")

	w.deletePod(small[0]) // a person may
	w.waitBound(gang...)
	require.Equal(t, len(small), w.evicted(small...))
}

// evicted counts the pods that are gone or going.
func (w *world) evicted(pods ...*v1.Pod) (n int) {
	w.t.Helper()
	for _, pod := range pods {
		got := &v1.Pod{}
		err := w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(pod), got)
		require.NoError(w.t, client.IgnoreNotFound(err))
		if err != nil || got.DeletionTimestamp != nil {
			n++
		}
	}
	return n
}

// requireNotEvicted fails the test if one of the pods is gone or going.
func (w *world) requireNotEvicted(pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		got := w.pod(pod)
		require.Equal(w.t, pod.UID, got.UID)
		require.Nil(w.t, got.DeletionTimestamp, got.Name)
	}
}

// requireNoPreemption fails the test if the scheduler has evicted a pod of the test.
func (w *world) requireNoPreemption() {
	w.t.Helper()
	events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, event := range events.Items {
		require.NotEqual(w.t, "Preempted", event.Reason, event.Regarding.Name)
	}
}

// waitGangRefused waits until the scheduler has said of a member of a gang why it is refused.
func (w *world) waitGangRefused(reason string, gang ...*v1.Pod) {
	w.t.Helper()
	w.eventually("the gang is refused: "+reason, func() (bool, string) {
		var said []string
		for _, pod := range gang {
			words := unschedulable(w.pod(pod))
			if contains(words, reason) {
				return true, ""
			}
			said = append(said, words)
		}
		return false, fmt.Sprintf("%q", said)
	})
}
