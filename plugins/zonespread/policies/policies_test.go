package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crdcache"
)

// TestWithoutAPIServer: a scheduler that was given no API server has no policies and starts nothing.
func TestWithoutAPIServer(t *testing.T) {
	s := New()
	w := &world{factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
	require.NoError(t, s.Join(t.Context(), w))
	s.AwaitStart(t.Context())
	pod := newPod("p", "")
	require.False(t, s.Selects(pod))
	v := s.Judge(pod, Direct{}, false)
	require.Nil(t, v)
	require.Nil(t, v.Check(newNode("a1")))
	require.False(t, v.Hard())
	require.Nil(t, v.Clone())
	s.Attempt(pod, v, nil, nil)
	s.Took(pod, newNode("a1"))
}

// TestCRDComesLater: nothing applies without the CustomResourceDefinition, and everything once it is there.
func TestCRDComesLater(t *testing.T) {
	w := newWorld(t, asObjects(newNodes("a1", "b1"))...)
	w.api.onChange(false)
	pod := newPod("p", "")
	require.False(t, w.Selects(pod))
	w.api.onChange(true)
	w.add(newPolicy("web"))
	require.True(t, w.Selects(pod))
	w.createPod(pod)

	w.settle()
	before := w.wakes("p")
	w.api.onChange(false)
	require.False(t, w.Selects(pod), "off while the definition is gone")
	w.eventually("the pod is woken", func() bool { return w.wakes("p") > before })
	w.api.onChange(true)
	require.True(t, w.Selects(pod))
}

// TestBadPolicyHarmsNobody: it is not applied, says why, and the others are.
func TestBadPolicyHarmsNobody(t *testing.T) {
	nodes := newNodes("a1", "b1")
	w := newWorld(t, asObjects(nodes)...)
	close(w.leads)
	bad := newPolicy("bad", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Resembles", Values: []string{"web"}}}
	})
	w.add(bad)
	pod := newPod("p", "")
	require.False(t, w.Selects(pod))
	require.Nil(t, w.Judge(pod, Direct{Nodes: snapshot(nodes)}, false))
	w.add(newPolicy("good"))
	require.True(t, w.Selects(pod))
	w.eventually("the status says why", func() bool { return len(w.api.stored(bad.UID).Status.Conditions) > 0 })
	accepted := conditionOf(w.api.stored(bad.UID), v1alpha1.ConditionAccepted)
	require.Equal(t, metav1.ConditionFalse, accepted.Status)
	require.Contains(t, accepted.Message, "spec.podSelector")
	// Objects that are no policies, as a broken client may hand them on.
	w.api.handler.OnAdd(pod, false)
	w.api.handler.OnDelete("nonsense")
	w.podSeen("nonsense")
	w.ownerSeen(nil)
	require.True(t, w.Selects(pod))
}

// TestSelectsByNamespaceAndLabels: other pods are not touched.
func TestSelectsByNamespaceAndLabels(t *testing.T) {
	w := newWorld(t)
	w.add(newPolicy("web"))
	w.add(newPolicy("soft", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector.MatchLabels = map[string]string{"tier": "front"}
		s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
	}))
	pod, elsewhere, other, front := newPod("p", ""), newPod("e", ""), newPod("o", ""), newPod("f", "")
	elsewhere.Namespace = "bank"
	other.Labels = map[string]string{"app": "other"}
	front.Labels = map[string]string{"tier": "front"}
	require.True(t, w.Selects(pod))
	require.True(t, w.SelectsHard(pod))
	require.False(t, w.Selects(elsewhere))
	require.False(t, w.Selects(other))
	require.True(t, w.Selects(front))
	require.False(t, w.SelectsHard(front))

	require.True(t, w.CountsFor(pod, newPod("q", "a1")))
	require.False(t, w.CountsFor(pod, elsewhere))
	require.False(t, w.CountsFor(pod, other))
	require.False(t, w.CountsFor(front, front), "a soft policy keeps nobody waiting")
	pod.Labels["pod-template-hash"] = "1"
	old := newPod("old", "a1")
	old.Labels["pod-template-hash"] = "0"
	require.False(t, w.CountsFor(pod, old), "another revision")
	require.Zero(t, testing.AllocsPerRun(100, func() { w.of(other) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { w.of(elsewhere) }))
}

// TestAnotherPolicyOfTheName: an update can hide a deletion.
func TestAnotherPolicyOfTheName(t *testing.T) {
	w := newWorld(t)
	first := newPolicy("web")
	w.add(first)
	second := newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector.MatchLabels = map[string]string{"app": "new"} })
	second.UID = "second"
	w.api.handler.OnUpdate(first, second)
	require.False(t, w.Selects(newPod("p", "")))
	require.Len(t, w.entries, 1)
}

// TestAwaitStart: the first pods wait for the policies, but not for ever.
func TestAwaitStart(t *testing.T) {
	for _, settles := range []bool{true, false} {
		w := newWorld(t)
		w.api.settled.Store(false)
		done := make(chan struct{})
		go func() {
			w.AwaitStart(t.Context())
			close(done)
		}()
		w.eventually("it waits", w.clock.HasWaiters)
		require.False(t, w.opened.Load())
		if settles {
			w.api.settled.Store(true)
		}
		w.eventually("it goes on", func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		if !settles {
			require.False(t, w.clock.Now().Before(start.Add(startBound)))
		}
		w.AwaitStart(t.Context()) // at once
	}
}

// TestProfilesShare: a second profile starts nothing anew.
func TestProfilesShare(t *testing.T) {
	w := newWorld(t)
	second := &otherProfile{world: w}
	require.NoError(t, w.Join(t.Context(), second))
	require.EqualValues(t, 1, w.api.watches.Load())
	w.add(newPolicy("web"))
	pod := newPod("p", "")
	pod.Spec.SchedulerName = "other-profile"
	w.createPod(pod)
	w.eventually("the policy has been looked at", func() bool { return w.replicasOf("policy-web") >= 0 })
	w.change(newPolicy("web"), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 2 })
	w.eventually("the pod of the second profile is woken", func() bool { return w.wakes("p") > 0 })
}

type otherProfile struct{ *world }

func (*otherProfile) ProfileName() string { return "other-profile" }

// TestFilterOfAPassingNodeAllocatesNothing.
func TestFilterOfAPassingNodeAllocatesNothing(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("web"))
	v := w.Judge(newPod("p", ""), Direct{Nodes: snapshot(nodes)}, false)
	require.True(t, v.Hard())
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if v.Check(nodes[0]) != nil {
			t.Error("refused")
		}
	}))
}

func conditionOf(obj *v1alpha1.ZoneSpreadPolicy, kind string) metav1.Condition {
	for _, c := range obj.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

var (
	_ Handle  = fwk.Handle(nil)
	_ Counter = Direct{}
	_ Watch   = &crdcache.Resource{}
)
