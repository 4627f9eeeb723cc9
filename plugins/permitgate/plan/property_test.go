package plan_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/plan"
)

// TestPlansHonourEveryConstraint recounts random plans slot by slot, the way the scheduler will see them.
func TestPlansHonourEveryConstraint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, gang := drawCluster(t), drawGang(t)
		r := plan.Request{Members: members(gang...), Need: rapid.IntRange(0, len(gang)).Draw(t, "need"), Cluster: c}
		got := plan.Make(r)
		if got.Refusal == nil && len(got.Slots) < r.Need {
			t.Fatalf("%d slots for %d", len(got.Slots), r.Need)
		}
		if got.Refusal != nil && (got.Refusal.Found != len(got.Slots) || got.Refusal.Found >= r.Need || got.Refusal.String() == "") {
			t.Fatalf("needs %d, refusal %+v with %d slots", r.Need, got.Refusal, len(got.Slots))
		}
		replay(t, c, got.Slots)

		// The same in another order is the same plan.
		shuffled := newCluster(rapid.Permutation(c.nodes).Draw(t, "nodes")...)
		shuffled.pods = c.pods
		r.Cluster, r.Members = shuffled, rapid.Permutation(r.Members).Draw(t, "members")
		again := plan.Make(r)
		require.Equal(t, placed(got), placed(again))
		if got.Refusal != nil {
			require.Equal(t, got.Refusal.String(), again.Refusal.String())
		}
	})
}

func placed(r plan.Result) map[string]string {
	nodes := map[string]string{}
	for _, s := range r.Slots {
		nodes[s.Pod.Name] = s.Node
	}
	return nodes
}

// replay takes the slots in their order and checks each by brute force against all pods that are there then.
func replay(t *rapid.T, c *cluster, slots []plan.Slot) {
	t.Helper()
	there := map[string][]*v1.Pod{}
	for name, pods := range c.pods {
		there[name] = slices.Clone(pods)
	}
	slots = slices.Clone(slots)
	slices.SortFunc(slots, func(a, b plan.Slot) int { return cmp.Compare(a.Seq, b.Seq) })
	seen := map[string]bool{}
	for i, s := range slots {
		if s.Seq != i || seen[s.Pod.Name] {
			t.Fatalf("slot %d: %+v", i, s)
		}
		seen[s.Pod.Name] = true
		if why := refuses(c, there, s.Pod, s.Node); why != "" {
			t.Fatalf("%s on %s: %s", s.Pod.Name, s.Node, why)
		}
		there[s.Node] = append(there[s.Node], s.Pod)
	}
}

// refuses says what is against one more pod on a node.
func refuses(c *cluster, there map[string][]*v1.Pod, p *v1.Pod, name string) string {
	at := slices.IndexFunc(c.nodes, func(n *v1.Node) bool { return n.Name == name })
	n := c.nodes[at]
	used := requestOf(p, v1.ResourceCPU)
	for _, other := range there[name] {
		used += requestOf(other, v1.ResourceCPU)
	}
	if cpu := value(v1.ResourceCPU, n.Status.Allocatable[v1.ResourceCPU]); used > cpu && requestOf(p, v1.ResourceCPU) > 0 {
		return "cpu"
	}
	if pods := n.Status.Allocatable[v1.ResourcePods]; int64(len(there[name])) >= pods.Value() {
		return "pods"
	}
	for _, other := range there[name] {
		if samePort(p, other) {
			return "host port of " + other.Name
		}
	}
	if len(n.Spec.Taints) > 0 && len(p.Spec.Tolerations) == 0 {
		return "taint"
	}
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return "node selector"
		}
	}
	domain := func(key string, want string) (count int) {
		for _, m := range c.nodes {
			if m.Labels[key] == want {
				for _, other := range there[m.Name] {
					if other.Labels["job"] == "train" {
						count++
					}
				}
			}
		}
		return count
	}
	for _, s := range p.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable != v1.DoNotSchedule {
			continue
		}
		least := -1
		for _, m := range c.nodes {
			eligible := true
			for k, v := range p.Spec.NodeSelector {
				eligible = eligible && m.Labels[k] == v
			}
			if !eligible {
				continue
			}
			if count := domain(s.TopologyKey, m.Labels[s.TopologyKey]); least < 0 || count < least {
				least = count
			}
		}
		if domain(s.TopologyKey, n.Labels[s.TopologyKey])+1-least > int(s.MaxSkew) {
			return "spread over " + s.TopologyKey
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if domain(term.TopologyKey, n.Labels[term.TopologyKey]) > 0 {
				return "anti-affinity"
			}
		}
	}
	for _, m := range c.nodes {
		for _, other := range there[m.Name] {
			if a := other.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
				for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
					if m.Labels[term.TopologyKey] == n.Labels[term.TopologyKey] {
						return "anti-affinity of " + other.Name
					}
				}
			}
		}
	}
	return ""
}

func drawCluster(t *rapid.T) *cluster {
	c := newCluster()
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		n := node(fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"), i), rapid.Int64Range(0, 6).Draw(t, "cpu"))
		if rapid.IntRange(0, 5).Draw(t, "tainted") == 0 {
			n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}
		if rapid.IntRange(0, 3).Draw(t, "few pods") == 0 {
			n.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(rapid.Int64Range(0, 3).Draw(t, "pods"), resource.DecimalSI)
		}
		for k := range rapid.IntRange(0, 2).Draw(t, "old pods") {
			old := pod(fmt.Sprintf("old-%d-%d", i, k), rapid.Int64Range(0, 2).Draw(t, "old cpu"))
			if rapid.Bool().Draw(t, "other") {
				old.Labels = nil
			}
			c.run(n.Name, old)
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

func drawGang(t *rapid.T) []*v1.Pod {
	var gang []*v1.Pod
	for k := range rapid.IntRange(1, 3).Draw(t, "kinds") {
		var changes []func(*v1.Pod)
		if rapid.IntRange(0, 3).Draw(t, "tolerates") == 0 {
			changes = append(changes, func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} })
		}
		if rapid.IntRange(0, 3).Draw(t, "picky") == 0 {
			changes = append(changes, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "a"} })
		}
		for _, key := range []string{v1.LabelTopologyZone, v1.LabelHostname} {
			if rapid.IntRange(0, 2).Draw(t, "spread over "+key) == 0 {
				action := rapid.SampledFrom([]v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}).Draw(t, "action")
				changes = append(changes, spread(key, rapid.Int32Range(1, 2).Draw(t, "maxSkew"), action))
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "apart") == 0 {
			changes = append(changes, apart(v1.LabelHostname))
		}
		gang = append(gang, pods(rapid.IntRange(1, 5).Draw(t, "members"), fmt.Sprintf("m%d", k), rapid.Int64Range(0, 3).Draw(t, "cpu of a member"), changes...)...)
	}
	return gang
}

// TestFindsWhateverResourcesAllow: for members with equal needs, on any nodes, a plan is found exactly when
// there is one, and it places as many as there is room for.
func TestFindsWhateverResourcesAllow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster()
		cpu := rapid.Int64Range(1, 4).Draw(t, "cpu of a member")
		room := int64(0)
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			n := node(fmt.Sprintf("a%d", i), rapid.Int64Range(0, 12).Draw(t, "cpu"))
			old := rapid.Int64Range(0, 4).Draw(t, "old")
			c.run(n.Name, pod("old"+n.Name, old))
			most := rapid.Int64Range(1, 5).Draw(t, "pods")
			n.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(most, resource.DecimalSI)
			c.nodes = append(c.nodes, n)
			allocatable := n.Status.Allocatable[v1.ResourceCPU]
			room += max(0, min((allocatable.Value()-old)/cpu, most-1))
		}
		n := rapid.IntRange(1, 20).Draw(t, "members")
		got := plan.Make(request(c, pods(n, "m", cpu)...))
		require.Equal(t, min(int64(n), room), int64(len(got.Slots)))
		require.Equal(t, int64(n) > room, got.Refusal != nil)
		replay(t, c, got.Slots)
	})
}

// TestMaxSkewIsUsedUp: with one hard constraint over zones, and members with equal needs, as many are
// placed as the smallest zone lets.
func TestMaxSkewIsUsedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster()
		var rooms []int
		for _, zone := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "zones")] {
			room := 0
			for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
				cpu := rapid.IntRange(0, 4).Draw(t, "cpu")
				c.nodes = append(c.nodes, node(fmt.Sprintf("%s%d", zone, i), int64(cpu)))
				room += cpu
			}
			rooms = append(rooms, room)
		}
		maxSkew := rapid.IntRange(1, 3).Draw(t, "maxSkew")
		most := 0
		for _, room := range rooms {
			most += min(room, slices.Min(rooms)+maxSkew)
		}
		n := rapid.IntRange(1, 30).Draw(t, "members")
		got := plan.Make(request(c, pods(n, "m", 1, spread(v1.LabelTopologyZone, int32(maxSkew), v1.DoNotSchedule))...))
		require.Len(t, got.Slots, min(n, most))
		replay(t, c, got.Slots)
	})
}
