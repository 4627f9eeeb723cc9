package zonespread

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policies"
	"zonewise.dev/plugins/zonespread/policy"
)

// cycle is a cycle's state without a framework around it.
type cycle struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func newCycle() *cycle { return &cycle{data: map[fwk.StateKey]fwk.StateData{}} }

func (c *cycle) IsPodGroupSchedulingCycle() bool { return false }

func (c *cycle) Write(key fwk.StateKey, data fwk.StateData) { c.data[key] = data }

func (c *cycle) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, ok := c.data[key]; ok {
		return data, nil
	}
	return nil, fwk.ErrNotFound
}

type nodeOf struct {
	fwk.NodeInfo
	node       *v1.Node
	pods       []fwk.PodInfo
	generation int64
}

func (n *nodeOf) Node() *v1.Node         { return n.node }
func (n *nodeOf) GetPods() []fwk.PodInfo { return n.pods }
func (n *nodeOf) GetGeneration() int64   { return n.generation }

type podOf struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p *podOf) GetPod() *v1.Pod { return p.pod }

// TestPoliciesCountWithTheIndex: the shared index gives policies the domains that counting every pod gives.
func TestPoliciesCountWithTheIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pl := &ZoneSpread{shared: newSharedIndex(), features: currentFeatures()}
		serial := 0
		for range rapid.IntRange(1, 3).Draw(t, "cycles") {
			nodes := make([]fwk.NodeInfo, rapid.IntRange(0, 6).Draw(t, "nodes"))
			for i := range nodes {
				serial++
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}}
				if zone := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone"); zone != "" {
					node.Labels[v1.LabelTopologyZone] = zone
				}
				if rapid.Bool().Draw(t, "arm") {
					node.Labels["arch"] = "arm64"
				}
				if rapid.Bool().Draw(t, "tainted") {
					node.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
				}
				info := &nodeOf{node: node, generation: int64(serial)}
				for range rapid.IntRange(0, 3).Draw(t, "pods") {
					serial++
					pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
						Namespace: rapid.SampledFrom([]string{"shop", "bank"}).Draw(t, "namespace"), Name: fmt.Sprintf("p%d", serial), UID: types.UID(fmt.Sprint(serial)),
						Labels: map[string]string{"app": rapid.SampledFrom([]string{"web", "other"}).Draw(t, "app")},
					}}
					if rapid.Bool().Draw(t, "terminating") {
						pod.DeletionTimestamp = &metav1.Time{}
					}
					info.pods = append(info.pods, &podOf{pod: pod})
				}
				nodes[i] = info
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app": "web"}}}
			if rapid.Bool().Draw(t, "selects") {
				pod.Spec.NodeSelector = map[string]string{"arch": "arm64"}
			}
			if rapid.Bool().Draw(t, "tolerates") {
				pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
			}
			q := policies.Query{
				Pod: pod, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), TopologyKey: v1.LabelTopologyZone,
				HonorAffinity: rapid.Bool().Draw(t, "affinity"), HonorTaints: rapid.Bool().Draw(t, "taints"),
			}
			want := policies.Direct{Nodes: nodes}.Domains(q)
			got := policyCounter{pl: pl, ctx: context.Background(), cycleState: newCycle(), nodes: nodes}.Domains(q)
			byName := cmpopts.SortSlices(func(a, b policy.Domain) bool { return a.Name < b.Name })
			require.Empty(t, cmp.Diff(want, got, byName, cmpopts.EquateEmpty()))
		}
	})
}

// TestPolicyShareOfScores: alone policies decide; beside soft constraints they weigh three of four.
func TestPolicyShareOfScores(t *testing.T) {
	scores := func() fwk.NodeScoreList {
		return fwk.NodeScoreList{{Name: "a", Score: 100}, {Name: "b", Score: 0}, {Name: "unknown", Score: 40}}
	}
	s := &preScoreState{}
	got := scores()
	s.addPolicies(got)
	require.Equal(t, scores(), got, "without policies")

	s.byPolicies = &policyScores{names: []string{"b", "a"}, scores: []int64{100, 0}}
	got = scores()
	s.addPolicies(got)
	require.Equal(t, fwk.NodeScoreList{{Name: "a", Score: 0}, {Name: "b", Score: 100}, {Name: "unknown", Score: 0}}, got)

	s.constraints = make([]constraint, 1)
	got = scores()
	s.addPolicies(got)
	require.Equal(t, fwk.NodeScoreList{{Name: "a", Score: 25}, {Name: "b", Score: 75}, {Name: "unknown", Score: 10}}, got)
}
