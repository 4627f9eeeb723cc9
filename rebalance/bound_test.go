package rebalance

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/build"
)

// placed is how many pods stand in each zone, those that may move and those that may not.
type placed struct{ movable, fixed map[string]int }

func (p placed) in(zone string) int { return p.movable[zone] + p.fixed[zone] }

func (p placed) String() string { return fmt.Sprint(p.movable, p.fixed) }

// rulesFor makes the table of a rule for pods that stand like this.
type rulesFor func(p placed) table

// constraint makes tables of a topologySpreadConstraint over zones that have one node each.
func constraint(zones []string, maxSkew, minDomains int32) rulesFor {
	return func(p placed) table {
		var nodes []nodePods
		for _, zone := range zones {
			n := nodePods{node: build.Node("node-"+zone, zone, "8")}
			for i := range p.in(zone) {
				n.pods = append(n.pods, podInfo{build.Pod(fmt.Sprint(zone, i), "", build.App("web"))})
			}
			nodes = append(nodes, n)
		}
		query := counts.Query{
			Namespace: metav1.NamespaceDefault, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
			TopologyKey: v1.LabelTopologyZone,
		}
		each := func(n int, do func(int)) {
			for i := range n {
				do(i)
			}
		}
		return newConstraintTable(counts.Direct(nodes, []counts.Query{query}, each)[0], maxSkew, minDomains)
	}
}

// zonePolicy makes tables of a policy over zones that have nodes.
func zonePolicy(p *policy.Policy, zones []string, replicas int64, available policy.ZoneAvailability) rulesFor {
	return func(at placed) table {
		in := policy.Input{Replicas: replicas, Availability: available}
		for _, zone := range zones {
			n := int64(at.in(zone))
			in.Domains = append(in.Domains, policy.Domain{Name: zone, Pods: n, Held: n, Eligible: true})
		}
		return policyTable{p.Evaluate(in)}
	}
}

func compiled(t require.TestingT, spec v1alpha1.ZoneSpreadPolicySpec) *policy.Policy {
	spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	p, errs := policy.Compile(&v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}, Spec: spec})
	require.Empty(t, errs)
	return p
}

func always(string) bool { return true }

// excess is how many pods are more than a rule allows.
func excess(t table, zones []string) (pods int64) {
	for _, zone := range zones {
		pods += t.Above(zone)
	}
	return pods
}

func TestLeastMoves(t *testing.T) {
	abc := []string{"a", "b", "c"}
	weighted := []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: new(int32(5))}, {Name: "b", Weight: new(int32(3))}, {Name: "c", Weight: new(int32(2))}}
	for _, test := range []struct {
		name         string
		rules        rulesFor
		movable      [3]int
		fixed        [3]int
		closed       string
		above, moves int64
	}{
		{name: "spread", rules: constraint(abc, 1, 1), movable: [3]int{3, 2, 2}},
		{name: "a zone is back", rules: constraint(abc, 1, 1), movable: [3]int{3, 3, 0}, above: 4, moves: 2},
		{name: "maxSkew 3", rules: constraint(abc, 3, 1), movable: [3]int{10, 0, 0}, above: 7, moves: 5},
		{name: "no pod may move", rules: constraint(abc, 1, 1), fixed: [3]int{3, 3, 0}, above: 4},
		{name: "one of two may move", rules: constraint(abc, 1, 1), movable: [3]int{0, 3, 0}, fixed: [3]int{3, 0, 0}, above: 4, moves: 1},
		{name: "the empty zone is closed", rules: constraint(abc, 1, 1), movable: [3]int{3, 3, 0}, closed: "c", above: 4},
		{name: "minDomains counts as empty", rules: constraint(abc, 1, 4), movable: [3]int{2, 1, 0}, above: 1, moves: 1},
		{
			name: "weights", rules: zonePolicy(compiled(t, v1alpha1.ZoneSpreadPolicySpec{MaxSkew: 1, Zones: weighted}), abc, 10, nil),
			movable: [3]int{2, 3, 5}, above: 5, moves: 3,
		},
		{
			name: "a zone of weight 0", rules: zonePolicy(compiled(t, v1alpha1.ZoneSpreadPolicySpec{
				MaxSkew: 1, Zones: []v1alpha1.ZoneSpreadZone{{Name: "c", Weight: new(int32(0))}},
			}), abc, 4, nil),
			movable: [3]int{1, 1, 2}, above: 2, moves: 2,
		},
		{
			name: "a cap", rules: zonePolicy(compiled(t, v1alpha1.ZoneSpreadPolicySpec{
				MaxSkew: 9, MaxPerZone: new(intstr.Parse("40%")),
			}), abc, 10, nil),
			movable: [3]int{6, 2, 2}, above: 2, moves: 2,
		},
		{
			name: "a full zone takes none and keeps what it has", rules: zonePolicy(compiled(t, v1alpha1.ZoneSpreadPolicySpec{MaxSkew: 1}), abc, 7,
				policy.ZoneAvailability{"c": policy.Full}), movable: [3]int{5, 2, 0}, above: 2, moves: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := placed{movable: map[string]int{}, fixed: map[string]int{}}
			for i, zone := range abc {
				p.movable[zone], p.fixed[zone] = test.movable[i], test.fixed[i]
			}
			rules := test.rules(p)
			require.Equal(t, test.above, excess(rules, abc), "pods that are more than the rule allows")
			require.Equal(t, test.moves, int64(leastMoves(rules, p.movable, func(zone string) bool { return zone != test.closed })), "least moves")
		})
	}
}

// moved is where pods stand after a move.
func (p placed) moved(from, to string) placed {
	p.movable = maps.Clone(p.movable)
	p.movable[from]--
	p.movable[to]++
	return p
}

// fewest tries all sequences of moves and returns how many moves it takes until as few as possible of the pods that
// may move are too many.
func fewest(rules rulesFor, start placed, zones []string, takes func(string) bool) int {
	tooMany := func(p placed) (pods int) {
		at := rules(p)
		for _, zone := range zones {
			pods += min(p.movable[zone], int(at.Above(zone)))
		}
		return pods
	}
	best, least := tooMany(start), 0
	seen, level := map[string]bool{start.String(): true}, []placed{start}
	for moves := 1; len(level) > 0; moves++ {
		var next []placed
		for _, p := range level {
			for _, from := range zones {
				for _, to := range zones {
					if from == to || p.movable[from] == 0 || !takes(to) {
						continue
					}
					after := p.moved(from, to)
					if seen[after.String()] {
						continue
					}
					seen[after.String()] = true
					next = append(next, after)
					if pods := tooMany(after); pods < best {
						best, least = pods, moves
					}
				}
			}
		}
		level = next
	}
	return least
}

// TestLeastMovesAgainstAllSequences: fewer moves than the bound are not enough, whatever they are, and if all pods
// may move and all zones take pods, as many are. Nothing is above its share exactly if the rule holds, and each step
// of the plan lowers what is above.
func TestLeastMovesAgainstAllSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "zones")]
		p, free := placed{movable: map[string]int{}, fixed: map[string]int{}}, true
		total := 0
		for _, zone := range zones {
			p.movable[zone] = rapid.IntRange(0, 4).Draw(t, "movable "+zone)
			if rapid.IntRange(0, 3).Draw(t, "some are fixed") == 0 {
				p.fixed[zone] = rapid.IntRange(0, 3).Draw(t, "fixed "+zone)
			}
			free = free && p.fixed[zone] == 0
			total += p.in(zone)
		}
		takes := always
		if rapid.IntRange(0, 3).Draw(t, "a zone takes none") == 0 {
			closed := rapid.SampledFrom(zones).Draw(t, "closed")
			takes, free = func(zone string) bool { return zone != closed }, false
		}
		rules, full := drawRules(t, zones, int64(total))
		open := takes
		takes = func(zone string) bool { return zone != full && open(zone) }
		at := rules(p)
		bound := leastMoves(at, p.movable, takes)
		least := fewest(rules, p, zones, takes)
		require.LessOrEqual(t, bound, least, "the bound is no more than what is possible")
		if free {
			require.Equal(t, least, bound, "and is reached")
		}

		before := excess(at, zones)
		from, ok := at.Fullest(func(zone string) bool { return p.movable[zone] > 0 })
		if !ok {
			return
		}
		require.Positive(t, before)
		after := at.clone()
		after.shift(from, -1)
		if to, ok := after.Emptiest(takes); ok {
			after.shift(to, 1)
			require.Less(t, excess(after, zones), before, "a move lowers the excess")
			require.Equal(t, before, excess(at, zones), "a clone is another table")
			require.Equal(t, excess(rules(p.moved(from, to)), zones), excess(after, zones), "a table that is shifted is that of the pods moved")
		}
	})
}

// drawRules draws a constraint, or a policy and a zone that is full.
func drawRules(t *rapid.T, zones []string, replicas int64) (rules rulesFor, full string) {
	if rapid.Bool().Draw(t, "constraint") {
		minDomains := rapid.Int32Range(1, int32(len(zones))).Draw(t, "minDomains") //nolint:gosec // a few
		return constraint(zones, rapid.Int32Range(1, 3).Draw(t, "maxSkew"), minDomains), ""
	}
	spec := v1alpha1.ZoneSpreadPolicySpec{MaxSkew: rapid.Int32Range(1, 3).Draw(t, "maxSkew")}
	for _, zone := range zones {
		if rapid.Bool().Draw(t, "declared "+zone) {
			z := v1alpha1.ZoneSpreadZone{Name: zone, Weight: new(rapid.Int32Range(0, 5).Draw(t, "weight "+zone))}
			if rapid.IntRange(0, 2).Draw(t, "capped "+zone) == 0 {
				z.MaxPods = new(rapid.Int32Range(1, 6).Draw(t, "maxPods "+zone))
			}
			spec.Zones = append(spec.Zones, z)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "maxPerZone") == 0 {
		spec.MaxPerZone = new(intstr.Parse(fmt.Sprintf("%d%%", rapid.IntRange(20, 100).Draw(t, "percent"))))
	}
	if rapid.IntRange(0, 2).Draw(t, "minZones") == 0 {
		spec.MinZones = new(rapid.Int32Range(1, int32(len(zones))+1).Draw(t, "zones at least")) //nolint:gosec // a few
	}
	spec.QuorumSafe = rapid.IntRange(0, 3).Draw(t, "quorumSafe") == 0
	available := policy.ZoneAvailability{}
	if rapid.IntRange(0, 3).Draw(t, "a zone takes no part") == 0 {
		full = rapid.SampledFrom(zones).Draw(t, "which")
		available[full] = rapid.SampledFrom([]policy.Availability{policy.Full, policy.Closed}).Draw(t, "how")
	}
	return zonePolicy(compiled(t, spec), zones, replicas, available), full
}

// nodePods implements counts.NodeInfo, and podInfo counts.PodInfo.
type nodePods struct {
	node *v1.Node
	pods []podInfo
}

type podInfo struct{ pod *v1.Pod }

func (n nodePods) Node() *v1.Node { return n.node }

func (n nodePods) GetPods() []podInfo { return n.pods }

func (p podInfo) GetPod() *v1.Pod { return p.pod }
