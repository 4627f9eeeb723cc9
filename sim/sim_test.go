package sim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func node(name, zone, cpu string) *v1.Node {
	return build.Node(name, zone, cpu, func(n *v1.Node) { n.UID = "" })
}

// pod is a pod of a ReplicaSet named as its app.
func pod(name, app, cpu string, changes ...func(*v1.Pod)) *v1.Pod {
	return build.Pod(name, cpu, append([]func(*v1.Pod){build.Namespace("shop"), build.App(app), func(p *v1.Pod) {
		p.UID = ""
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: "web", Controller: ptr.To(true),
		}}
	}}, changes...)...)
}

// web is 9 nodes of 8 CPUs in three zones, and so many waiting pods of 1 CPU that are spread over the zones.
func web(pods int) []client.Object {
	var objects []client.Object
	for i := range 9 {
		objects = append(objects, node(fmt.Sprintf("node-%d", i), string(rune('a'+i%3)), "8"))
	}
	for i := range pods {
		objects = append(objects, pod(fmt.Sprintf("web-%02d", i), "web", "1", func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{overZones("web")}
		}))
	}
	return objects
}

// run has a copy place its pods. Whatever the test does with the copy then, the objects that it was made of and those
// that it has now, which forks share, stay as they are.
func run(t *testing.T, objects []client.Object, options sim.Options) *sim.Sim {
	t.Helper()
	options.Now = now
	s, err := sim.New(t.Context(), objects, options)
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	unchanged := shared(t, objects, s.Objects())
	t.Cleanup(func() {
		s.Close()
		unchanged()
	})
	return s
}

// shared returns a check that objects are what they are now: copies of a cluster share them.
func shared(t *testing.T, lists ...[]client.Object) (unchanged func()) {
	t.Helper()
	var objects []client.Object
	var contents []string
	content := func(obj client.Object) string {
		data, err := json.Marshal(obj)
		require.NoError(t, err)
		return string(data)
	}
	for _, obj := range slices.Concat(lists...) {
		objects, contents = append(objects, obj), append(contents, content(obj))
	}
	return func() {
		for i, obj := range objects {
			require.Equal(t, contents[i], content(obj), "%T %s: an object that copies share was modified", obj, obj.GetName())
		}
	}
}

// TestAStateOutlivesItsCopy: from the state of a copy that is closed others go on, each by itself.
func TestAStateOutlivesItsCopy(t *testing.T) {
	base := run(t, web(12), sim.Options{})
	state := base.State()
	base.Close()
	require.Len(t, state.Objects(), len(base.Objects()))
	for range 2 {
		fork, err := state.Fork(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, zones(base), zones(fork))
		require.Len(t, fork.Lose(inZoneA).Replacements, 4)
		require.NoError(t, fork.Run(t.Context()))
		require.Equal(t, map[string]int{"b": 6, "c": 6}, zones(fork))
		fork.Close()
	}
}

// TestHint: a pod that replaces another one is put where the hint says, if the filters admit that.
func TestHint(t *testing.T) {
	for hint, want := range map[string]string{"small": "small", "large": "large", "full": "large", "gone": "large", "": "large"} {
		s := run(t, []client.Object{
			node("lost", "a", "4"), node("small", "b", "4"), node("large", "b", "64"), node("full", "b", "2"),
			pod("web", "web", "2", build.Bound("lost")), pod("other", "other", "2", build.Bound("full")), pod("third", "other", "1", build.Bound("small")),
		}, sim.Options{Hint: func(replaced *v1.Pod) string {
			require.Equal(t, "web", replaced.Name)
			return hint
		}})
		loss := s.Lose(inZoneA)
		require.Len(t, loss.Replacements, 1)
		require.NoError(t, s.Run(t.Context()))
		made, ok := sim.Get[*v1.Pod](s, "shop", loss.Replacements[0].Name)
		require.True(t, ok)
		require.Equal(t, want, made.Spec.NodeName, "hint %q", hint)
		require.Empty(t, made.Status.NominatedNodeName)
	}
}

// zones counts the pods by zone; those that wait are in "".
func zones(s *sim.Sim) map[string]int {
	out := map[string]int{}
	for _, p := range sim.List[*v1.Pod](s) {
		zone := ""
		if n, ok := sim.Get[*v1.Node](s, "", p.Spec.NodeName); ok {
			zone = n.Labels[v1.LabelTopologyZone]
		}
		out[zone]++
	}
	return out
}

func inZoneA(n *v1.Node) bool { return n.Labels[v1.LabelTopologyZone] == "a" }

func TestALostZone(t *testing.T) {
	s := run(t, web(42), sim.Options{})
	require.Equal(t, map[string]int{"a": 14, "b": 14, "c": 14}, zones(s))
	loss := s.Lose(inZoneA)
	require.Len(t, loss.Nodes, 3)
	require.Len(t, loss.Displaced, 14)
	require.Empty(t, loss.Orphans)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"b": 21, "c": 21}, zones(s))
}

func TestWhatFindsNoRoomSaysWhy(t *testing.T) {
	s := run(t, web(75), sim.Options{})
	require.Equal(t, map[string]int{"a": 24, "b": 24, "c": 24, "": 3}, zones(s))
	for _, p := range sim.List[*v1.Pod](s) {
		if p.Spec.NodeName == "" {
			require.Contains(t, s.Why(p), "0/9 nodes are available: 9 Insufficient cpu")
		}
	}
	answer, err := s.Evaluate(t.Context(), pod("one-more", "web", "1"))
	require.NoError(t, err)
	require.Len(t, answer.Nodes, 9)
	require.Empty(t, answer.FittingNodes())
	for _, n := range answer.Nodes {
		require.Equal(t, &sim.Refusal{Plugin: "NodeResourcesFit", Reasons: []string{"Insufficient cpu"}}, n.Refusal)
	}
	_, err = s.AddNodes(1, "node-0")
	require.NoError(t, err)
	answer, err = s.Evaluate(t.Context(), pod("one-more", "web", "1"))
	require.NoError(t, err)
	require.Len(t, answer.FittingNodes(), 1)
}

// TestTheSameSeedGivesTheSame runs a copy several times: with one seed pods go to the same nodes, under the same UIDs
// and at the same times.
func TestTheSameSeedGivesTheSame(t *testing.T) {
	places := func(seed int64) map[string]string {
		s := run(t, web(30), sim.Options{Seed: seed})
		s.Lose(inZoneA)
		require.NoError(t, s.Run(t.Context()))
		out := map[string]string{}
		for _, p := range sim.List[*v1.Pod](s) {
			out[p.Name] = fmt.Sprintf("%s, %s since %s", p.Spec.NodeName, p.UID, p.CreationTimestamp.Format(time.RFC3339Nano))
		}
		out["the end"] = s.Now().Format(time.RFC3339Nano)
		return out
	}
	first := places(1)
	for range 3 {
		require.Equal(t, first, places(1))
	}
	require.NotEqual(t, first, places(2))
}

// TestTheSeedDecidesAmongEqualVictims: which of two equal pods on a node is evicted depends in a cluster on the order in
// which its scheduler has seen them, whether a pod preempts or a gang.
func TestTheSeedDecidesAmongEqualVictims(t *testing.T) {
	urgent := func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](100) }
	for name, preemptor := range map[string][]client.Object{
		"for a pod": {pod("urgent", "urgent", "1", urgent)},
		"for a gang": {
			gang("gang", 1), pod("urgent", "urgent", "1", urgent, build.Member("gang")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			evicted := map[string]bool{}
			for seed := range int64(12) {
				objects := append([]client.Object{node("node", "a", "2")}, preemptor...)
				for _, name := range []string{"one", "two"} {
					objects = append(objects, pod(name, name, "1", build.Bound("node"), func(p *v1.Pod) {
						p.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
					}))
				}
				s := run(t, objects, sim.Options{Seed: seed, Bare: true})
				for _, p := range s.Evicted() {
					evicted[p.Name] = true
				}
			}
			require.Equal(t, map[string]bool{"one": true, "two": true}, evicted)
		})
	}
}

// TestACopySharesItsObjects: what a copy does is not seen in the objects that it was given.
func TestACopySharesItsObjects(t *testing.T) {
	objects := web(6)
	var before []client.Object
	for _, obj := range objects {
		before = append(before, obj.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy has the type of the original
	}
	s := run(t, objects, sim.Options{})
	s.Lose(inZoneA)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, before, objects)
}

// TestReplacements: lost pods are replaced in the given order, and the copy knows what each pod replaces.
func TestReplacements(t *testing.T) {
	cost := func(p *v1.Pod) {
		p.Annotations = map[string]string{v1.PodDeletionCost: "-1", "zonewise.dev/kept": "yes"}
	}
	s := run(t, append(web(3), pod("large", "large", "3", cost), pod("small", "small", "500m")), sim.Options{Rank: func(p *v1.Pod) []int64 {
		return []int64{p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()}
	}})
	loss := s.Lose(func(*v1.Node) bool { return true })
	require.Len(t, loss.Displaced, 5)
	require.Equal(t, []string{"small", "large"}, []string{loss.Displaced[0].Name, loss.Displaced[4].Name})
	made := s.Replaced()
	require.Len(t, made, 5)
	for i, p := range loss.Replacements {
		require.Equal(t, loss.Displaced[i].UID, made[p.UID].UID)
		require.NotContains(t, p.Annotations, v1.PodDeletionCost, "the cost was the other pod's")
	}
	require.Contains(t, loss.Replacements[4].Annotations, "zonewise.dev/kept")
}

// TestTerminatingPodsEnd: the room of a pod that terminates in the cluster becomes free when its grace period ends.
// Only a StatefulSet waits that long to replace it, and a pod that ought to have ended stays.
func TestTerminatingPodsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  string
		after time.Duration
		want  map[string]string // the nodes of the pods
	}{
		"of a ReplicaSet":  {"ReplicaSet", 30 * time.Second, map[string]string{"waits": "n"}},
		"of a StatefulSet": {"StatefulSet", 30 * time.Second, map[string]string{"waits": "n", "old": ""}},
		"stuck":            {"ReplicaSet", -time.Second, map[string]string{"waits": "", "old": "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t, []client.Object{
				node("n", "a", "4"),
				pod("old", "old", "3", func(p *v1.Pod) {
					p.OwnerReferences[0].Kind = tc.kind
					p.UID, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp = "old", "n", v1.PodRunning, &metav1.Time{Time: now.Add(tc.after)}
				}),
				pod("waits", "waits", "3"),
			}, sim.Options{})
			is := map[string]string{}
			for _, p := range sim.List[*v1.Pod](s) {
				is[p.Name] = p.Spec.NodeName
			}
			require.Equal(t, tc.want, is)
			require.Empty(t, s.Evicted())
		})
	}
}

// TestForkGivesNewNames: what replaces a lost pod is not named as a pod that the first copy has made.
func TestForkGivesNewNames(t *testing.T) {
	generated := func(on string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.GenerateName, p.Spec.NodeName, p.Status.Phase, p.UID = "web-", on, v1.PodRunning, types.UID("web-"+on)
		}
	}
	base := run(t, []client.Object{
		node("n-a", "a", "4"), node("n-b", "b", "4"),
		pod("web-a", "web", "4", generated("n-a")), pod("web-b", "web", "4", generated("n-b")),
		pod("urgent", "urgent", "4", func(p *v1.Pod) {
			p.Spec.Priority, p.Spec.NodeSelector = ptr.To[int32](100), map[string]string{v1.LabelTopologyZone: "b"}
		}),
	}, sim.Options{})
	require.Len(t, base.Evicted(), 1)
	fork, err := base.Fork(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(fork.Close)
	loss := fork.Lose(inZoneA)
	require.Len(t, loss.Replacements, 1)
	require.Contains(t, fork.Replaced(), loss.Replacements[0].UID, "%s is there", loss.Replacements[0].Name)
}

// TestAllNodesAreLost: without any node pods wait, and the copy comes to rest.
func TestAllNodesAreLost(t *testing.T) {
	s := run(t, web(3), sim.Options{})
	s.Lose(func(*v1.Node) bool { return true })
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"": 3}, zones(s))
	for _, p := range sim.List[*v1.Pod](s) {
		require.Equal(t, "no nodes available to schedule pods", s.Why(p))
	}
}

// TestCopiesHaveTheKindsThatPluginsLookAt: of a kind that a copy does not have, a plugin sees no objects.
func TestCopiesHaveTheKindsThatPluginsLookAt(t *testing.T) {
	require.Empty(t, run(t, web(3), sim.Options{}).KindsWithoutObjects(), "kinds.All lacks a kind that a plugin looks at")
}

func gang(name string, members int32) *schedulingv1alpha1.PodGroup {
	return &schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: schedulingv1alpha1.PodGroupSpec{MinMember: members}}
}
