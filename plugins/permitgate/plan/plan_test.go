package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/plan"
)

func TestLauncherAndWorkers(t *testing.T) {
	// Only the big node takes the launcher, and it is the one that the workers would fill first.
	c := newCluster(node("a1", 8), node("b1", 4), node("b2", 4))
	gang := append(pods(8, "worker", 1), pod("zz-launcher", 8))
	r := plan.Make(request(c, gang...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"a1": 1, "b1": 4, "b2": 4}, byNode(r))
	for _, s := range r.Slots {
		require.Equal(t, s.Pod.Name == "zz-launcher", s.Node == "a1")
	}
}

func TestSmallMembersMakeTheQuorumWhereTheBiggestWouldTakeItAll(t *testing.T) {
	c := newCluster(node("a1", 4))
	r := plan.Request{Members: members(append(pods(4, "small", 1), pod("big", 4))...), Need: 4, Cluster: c}
	require.Nil(t, plan.Make(r).Refusal)
	r.Need = 5
	require.NotNil(t, plan.Make(r).Refusal)
}

func TestMembersBeyondTheQuorumGetANodeWhereTheyFit(t *testing.T) {
	r := plan.Make(plan.Request{Members: members(pods(6, "m", 1)...), Need: 3, Cluster: newCluster(node("a1", 4))})
	require.Nil(t, r.Refusal)
	require.Len(t, r.Slots, 4)
	require.Equal(t, "m-0", r.Slots[0].Pod.Name, "the oldest first")
}

func TestRefusalInWords(t *testing.T) {
	withTaint := func(n *v1.Node) *v1.Node {
		n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		return n
	}
	cordon := func(n *v1.Node) *v1.Node {
		n.Spec.Unschedulable = true
		return n
	}
	c := newCluster(node("a1", 2), node("a2", 2), node("b1", 2), withTaint(node("b2", 9)), cordon(node("c1", 9)))
	r := plan.Make(request(c, pods(10, "m", 1)...))
	require.Equal(t, 6, r.Refusal.Found)
	require.Equal(t, "3 nodes short of cpu, 1 node cordoned, 1 node tainted", r.Refusal.String())
	require.Equal(t, "m-6", r.Refusal.Pod.Name)

	require.Equal(t, "there are no nodes", plan.Make(request(newCluster(), pod("m", 1))).Refusal.String())

	picky := pod("m", 1, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "yes"} })
	require.Equal(t, "5 nodes outside of the node selector or affinity",
		plan.Make(request(newCluster(node("a1", 1), node("a2", 1), node("a3", 1), node("a4", 1), node("a5", 1)), picky)).Refusal.String())

	excluded := request(newCluster(node("a1", 1), node("a2", 1)), pod("m", 1))
	excluded.Members[0].Excluded = &plan.Exclusions{Nodes: map[string]string{"a1": "refused by X", "a2": "refused by X"}}
	require.Equal(t, "2 nodes refused by X", plan.Make(excluded).Refusal.String())
}

func TestFullZoneHoldsTheOthersBack(t *testing.T) {
	c := newCluster(node("a1", 9), node("b1", 9), node("c1", 2))
	gang := pods(10, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule))
	r := plan.Make(request(c, gang...))
	require.Equal(t, 8, r.Refusal.Found)
	require.Equal(t, "2 nodes more than 1 ahead in topology.kubernetes.io/zone, 1 node short of cpu, c full", r.Refusal.String())

	r = plan.Make(request(c, gang[:8]...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 2}, byZone(r))
}

func TestSpreadCountsWhatIsThere(t *testing.T) {
	c := newCluster(node("a1", 9), node("b1", 9)).run("a1", pods(3, "old", 1)...)
	r := plan.Make(request(c, pods(3, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule))...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"b": 3}, byZone(r))

	// Pods that terminate, of another namespace, or of another revision do not count.
	c = newCluster(node("a1", 9), node("b1", 9))
	for i, p := range pods(3, "old", 1) {
		switch i {
		case 0:
			now := p.CreationTimestamp
			p.DeletionTimestamp = &now
		case 1:
			p.Namespace = "other"
		case 2:
			p.Labels["rev"] = "1"
		}
		c.run("a1", p)
	}
	byRevision := func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev"} }
	r = plan.Make(request(c, pods(4, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule, byRevision), func(p *v1.Pod) { p.Labels["rev"] = "2" })...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"a": 2, "b": 2}, byZone(r))
}

func TestMinDomains(t *testing.T) {
	three := func(c *v1.TopologySpreadConstraint) { c.MinDomains = ptr.To(int32(3)) }
	gang := pods(3, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule, three))
	r := plan.Make(request(newCluster(node("a1", 9), node("b1", 9)), gang...))
	require.Equal(t, 2, r.Refusal.Found)
	require.Contains(t, r.Refusal.String(), "2 of 3 domains of topology.kubernetes.io/zone exist")
	require.Nil(t, plan.Make(request(newCluster(node("a1", 9), node("b1", 9), node("c1", 9)), gang...)).Refusal)
}

func TestNodeInclusionPolicies(t *testing.T) {
	tainted := node("c1", 9)
	tainted.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	c := newCluster(node("a1", 9), node("b1", 9), tainted)
	honor := func(c *v1.TopologySpreadConstraint) { c.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor) }
	require.Equal(t, 2, plan.Make(request(c, pods(4, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule))...)).Refusal.Found,
		"the tainted zone counts and stays empty")
	require.Nil(t, plan.Make(request(c, pods(4, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule, honor))...)).Refusal)
}

func TestSoftSpreadIsPreferred(t *testing.T) {
	c := newCluster(node("a1", 4), node("b1", 9), node("c1", 1))
	r := plan.Make(request(c, pods(9, "m", 1, spread(v1.LabelTopologyZone, 1, v1.ScheduleAnyway))...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"a": 4, "b": 4, "c": 1}, byZone(r))
}

func TestMembersApart(t *testing.T) {
	c := newCluster(node("a1", 9), node("a2", 9), node("b1", 9))
	gang := pods(3, "m", 1, apart(v1.LabelHostname))
	require.Equal(t, map[string]int{"a1": 1, "a2": 1, "b1": 1}, byNode(plan.Make(request(c, gang...))))
	r := plan.Make(request(c, pods(4, "m", 1, apart(v1.LabelHostname))...))
	require.Equal(t, "3 nodes kept by the anti-affinity over kubernetes.io/hostname", r.Refusal.String())

	// One that minds the others, who do not mind it.
	loner := pod("loner", 1, apart(v1.LabelTopologyZone))
	r = plan.Make(request(c, append(pods(2, "m", 1), loner)...))
	require.Nil(t, r.Refusal)
	zones := map[string]string{}
	for _, s := range r.Slots {
		zones[s.Pod.Name] = s.Node[:1]
	}
	require.NotEqual(t, zones["loner"], zones["m-0"])
	require.NotEqual(t, zones["loner"], zones["m-1"])

	c.run("a1", pod("old", 1))
	require.Equal(t, 2, plan.Make(request(c, gang...)).Refusal.Found, "whom they mind is there")
}

func TestMembersTogether(t *testing.T) {
	// The node with the least to spare is in a zone that cannot hold all.
	c := newCluster(node("a1", 1), node("a2", 1), node("b1", 2), node("b2", 3), node("c1", 9))
	r := plan.Make(request(c, pods(5, "m", 1, together(v1.LabelTopologyZone))...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"b": 5}, byZone(r), "the tightest zone that holds all")

	r = plan.Make(request(c, pods(10, "m", 1, together(v1.LabelTopologyZone))...))
	require.Equal(t, 9, r.Refusal.Found)
	require.Contains(t, r.Refusal.String(), "away from the pods of the affinity over topology.kubernetes.io/zone")

	c.run("a1", pod("old", 0))
	r = plan.Make(request(c, pods(2, "m", 1, together(v1.LabelTopologyZone))...))
	require.Equal(t, map[string]int{"a": 2}, byZone(r), "where the pods are that they want to be with")
}

func TestFollowersComeAfterWhomTheyFollow(t *testing.T) {
	// The followers are bigger, and are tried first.
	lead := pod("lead", 1, func(p *v1.Pod) {
		p.Labels = map[string]string{"role": "lead"}
		p.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "b"}
	})
	followers := pods(2, "follower", 4, func(p *v1.Pod) {
		together(v1.LabelTopologyZone)(p)
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = &metav1.LabelSelector{MatchLabels: lead.Labels}
	})
	c := newCluster(node("a1", 8), node("b1", 9))
	r := plan.Make(request(c, append(followers, lead)...))
	require.Nil(t, r.Refusal)
	require.Equal(t, map[string]int{"b": 3}, byZone(r))
}

func TestHostPorts(t *testing.T) {
	port := func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 8080, ContainerPort: 8080}}
	}
	c := newCluster(node("a1", 9), node("a2", 9), node("b1", 9)).run("b1", pod("old", 1, port))
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, byNode(plan.Make(request(c, pods(2, "m", 1, port)...))))
	r := plan.Make(request(c, pods(3, "m", 1, port)...))
	require.Equal(t, "2 nodes with the host port planned for another member, 1 node with its host port taken", r.Refusal.String())
}

func TestResourcesThatTheSchedulerDoesNotCount(t *testing.T) {
	p := pod("m", 1, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("2")
		p.Spec.Containers[0].Resources.Requests["unprefixed"] = resource.MustParse("2")
	})
	c := newCluster(node("a1", 9))
	require.Equal(t, "1 node short of example.com/gpu", plan.Make(request(c, p)).Refusal.String())
	c.nodes[0].Status.Allocatable["example.com/gpu"] = resource.MustParse("2")
	require.Nil(t, plan.Make(request(c, p)).Refusal)
}

// zoneCap is Rules that let so many members into each zone.
type zoneCap struct {
	most  int
	count map[string]int
}

func (z *zoneCap) Domain(n *v1.Node) string { return n.Labels[v1.LabelTopologyZone] }
func (z *zoneCap) Check(n *v1.Node) string {
	if z.count[z.Domain(n)] >= z.most {
		return "in a zone that has " + fmt.Sprint(z.most)
	}
	return ""
}
func (z *zoneCap) Add(_ *v1.Pod, n *v1.Node)    { z.count[z.Domain(n)]++ }
func (z *zoneCap) Remove(_ *v1.Pod, n *v1.Node) { z.count[z.Domain(n)]-- }

func TestRules(t *testing.T) {
	c := newCluster(node("a1", 9), node("b1", 9))
	r := request(c, append(pods(6, "m", 1), pods(6, "free", 1)...)...)
	r.RulesKey = func(p *v1.Pod) string {
		if strings.HasPrefix(p.Name, "free") {
			return ""
		}
		return "capped"
	}
	asked := map[string]int{}
	r.Rules = func(p *v1.Pod) plan.Rules {
		asked[p.Name]++
		return &zoneCap{most: 6, count: map[string]int{}}
	}
	got := plan.Make(r)
	require.Nil(t, got.Refusal)
	require.Equal(t, map[string]int{"m-0": 1}, asked, "once for pods that are limited alike")
	require.Len(t, got.Slots, 12)

	r = request(c, pods(7, "m", 1)...)
	r.RulesKey = func(*v1.Pod) string { return "capped" }
	r.Rules = func(*v1.Pod) plan.Rules { return &zoneCap{most: 3, count: map[string]int{}} }
	got = plan.Make(r)
	require.Equal(t, 6, got.Refusal.Found)
	require.Equal(t, "2 nodes in a zone that has 3", got.Refusal.String())
}
