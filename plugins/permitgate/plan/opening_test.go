package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/plan"
)

// withPort gives a pod the one host port of these tests.
func withPort(p *v1.Pod) {
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 8080, ContainerPort: 8080}}
}

func samePort(a, b *v1.Pod) bool {
	return len(a.Spec.Containers[0].Ports) > 0 && len(b.Spec.Containers[0].Ports) > 0
}

// shuns reports whether a pod keeps away from another on its node, by its anti-affinity.
func shuns(a, b *v1.Pod) bool {
	affinity := a.Spec.Affinity
	return affinity != nil && affinity.PodAntiAffinity != nil && b.Labels["job"] == "train" &&
		affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey == v1.LabelHostname
}

// openings answers as a scheduler's filters would: who closes a node to a pod by host port or anti-affinity.
func (c *cluster) openings(r *plan.Preemption) func(*v1.Pod, []int) map[int][]types.UID {
	return func(member *v1.Pod, nodes []int) map[int][]types.UID {
		opened := map[int][]types.UID{}
		for _, i := range nodes {
			mayGo := sets.New[types.UID]()
			for _, one := range r.Candidates(i, nil) {
				mayGo.Insert(one.Pod.UID)
			}
			var closing []types.UID
			for _, p := range c.pods[c.nodes[i].Name] {
				if p.DeletionTimestamp == nil && (samePort(member, p) || shuns(member, p) || shuns(p, member)) {
					closing = append(closing, p.UID)
				}
			}
			if mayGo.HasAll(closing...) {
				opened[i] = closing
			}
		}
		return opened
	}
}

// TestWhoStandsInTheWay: who goes that closes a node to a gang by something else than room.
func TestWhoStandsInTheWay(t *testing.T) {
	low, high := rank(1), rank(gangPriority)
	ofJob := func(p *v1.Pod) { p.Labels["job"] = "train" }
	other := func(p *v1.Pod) { p.Labels["job"] = "other" }
	excludedFrom := func(pods []*v1.Pod, nodes ...string) []plan.Member {
		x := &plan.Exclusions{Nodes: map[string]string{}}
		for _, n := range nodes {
			x.Nodes[n] = "refused by InterPodAffinity"
		}
		all := members(pods...)
		for i := range all {
			all[i].Excluded = x
		}
		return all
	}
	for name, test := range map[string]struct {
		cluster  *cluster
		quorum   map[string]int
		gang     []*v1.Pod
		excluded []string
		want     []string // the victims; nil when there is no plan
	}{
		"host ports": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).run("a1", pod("p1", 1, low, withPort), pod("q1", 1, low)).
				run("a2", pod("p2", 1, low, withPort), pod("q2", 1, low)),
			gang: pods(2, "m", 1, withPort), want: []string{"p1", "p2"},
		},
		"host ports, and room besides": {
			cluster: newCluster(node("a1", 4)).run("a1", pod("port", 1, low, withPort), pod("large", 2, low), pod("small", 1, low)),
			gang:    pods(1, "m", 3, withPort), want: []string{"large", "port"},
		},
		"room alone, where that does": {
			cluster: newCluster(node("a1", 8), node("a2", 1)).run("a1", pod("port", 1, low, withPort)).run("a2", pod("room", 1, low)),
			gang:    pods(1, "m", 1, withPort), want: []string{"room"},
		},
		"a host port of a better": {
			cluster: newCluster(node("a1", 8)).run("a1", pod("port", 1, high, withPort)), gang: pods(1, "m", 1, withPort), want: nil,
		},
		"nobody when one node opens and two are needed": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).run("a1", pod("p1", 1, low, withPort)).run("a2", pod("p2", 1, high, withPort)),
			gang:    pods(2, "m", 1, withPort), want: nil,
		},
		"whom the members keep away from": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).run("a1", pod("s1", 1, low, ofJob), pod("q1", 1, low)).
				run("a2", pod("s2", 1, low, ofJob)),
			gang: pods(2, "m", 1, apart(v1.LabelHostname)), want: []string{"s1", "s2"},
		},
		"who keeps away from the members": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).run("a1", pod("s1", 1, low, other, apart(v1.LabelHostname)), pod("q1", 1, low)).
				run("a2", pod("s2", 1, high, other, apart(v1.LabelHostname))),
			gang: pods(2, "m", 1), excluded: []string{"a1", "a2"}, want: []string{"s1"},
		},
		"nobody where the filters refuse for another reason": {
			cluster: newCluster(node("a1", 8)).run("a1", pod("q1", 1, low)), gang: pods(1, "m", 1), excluded: []string{"a1"}, want: nil,
		},
		"a gang with all that is left of it": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).
				run("a1", pod("g1", 1, low, inCompany("g"), withPort)).run("a2", pod("g2", 1, low, inCompany("g"))),
			quorum: map[string]int{"g": 2}, gang: pods(1, "m", 1, withPort, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "a1"} }),
			want: []string{"g1", "g2"},
		},
		"no part of a gang that stays": {
			cluster: newCluster(node("a1", 8), node("a2", 8)).
				run("a1", pod("g1", 1, low, inCompany("g"), withPort)).run("a2", pod("g2", 1, high, inCompany("g"), withPort)),
			quorum: map[string]int{"g": 2}, gang: pods(1, "m", 1, withPort), want: nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := preemption(test.cluster, test.quorum, test.gang...)
			if test.excluded != nil {
				r.Members = excludedFrom(test.gang, test.excluded...)
			}
			r.Openings = test.cluster.openings(r)
			got := plan.Preempt(r)
			if test.want == nil {
				require.NotNil(t, got.Refusal)
				require.Empty(t, got.Victims)
				return
			}
			require.Nil(t, got.Refusal)
			require.Equal(t, test.want, victims(got))
			require.Len(t, got.Slots, len(test.gang))
		})
	}
}

// TestOpeningsAreVerified: who is said to close a node, and does not, goes in vain; so nobody goes.
func TestOpeningsAreVerified(t *testing.T) {
	c := newCluster(node("a1", 8)).run("a1", pod("port", 1, rank(gangPriority), withPort), pod("low", 1, rank(1)))
	r := preemption(c, nil, pods(1, "m", 1, withPort)...)
	r.Openings = func(*v1.Pod, []int) map[int][]types.UID { return map[int][]types.UID{0: {"low"}} }
	got := plan.Preempt(r)
	require.NotNil(t, got.Refusal)
	require.Empty(t, got.Victims)
}

// TestExclusionUnless: an exclusion ends with the pods that cause it.
func TestExclusionUnless(t *testing.T) {
	c := newCluster(node("a1", 8), node("a2", 8)).run("a1", pod("one", 1, rank(1)), pod("two", 1, rank(1)))
	r := request(c, pods(1, "m", 1)...)
	r.Members[0].Excluded = &plan.Exclusions{
		Nodes:  map[string]string{"a1": "refused", "a2": "refused"},
		Unless: map[string][]types.UID{"a1": {"one"}},
	}
	require.NotNil(t, plan.Make(r).Refusal)
	r.Cluster = c.without([]plan.Removal{{Pod: pod("one", 1)}})
	require.Equal(t, map[string]int{"a1": 1}, byNode(plan.Make(r)))
}
