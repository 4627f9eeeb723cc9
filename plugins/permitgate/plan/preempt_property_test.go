package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/plan"
)

// drawBusyCluster is a small cluster, full of pods of several priorities, gangs among them.
func drawBusyCluster(t *rapid.T) (*cluster, map[string]int) {
	c := newCluster()
	quorum := map[string]int{}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := node(fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), i), rapid.Int64Range(1, 6).Draw(t, "cpu"))
		free := n.Status.Allocatable.Cpu().Value()
		for k := range rapid.IntRange(0, 6).Draw(t, "pods") {
			cpu := rapid.Int64Range(1, 3).Draw(t, "cpu of a pod")
			if cpu > free {
				break
			}
			free -= cpu
			p := pod(fmt.Sprintf("old-%d-%d", i, k), cpu, rank(rapid.SampledFrom([]int32{1, 1, 2, gangPriority}).Draw(t, "priority")))
			if g := rapid.IntRange(0, 5).Draw(t, "gang"); g < 2 {
				name := fmt.Sprintf("g%d", g)
				p.Labels["gang"] = name
				quorum[name] = 0
			}
			if rapid.IntRange(0, 9).Draw(t, "leaving") == 0 {
				leaving(p)
			}
			p.Labels["tier"] = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tier")
			c.run(n.Name, p)
		}
		c.nodes = append(c.nodes, n)
	}
	for name := range quorum {
		quorum[name] = rapid.IntRange(1, 4).Draw(t, "minMember of "+name)
	}
	return c, quorum
}

// room is how many pods of equal needs the cluster takes.
func room(c *cluster, cpu int64) (total int64) {
	for _, n := range c.nodes {
		free := n.Status.Allocatable.Cpu().Value()
		for _, p := range c.pods[n.Name] {
			free -= value(v1.ResourceMemory, p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]) // in whole CPUs
		}
		total += free / cpu
	}
	return total
}

// TestPreemptionByBruteForce: for members with equal needs, a plan is found exactly when there is one with
// everybody gone who may go; nobody of the same or a higher priority goes, nobody goes in vain, and no gang is left with
// a part of its quorum.
func TestPreemptionByBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, quorum := drawBusyCluster(t)
		cpu := rapid.Int64Range(1, 4).Draw(t, "cpu of a member")
		gang := pods(rapid.IntRange(1, 6).Draw(t, "members"), "m", cpu)
		r := preemption(c, quorum, gang...)
		r.Need = rapid.IntRange(1, len(gang)).Draw(t, "need")
		for _, tier := range []string{"x", "y"} {
			r.Budgets = append(r.Budgets, budget(tier, rapid.Int32Range(0, 3).Draw(t, "allowed"), map[string]string{"tier": tier}))
		}
		got := plan.Preempt(r)

		var gone, coming []plan.Removal
		companies := map[*plan.Company][]plan.Removal{}
		for i, n := range c.nodes {
			for _, one := range r.Candidates(i, []v1.ResourceName{v1.ResourceCPU}) {
				at := slices.Index(c.pods[n.Name], one.Pod)
				require.GreaterOrEqual(t, at, 0)
				removal := plan.Removal{Pod: one.Pod, Node: i}
				switch {
				case one.Leaving:
					coming = append(coming, removal)
				case one.Company != nil:
					companies[one.Company] = append(companies[one.Company], removal)
				default:
					gone = append(gone, removal)
				}
			}
		}
		if got.Refusal != nil {
			require.Empty(t, got.Victims)
			require.Less(t, mostRoom(c, append(slices.Clone(gone), coming...), companies, cpu), int64(r.Need), "there is a plan")
			return
		}
		after := c.without(append(slices.Clone(got.Victims), coming...))
		require.GreaterOrEqual(t, len(got.Slots), r.Need)
		replay(t, after, got.Slots)
		for _, v := range got.Victims {
			require.Less(t, *v.Pod.Spec.Priority, int32(gangPriority), v.Pod.Name)
			require.Nil(t, v.Pod.DeletionTimestamp)
		}
		for name, minMember := range quorum {
			was, is := live(c, name), live(after, name)
			if is != was && is != 0 {
				require.GreaterOrEqual(t, is, minMember, "%s is left with %d of %d", name, is, was)
			}
		}
		taken := map[string]int{}
		for _, v := range got.Victims {
			taken[v.Pod.Labels["gang"]]++
		}
		tried := map[string]bool{}
		for _, v := range got.Victims {
			name := v.Pod.Labels["gang"]
			spared := func(o plan.Removal) bool { return o.Pod == v.Pod }
			if minMember, in := quorum[name]; in && live(after, name) == 0 && taken[name] > max(0, live(c, name)-minMember) {
				if tried[name] {
					continue
				}
				tried[name] = true
				spared = func(o plan.Removal) bool { return o.Pod.Labels["gang"] == name }
			}
			fewer := slices.DeleteFunc(slices.Clone(got.Victims), spared)
			require.Less(t, room(c.without(append(fewer, coming...)), cpu), int64(r.Need), "%s goes in vain", v.Pod.Name)
		}
	})
}

// mostRoom is the room when everybody has gone who may, by trying which of the spare members of other gangs go.
func mostRoom(c *cluster, gone []plan.Removal, companies map[*plan.Company][]plan.Removal, cpu int64) int64 {
	for co, all := range companies {
		rest := map[*plan.Company][]plan.Removal{}
		for other, members := range companies {
			if other != co {
				rest[other] = members
			}
		}
		if co.Whole {
			return mostRoom(c, append(slices.Clone(gone), all...), rest, cpu)
		}
		most := int64(0)
		for set := range 1 << len(all) {
			some := slices.Clone(gone)
			for i, one := range all {
				if set&(1<<i) != 0 {
					some = append(some, one)
				}
			}
			if len(some)-len(gone) <= co.Spare {
				most = max(most, mostRoom(c, some, rest, cpu))
			}
		}
		return most
	}
	return room(c.without(gone), cpu)
}

func live(c *cluster, gang string) (n int) {
	for _, pods := range c.pods {
		for _, p := range pods {
			if p.Labels["gang"] == gang && p.DeletionTimestamp == nil {
				n++
			}
		}
	}
	return n
}

// TestPreemptionHonoursEveryConstraint: whatever members ask for, the plan is one that stands when the victims are
// gone, and does not depend on the order in which things are listed.
func TestPreemptionHonoursEveryConstraint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, quorum := drawBusyCluster(t)
		for _, pods := range c.pods {
			for _, p := range pods {
				if rapid.IntRange(0, 3).Draw(t, "of the job") == 0 {
					p.Labels["job"] = "train"
				}
				if rapid.IntRange(0, 3).Draw(t, "port") == 0 {
					withPort(p)
				}
			}
		}
		gang := drawGang(t)
		for _, p := range gang {
			if rapid.IntRange(0, 3).Draw(t, "port of a member") == 0 {
				withPort(p)
			}
		}
		r := preemption(c, quorum, gang...)
		r.Openings = c.openings(r)
		r.Need = rapid.IntRange(1, len(gang)).Draw(t, "need")
		got := plan.Preempt(r)
		if got.Refusal != nil {
			require.Empty(t, got.Victims)
			require.Empty(t, got.Slots)
		} else {
			require.GreaterOrEqual(t, len(got.Slots), r.Need)
			replay(t, c.without(append(slices.Clone(got.Victims), leavingPods(r)...)), got.Slots)
			for name, minMember := range quorum {
				was, is := live(c, name), live(c.without(got.Victims), name)
				if is != was && is != 0 {
					require.GreaterOrEqual(t, is, minMember)
				}
			}
		}
		shuffled := newCluster(rapid.Permutation(c.nodes).Draw(t, "nodes")...)
		for name, pods := range c.pods {
			shuffled.pods[name] = rapid.Permutation(pods).Draw(t, "pods")
		}
		again := preemption(shuffled, quorum, rapid.Permutation(gang).Draw(t, "members")...)
		again.Need = r.Need
		again.Openings = shuffled.openings(again)
		other := plan.Preempt(again)
		require.Equal(t, victims(got), victims(other))
		require.Equal(t, placed(got.Result), placed(other.Result))
	})
}

func leavingPods(r *plan.Preemption) (all []plan.Removal) {
	for i := range r.Cluster.Len() {
		for _, one := range r.Candidates(i, nil) {
			if one.Leaving {
				all = append(all, plan.Removal{Pod: one.Pod, Node: i})
			}
		}
	}
	return all
}

// BenchmarkPreempt makes room for a gang of 500 in a full cluster of 5,000 nodes and 50,000 pods.
func BenchmarkPreempt(b *testing.B) {
	for name, changes := range map[string][]func(*v1.Pod){
		"plain":             nil,
		"spread over zones": {spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule)},
	} {
		for _, size := range []int{20, 500} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				c := newCluster()
				for i := range 5000 {
					n := node(fmt.Sprintf("%c%d", 'a'+i%3, i), 10)
					c.nodes = append(c.nodes, n)
					c.run(n.Name, pods(10, "old"+n.Name, 1, rank(int32(i%7)), func(p *v1.Pod) {
						p.Labels["tier"] = fmt.Sprint(i % 50)
					})...)
				}
				full := &fullCluster{cluster: c}
				r := preemption(c, nil, pods(size, "m", 2, changes...)...)
				r.Cluster, r.Parallel = full, parallel
				r.Without = func(gone []plan.Removal) plan.Cluster { return full.less(gone) }
				gain := map[v1.ResourceName]int64{v1.ResourceCPU: 1000, v1.ResourcePods: 1}
				r.Candidates = func(i int, names []v1.ResourceName) []plan.Candidate {
					all := make([]plan.Candidate, 0, 10)
					for _, p := range c.pods[c.nodes[i].Name] {
						one := plan.Candidate{Pod: p, Gain: make([]int64, len(names))}
						for j, name := range names {
							one.Gain[j] = gain[name]
						}
						all = append(all, one)
					}
					return all
				}
				for tier := range 50 {
					r.Budgets = append(r.Budgets, budget(fmt.Sprint(tier), int32(tier*3), map[string]string{"tier": fmt.Sprint(tier)}))
				}
				b.ReportAllocs()
				for b.Loop() {
					if got := plan.Preempt(r); got.Refusal != nil || len(got.Victims) != 2*size {
						b.Fatal(got.Refusal, len(got.Victims))
					}
				}
			})
		}
	}
}

// fullCluster is a cluster without free cpu that knows what is free, as a scheduler's snapshot does.
type fullCluster struct {
	*cluster
	gone map[int]map[types.UID]bool
}

func (c *fullCluster) less(gone []plan.Removal) *fullCluster {
	left := &fullCluster{cluster: c.cluster, gone: map[int]map[types.UID]bool{}}
	for _, g := range gone {
		if left.gone[g.Node] == nil {
			left.gone[g.Node] = map[types.UID]bool{}
		}
		left.gone[g.Node][g.Pod.UID] = true
	}
	return left
}

func (c *fullCluster) Free(i int, names []v1.ResourceName, into []int64) {
	gone := int64(len(c.gone[i]))
	for j, name := range names {
		into[j] = map[v1.ResourceName]int64{v1.ResourceCPU: 1000 * gone, v1.ResourcePods: 90 + gone}[name]
	}
}
