package parity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// hints returns the plugin's hint functions by the event's resource.
func hints(t *testing.T, p Plugin) map[fwk.EventResource]fwk.ClusterEventWithHint {
	t.Helper()
	events, err := p.EventsToRegister(t.Context())
	require.NoError(t, err)
	byResource := map[fwk.EventResource]fwk.ClusterEventWithHint{}
	for _, e := range events {
		require.NotContains(t, byResource, e.Event.Resource)
		byResource[e.Event.Resource] = e
	}
	return byResource
}

func hintPair(t *testing.T) *Pair {
	t.Helper()
	pair, _ := setUp(t, Options{Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil)}, Objects: defaultObjects()}, nil, nil)
	return pair
}

func TestEventsEqualInTree(t *testing.T) {
	pair := hintPair(t)
	theirs, ours := hints(t, pair.InTree), hints(t, pair.Ours)
	require.Len(t, ours, len(theirs))
	for resource, event := range theirs {
		require.Equal(t, event.Event, ours[resource].Event)
	}
}

// waiting are pods that hard constraints keep waiting.
func waiting() map[string]*v1.Pod {
	foo := selects("foo")
	return map[string]*v1.Pod{
		"zone":             incoming("foo", spread(1, "zone", foo)),
		"zone and host":    incoming("foo bar", spread(1, "zone", foo), spread(1, "host", selects("bar=1"))),
		"honors taints":    incoming("foo", spread(1, "zone", foo, taints(honor))),
		"soft only":        incoming("foo", spread(1, "zone", foo, soft)),
		"by default":       incoming("foo"),
		"default, nobody":  incoming("baz"),
		"by revision":      incoming("foo hash=1", spread(1, "zone", foo, matchKeys("hash"))),
		"nil selector":     incoming("foo", spread(1, "zone", nil)),
		"everything":       incoming("foo", spread(1, "zone", selects())),
		"in its namespace": incoming("foo ns:other", spread(1, "zone", foo)),
	}
}

// TestPodHintsEqualInTree compares the hints for every change between pods with different labels,
// namespaces, nodes and tolerations, and for their coming and going.
func TestPodHintsEqualInTree(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	pair := hintPair(t)
	theirs, ours := hints(t, pair.InTree), hints(t, pair.Ours)

	var states []*v1.Pod
	for _, words := range []string{"", "foo", "foo=1", "bar", "bar=1", "foo bar=1", "foo hash=1", "foo hash=2", "foo ns:other", "baz ns:other"} {
		onNode := incoming(words)
		onNode.Spec.NodeName = "a"
		nominated := incoming(words)
		nominated.Status.NominatedNodeName = "a"
		terminating := onNode.DeepCopy()
		terminating.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		states = append(states, onNode, nominated, terminating, incoming(words), withToleration(incoming(words), "gpu"))
	}
	seen := map[fwk.QueueingHint]int{}
	compare := func(resource fwk.EventResource, pod *v1.Pod, before, after any) {
		want, wantErr := theirs[resource].QueueingHintFn(logger, pod, before, after)
		got, gotErr := ours[resource].QueueingHintFn(logger, pod, before, after)
		require.Equal(t, wantErr != nil, gotErr != nil, "%v -> %v", before, after)
		require.Equal(t, want, got, "%s of %v: %v -> %v", resource, pod, before, after)
		seen[want]++
	}
	for _, pod := range waiting() {
		for _, before := range states {
			compare(fwk.AssignedPod, pod, before, nil)
			compare(fwk.AssignedPod, pod, cache.DeletedFinalStateUnknown{Key: "default/incoming", Obj: before}, nil)
			compare(fwk.AssignedPod, pod, nil, before)
			for _, after := range states {
				compare(fwk.AssignedPod, pod, before, after)
				compare(fwk.TargetPod, pod, before, after)
			}
		}
		for _, resource := range []fwk.EventResource{fwk.AssignedPod, fwk.TargetPod, fwk.Node} {
			compare(resource, pod, "not an object", nil)
			compare(resource, pod, nil, "not an object")
		}
	}
	require.Greater(t, seen[fwk.Queue], 1000)
	require.Greater(t, seen[fwk.QueueSkip], 1000)
}

// TestNodeHintsEqualInTree compares the hints for every change between nodes of different domains and
// taints. ZoneSpread also wakes a pod when a node's labels make it start or stop to be eligible, which
// in-tree overlooks; nothing that wakes a pod there may fail to wake it here.
func TestNodeHintsEqualInTree(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	pair := hintPair(t)
	theirs, ours := hints(t, pair.InTree)[fwk.Node], hints(t, pair.Ours)[fwk.Node]

	states := []any{nil}
	for _, line := range []string{
		"a", "a zone=z1", "a zone=z2", "a zone= ", "a host=a", "a zone=z1 host=a", "a zone=z1 host=b", "a zone=z1 disk=ssd",
		"a zone=z1 !gpu:NoSchedule", "a zone=z1 host=a !gpu:NoSchedule", "a host=a !out:NoExecute",
	} {
		states = append(states, node(t, line))
	}
	pods := waiting()
	pods["by affinity"] = withNodeSelector(pods["zone"], "disk", "ssd")
	seen := map[fwk.QueueingHint]int{}
	for name, pod := range pods {
		for _, before := range states {
			for _, after := range states {
				if before == nil && after == nil {
					continue
				}
				want, err := theirs.QueueingHintFn(logger, pod, before, after)
				require.NoError(t, err)
				got, err := ours.QueueingHintFn(logger, pod, before, after)
				require.NoError(t, err)
				if name == "by affinity" && want == fwk.QueueSkip {
					continue
				}
				require.Equal(t, want, got, "%s: %v -> %v", name, before, after)
				seen[want]++
			}
		}
	}
	require.Greater(t, seen[fwk.Queue], 100)
	require.Greater(t, seen[fwk.QueueSkip], 100)

	// Zone z2 has no pods and only this node. Once the node leaves the pod's node selector, z2 is no
	// domain any more, and the pod may go to the others.
	with, without := node(t, "a zone=z2 disk=ssd"), node(t, "a zone=z2 disk=hdd")
	hint, err := ours.QueueingHintFn(logger, pods["by affinity"], with, without)
	require.NoError(t, err)
	require.Equal(t, fwk.Queue, hint)
	hint, err = theirs.QueueingHintFn(logger, pods["by affinity"], with, without)
	require.NoError(t, err)
	require.Equal(t, fwk.QueueSkip, hint, "in-tree now wakes the pod: drop the difference from the docs")
}

// TestNodeHintsOfPolicies: a node wakes a pod that has a policy when it comes to take part in a zone, or ceases to, and
// by no other change of its labels.
func TestNodeHintsOfPolicies(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	pair, source := withPolicies(t, schedulercache.NewSnapshot(nil, nil))
	source.Put(policyFor("web"))
	hint := hints(t, pair.Ours)[fwk.Node].QueueingHintFn
	plain, pinned := incoming("foo"), withNodeSelector(incoming("foo"), "disk", "ssd")
	for _, test := range []struct {
		pod           *v1.Pod
		before, after string
		want          fwk.QueueingHint
	}{
		{plain, "", "a zone=z1", fwk.Queue},
		{plain, "a zone=z1", "", fwk.Queue},
		{plain, "", "a", fwk.QueueSkip},
		{plain, "a", "a zone=z1", fwk.Queue},
		{plain, "a zone=z1", "a zone=z2", fwk.Queue},
		{plain, "a zone=z1", "a zone=z1 some=label", fwk.QueueSkip},
		{plain, "a zone=z1", "a zone=z1 disk=ssd", fwk.QueueSkip},
		{plain, "a zone=z1 !gpu:NoSchedule", "a zone=z1", fwk.Queue},
		{plain, "a zone=z1 !gpu:PreferNoSchedule", "a zone=z1", fwk.QueueSkip},
		{pinned, "a zone=z1", "a zone=z1 disk=ssd", fwk.Queue},
		{pinned, "", "a zone=z1", fwk.QueueSkip},
		{withToleration(plain, "gpu"), "a zone=z1 !gpu:NoSchedule", "a zone=z1", fwk.QueueSkip},
	} {
		var before, after any
		if test.before != "" {
			before = node(t, test.before)
		}
		if test.after != "" {
			after = node(t, test.after)
		}
		got, err := hint(logger, test.pod, before, after)
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%q to %q for %v", test.before, test.after, test.pod.Spec)
	}
}

// TestPodGroupCyclesCountOnce: all that a pod's constraints and policies ask for is counted in one look at all pods.
func TestPodGroupCyclesCountOnce(t *testing.T) {
	pair, source := withPolicies(t, schedulercache.NewSnapshot(pods(t, []string{"a foo x3"}), []*v1.Node{node(t, "a zone=z1"), node(t, "b zone=z2")}))
	for _, name := range []string{"one", "two"} {
		p := policyFor(name)
		p.Spec.QuorumSafe = true
		source.Put(p)
	}

	counted := func() float64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "zonewise_zonespread_direct_counts_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return 0
	}
	before := counted()
	pod := withNodeSelector(incoming("foo", spread(1, "zone", selects("foo"))), "zone", "z1")
	_, status, err := StartIn(t.Context(), PodGroupCycle(), pair.Ours, pair.Lister, pod)
	require.NoError(t, err)
	require.True(t, status.IsSuccess())
	require.InDelta(t, 1, counted()-before, 0)
}
