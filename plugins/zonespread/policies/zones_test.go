package policies

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// TestZonesEqualARecount: pods and nodes come, move and go, nodes before or after their pods; what is kept by zone is
// what counting anew gives.
func TestZonesEqualARecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
		s := New()
		s.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{})
		defer s.queue.ShutDown()
		s.cluster = &cluster{nodes: corelisters.NewNodeLister(store)}
		compiled, errs := policy.Compile(newPolicy("web"))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		e := &entry{policy: compiled, pods: newMembers(), refused: map[types.UID]bool{}}
		s.entries["web"] = e

		nodes := map[string]*v1.Node{}
		name := rapid.SampledFrom([]string{"n1", "n2", "n3"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"pod", "pod", "pod gone", "node", "node gone"}).Draw(t, "step") {
			case "pod":
				uid := types.UID(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid")))
				e.pods.set(uid, fact{revision: rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "revision"), node: rapid.SampledFrom([]string{"", "n1", "n2", "n3", "n4"}).Draw(t, "on")})
			case "pod gone":
				e.pods.remove(types.UID(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid"))))
			case "node":
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name.Draw(t, "node"), Labels: map[string]string{}}}
				if zone := rapid.SampledFrom([]string{"-", "", "a", "b"}).Draw(t, "zone"); zone != "-" {
					node.Labels[zoneLabel] = zone
				}
				was := nodes[node.Name]
				nodes[node.Name] = node
				if err := store.Add(node); err != nil {
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "a pod overtakes the node's event") {
					e.pods.set("overtaking", fact{revision: "r1", node: node.Name})
				}
				if was == nil {
					s.nodeSeen(node)
				} else {
					s.nodeUpdated(was, node)
				}
			case "node gone":
				if node := nodes[name.Draw(t, "node")]; node != nil {
					delete(nodes, node.Name)
					if err := store.Delete(node); err != nil {
						t.Fatal(err)
					}
					s.nodeSeen(toolscache.DeletedFinalStateUnknown{Obj: node})
				}
			}
			want := map[string]map[string]int64{}
			for _, f := range e.pods.facts {
				if f.node == "" {
					continue
				}
				if want[f.revision] == nil {
					want[f.revision] = map[string]int64{}
				}
				if node := nodes[f.node]; node != nil {
					if zone, ok := node.Labels[zoneLabel]; ok {
						want[f.revision][zone]++
					}
				}
			}
			if diff := cmp.Diff(want, s.placedLocked(e)); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// TestPoliciesAreFoundByLabel: looking up by label finds the policies that asking each of them finds.
func TestPoliciesAreFoundByLabel(t *testing.T) {
	values := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3)
	keys := rapid.SampledFrom([]string{"app", "tier"})
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		s.served = true
		for i := range rapid.IntRange(0, 8).Draw(t, "policies") {
			obj := newPolicy(fmt.Sprint(i))
			obj.Namespace = rapid.SampledFrom([]string{"shop", "bank"}).Draw(t, "namespace")
			selector := metav1.LabelSelector{}
			if rapid.Bool().Draw(t, "labels") {
				selector.MatchLabels = map[string]string{keys.Draw(t, "key"): values.Draw(t, "values")[0]}
			}
			for range rapid.IntRange(0, 2).Draw(t, "expressions") {
				r := metav1.LabelSelectorRequirement{Key: keys.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
					metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
				}).Draw(t, "operator")}
				if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
					r.Values = values.Draw(t, "values")
				}
				selector.MatchExpressions = append(selector.MatchExpressions, r)
			}
			obj.Spec.PodSelector = selector
			if compiled, errs := policy.Compile(obj); len(errs) == 0 {
				s.entries[obj.UID] = &entry{policy: compiled}
			}
		}
		s.publishLocked()
		for range 5 {
			pod := newPod("p", "")
			pod.Namespace = rapid.SampledFrom([]string{"shop", "bank", "none"}).Draw(t, "of")
			pod.Labels = rapid.MapOf(keys, rapid.SampledFrom([]string{"x", "y", "z", "w"})).Draw(t, "labels of the pod")
			want := map[string]bool{}
			for _, e := range s.entries {
				if e.policy.Namespace() == pod.Namespace && e.policy.Selects(pod.Labels) {
					want[e.policy.Key()] = true
				}
			}
			got := s.of(pod)
			if len(got) != len(want) || s.Selects(pod) != (len(want) > 0) {
				t.Fatalf("found %d policies, want %v", len(got), want)
			}
			for i, a := range got {
				if !want[a.policy.Key()] || i > 0 && got[i-1].policy.Key() >= a.policy.Key() {
					t.Fatalf("%s is not selected, named twice, or out of order", a.policy.Key())
				}
			}
		}
	})
}

func TestSelectsAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	w.add(newPolicy("web"))
	other := newPod("p", "")
	other.Labels = map[string]string{"app": "other", "tier": "back"}
	for _, pod := range []*v1.Pod{newPod("q", ""), other} {
		require.Zero(t, testing.AllocsPerRun(100, func() { w.Selects(pod) }))
	}
}
