package proposal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/test/build"
)

func request(c *cluster, need int, classes ...proposal.Class) proposal.Request {
	return proposal.Request{Cluster: c, Classes: classes, Need: need, SpreadKey: v1.LabelTopologyZone}
}

func TestRefusalSaysWhy(t *testing.T) {
	c := &cluster{}
	c.add(2, 10)
	c.add(1, 10)
	c.add(8, 10).Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}}
	c.add(8, 10).Spec.Unschedulable = true
	c.add(8, 3)
	r := proposal.Make(request(c, 8, class("w", 8, newPod(1))))
	require.Equal(t, proposal.Refused, r.Verdict)
	require.Equal(t, 6, r.Bound)
	require.Equal(t, "2 nodes short of cpu, 1 node cordoned, 1 node short of pods, 1 node tainted", proposal.String(r.Reasons))
	require.Equal(t, "short of cpu and pods", proposal.Short(r.Reasons))
}

// TestKeptNodesAreSaid: a node that a gang keeps is named as such where it has room.
func TestKeptNodesAreSaid(t *testing.T) {
	c := &cluster{kept: func(at int, _ *v1.Pod) map[v1.ResourceName]int64 {
		if at == 2 {
			return nil
		}
		return map[v1.ResourceName]int64{v1.ResourceCPU: proposal.Unlimited, v1.ResourcePods: proposal.Unlimited}
	}}
	c.add(4, 9)
	c.add(0, 9)
	c.add(1, 9)
	r := proposal.Make(request(c, 2, class("w", 2, newPod(1))))
	require.Equal(t, proposal.Refused, r.Verdict)
	require.Equal(t, 1, r.Bound)
	require.Equal(t, "2 nodes short of cpu, 1 node kept for another gang", proposal.String(r.Reasons))
	require.Equal(t, "short of cpu, or kept for another gang", proposal.Short(r.Reasons))
}

// TestWordsThatStay: what becomes a condition of pods does not change with the number of nodes.
func TestWordsThatStay(t *testing.T) {
	c := &cluster{}
	c.add(1, 10)
	few := proposal.Short(proposal.Make(request(c, 3, class("w", 3, newPod(1)))).Reasons)
	c.add(0, 10)
	require.Equal(t, few, proposal.Short(proposal.Make(request(c, 3, class("w", 3, newPod(1)))).Reasons))
	require.Equal(t, "short of cpu", few)
}

// TestMembersTakeZonesInTurn, in whatever order the nodes come.
func TestMembersTakeZonesInTurn(t *testing.T) {
	c := &cluster{}
	for _, zone := range []string{"a", "a", "a", "b", "c"} {
		c.add(8, 10, v1.LabelTopologyZone, zone)
	}
	r := request(c, 6, class("w", 6, newPod(1)))
	zones := ""
	for _, slot := range slotsOf(&r, proposal.Make(r)) {
		zones += c.nodes[slot.at].Labels[v1.LabelTopologyZone]
	}
	require.Equal(t, "abcaaa", zones)
}

// TestBigMembersFirst: only one node takes the launcher, and the workers leave it.
func TestBigMembersFirst(t *testing.T) {
	c := &cluster{}
	c.add(6, 10)
	c.add(4, 10)
	c.add(4, 10)
	r := proposal.Make(request(c, 9, class("worker", 8, newPod(1)), class("launcher", 1, newPod(6))))
	require.Equal(t, proposal.Proposed, r.Verdict)
	require.Equal(t, proposal.Hint{Members: 1, Nodes: []int{0}}, r.Hints[1])
	require.NotContains(t, r.Hints[0].Nodes, 0, "the launcher's node is no alternative for a worker")
}

// TestPackingWhenTurnsDoNot: what is spread over all nodes leaves too little on any of them.
func TestPackingWhenTurnsDoNot(t *testing.T) {
	c := &cluster{}
	for range 4 {
		c.add(4, 10)
	}
	// A big one first on each node leaves 1; the three small ones of 2 need the fourth.
	r := proposal.Make(request(c, 6, class("big", 3, newPod(3)), class("small", 2, newPod(2)), class("one", 1, newPod(1))))
	require.Equal(t, proposal.Proposed, r.Verdict)
}

// TestSearchEndsWhenThereIsEnough: a small gang in a large cluster does not cost a look at every node.
func TestSearchEndsWhenThereIsEnough(t *testing.T) {
	c := &cluster{}
	for range 5000 {
		c.add(4, 10)
	}
	r := request(c, 3, class("w", 3, newPod(1)))
	r.Start = 4990
	result := proposal.Make(r)
	require.Equal(t, 3+proposal.Spare, result.Nodes)
	require.Equal(t, result.Nodes, c.asked)
	require.Equal(t, 4990, result.Hints[0].Nodes[0])
	require.Len(t, result.Hints[0].Nodes, 3+proposal.Spare)
}

func racks(sizes ...int64) *cluster {
	c := &cluster{}
	for i, cpu := range sizes {
		for range 2 {
			c.add(cpu, 100, "rack", fmt.Sprintf("r%d", i))
		}
	}
	c.add(100, 100) // in no rack
	return c
}

func TestTightestDomainThatHoldsAll(t *testing.T) {
	c := racks(1, 8, 4, 16)
	r := request(c, 8, class("w", 8, newPod(1)))
	r.Topology = proposal.Topology{Key: "rack", Required: true}
	require.Equal(t, "r2", proposal.Make(r).Domain)

	r.Topology.Tried = map[string]bool{"r2": true}
	require.Equal(t, "r1", proposal.Make(r).Domain, "the next after a rollback")
	r.Topology.Tried = map[string]bool{"r2": true, "r1": true, "r3": true}
	require.Equal(t, proposal.Exhausted, proposal.Make(r).Verdict)

	r.Topology = proposal.Topology{Key: "rack", Required: true, Domain: "r3"}
	require.Equal(t, "r3", proposal.Make(r).Domain, "where the others are")
}

func TestNoDomainHoldsAll(t *testing.T) {
	c := racks(1, 8, 4)
	r := request(c, 17, class("w", 17, newPod(1)))
	r.Topology = proposal.Topology{Key: "rack", Required: true}
	result := proposal.Make(r)
	require.Equal(t, proposal.Refused, result.Verdict)
	require.Equal(t, "r1", result.Domain, "the best")
	require.Equal(t, 16, result.Bound)
	require.Equal(t, "2 nodes short of cpu", proposal.String(result.Reasons))

	r.Topology.Required = false
	result = proposal.Make(r)
	require.Equal(t, proposal.Proposed, result.Verdict)
	require.Empty(t, result.Domain)

	r.Topology = proposal.Topology{Key: "block", Required: true}
	result = proposal.Make(r)
	require.Equal(t, proposal.Refused, result.Verdict)
	require.Equal(t, "7 nodes without the label block", proposal.String(result.Reasons))
}

func TestSelfAffinity(t *testing.T) {
	pod := newPod(1)
	require.Empty(t, proposal.SelfAffinity(pod))
	term := v1.PodAffinityTerm{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}
	pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
	require.Empty(t, proposal.SelfAffinity(pod))
	term.LabelSelector.MatchLabels["app"] = "train"
	require.Equal(t, "rack", proposal.SelfAffinity(pod))
}

func TestSignature(t *testing.T) {
	base := proposal.Signature(newPod(1))
	same := newPod(1)
	same.Name, same.UID, same.Labels["index"] = "other", "other", "7"
	require.Equal(t, base, proposal.Signature(same))
	for name, change := range map[string]func(*v1.Pod){
		"requests": asking(gpu, 1), "selector": build.Selects("disk", "ssd"), "affinity": apart(v1.LabelHostname),
		"ports":  func(pod *v1.Pod) { pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} },
		"claims": func(pod *v1.Pod) { pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}} },
	} {
		require.NotEqual(t, base, proposal.Signature(newPod(1, change)), name)
	}
}

// TestSignatureHasSelectedLabels: pods that differ in a label that their affinity or spread constraints select by are
// not alike.
func TestSignatureHasSelectedLabels(t *testing.T) {
	labelled := func(key, value string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Labels[key] = value } }
	away := func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}},
		}}}}
	}
	spread := func(pod *v1.Pod) {
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "role", Operator: "Exists"}}},
		}}
	}
	for _, selects := range []func(*v1.Pod){away, spread} {
		require.NotEqual(t, proposal.Signature(newPod(1, selects)), proposal.Signature(newPod(1, selects, labelled("role", "leader"))))
		require.Equal(t, proposal.Signature(newPod(1, selects)), proposal.Signature(newPod(1, selects, labelled("index", "7"))))
	}
}

// BenchmarkMake is what a scout's cycle pays: gangs of 3 and 500 on 5,000 nodes that are half full, one that no room is
// found for, and gangs of 1,000 of which each member has a host of its own, as Kueue's topology-aware scheduling makes
// them, with and without room.
func BenchmarkMake(b *testing.B) {
	c := &cluster{}
	onHosts := func(cpu int64) (classes []proposal.Class) {
		for i := range 1000 {
			classes = append(classes, class(fmt.Sprint(i), 1, newPod(cpu, build.Selects(v1.LabelHostname, fmt.Sprint("n", 5*i)))))
		}
		return classes
	}
	for i := range 5000 {
		c.add(4, 110, v1.LabelTopologyZone, fmt.Sprint(i%3))
	}
	for name, r := range map[string]proposal.Request{
		"3":       request(c, 3, class("w", 3, newPod(1))),
		"500":     request(c, 500, class("w", 500, newPod(1))),
		"refused": request(c, 500, class("w", 500, newPod(8))),
		"hosts":   request(c, 1000, onHosts(1)...), "hosts without room": request(c, 1000, onHosts(8)...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				proposal.Make(r)
			}
		})
	}
}
