package proposal_test

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/test/build"
)

const gpu = v1.ResourceName("example.com/gpu")

// TestAgainstBruteForce: a refusal is a proof, a proposal fits, and for members that are alike there is no third
// answer.
func TestAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		r := proposal.Request{
			Cluster: c, SpreadKey: v1.LabelTopologyZone,
			Start: rapid.IntRange(0, max(0, len(c.nodes)-1)).Draw(t, "start"),
		}
		total := 0
		for i := range rapid.IntRange(1, 3).Draw(t, "classes") {
			n := rapid.IntRange(1, 3).Draw(t, "members")
			total += n
			r.Classes = append(r.Classes, class(fmt.Sprint(i), n, drawPod(t)))
		}
		r.Need = rapid.IntRange(1, total).Draw(t, "need")
		if rapid.Bool().Draw(t, "kept") {
			owner := rapid.IntRange(0, len(r.Classes)-1).Draw(t, "owner")
			amounts := make([]int64, len(c.nodes))
			for i := range amounts {
				amounts[i] = int64(rapid.IntRange(0, 3).Draw(t, "promised")) * 1000
			}
			c.kept = func(at int, pod *v1.Pod) map[v1.ResourceName]int64 {
				if pod == r.Classes[owner].Pod {
					return nil
				}
				return map[v1.ResourceName]int64{v1.ResourceCPU: amounts[at]}
			}
		}
		if rapid.Bool().Draw(t, "packed") {
			r.Topology = proposal.Topology{Key: v1.LabelTopologyZone, Required: true}
			if rapid.Bool().Draw(t, "some are there") {
				r.Topology.Domain = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "domain")
			}
		}

		result := proposal.Make(r)
		most := bruteForce(c, &r)
		switch result.Verdict {
		case proposal.Refused:
			if most >= r.Need {
				t.Fatalf("refused %d, and %d fit", r.Need, most)
			}
			if result.Bound < most {
				t.Fatalf("at most %d, and %d fit", result.Bound, most)
			}
			if len(c.nodes) > 0 && len(result.Reasons) == 0 {
				t.Fatalf("refused without a reason")
			}
		case proposal.Proposed:
			verify(t, c, &r, result)
		case proposal.Unproven:
			if len(r.Classes) == 1 {
				t.Fatalf("members that are alike, and no answer")
			}
		case proposal.Exhausted:
			t.Fatalf("nothing has been tried")
		}
		if most >= r.Need && len(r.Classes) == 1 && result.Verdict != proposal.Proposed {
			t.Fatalf("%d of %d fit, and nothing is proposed", most, r.Need)
		}
	})
}

func drawCluster(t *rapid.T) *cluster {
	c := &cluster{}
	for range rapid.IntRange(0, 4).Draw(t, "nodes") {
		zone := rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "zone")
		labels := []string{"disk", rapid.SampledFrom([]string{"ssd", "hdd"}).Draw(t, "disk")}
		if zone != "" {
			labels = append(labels, v1.LabelTopologyZone, zone)
		}
		node := c.add(int64(rapid.IntRange(-1, 6).Draw(t, "cpu")), int64(rapid.IntRange(0, 4).Draw(t, "pods")), labels...)
		node.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0
		if rapid.IntRange(0, 4).Draw(t, "tainted") == 0 {
			node.Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}}
		}
		if rapid.Bool().Draw(t, "has gpus") {
			c.free[len(c.free)-1][gpu] = int64(rapid.IntRange(0, 3).Draw(t, "gpus"))
		}
	}
	return c
}

func drawPod(t *rapid.T) *v1.Pod {
	pod := newPod(int64(rapid.IntRange(0, 4).Draw(t, "asks for cpu")))
	if rapid.IntRange(0, 2).Draw(t, "asks for gpus") == 0 {
		asking(gpu, int64(rapid.IntRange(1, 2).Draw(t, "gpus")))(pod)
	}
	switch rapid.IntRange(0, 7).Draw(t, "selects") {
	case 0, 1:
		build.Selects("disk", "ssd")(pod)
	case 2:
		build.Selects(v1.LabelHostname, "n1")(pod)
	case 3:
		build.Selects("disk", "ssd")(pod)
		pod.Spec.NodeSelector[v1.LabelTopologyZone] = "a"
	}
	if rapid.Bool().Draw(t, "tolerates") {
		pod.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpExists}}
	}
	if rapid.IntRange(0, 3).Draw(t, "apart") == 0 {
		apart(v1.LabelHostname)(pod)
	}
	return pod
}

// board is an assignment of members to nodes that grows.
type board struct {
	c     *cluster
	r     *proposal.Request
	free  []map[v1.ResourceName]int64
	taken []map[int]int // by node and class
}

func newBoard(c *cluster, r *proposal.Request) *board {
	b := &board{c: c, r: r}
	for _, free := range c.free {
		b.free = append(b.free, maps.Clone(free))
		b.taken = append(b.taken, map[int]int{})
	}
	return b
}

// takes says whether a node takes one more member of a class, as the filters would.
func (b *board) takes(at, index int) bool {
	node, pod := b.c.nodes[at], b.r.Classes[index].Pod
	if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 && len(pod.Spec.Tolerations) == 0 {
		return false
	}
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	if pod.Spec.Affinity != nil && b.taken[at][index] > 0 {
		return false
	}
	kept := map[v1.ResourceName]int64{}
	if b.c.kept != nil {
		kept = b.c.kept(at, pod)
	}
	for _, a := range proposal.Requests(pod) {
		if have, counted := b.free[at][a.Name]; counted && a.Value > have-kept[a.Name] {
			return false
		}
	}
	return true
}

func (b *board) put(at, index, by int) {
	for _, a := range proposal.Requests(b.r.Classes[index].Pod) {
		if _, counted := b.free[at][a.Name]; counted {
			b.free[at][a.Name] -= a.Value * int64(by)
		}
	}
	b.taken[at][index] += by
}

// bruteForce returns how many members can be placed at most.
func bruteForce(c *cluster, r *proposal.Request) int {
	var members []int
	for index := range r.Classes {
		for range r.Classes[index].Members {
			members = append(members, index)
		}
	}
	best := 0
	domains := []string{""}
	if r.Topology.Key != "" {
		domains = []string{"a", "b"}
		if r.Topology.Domain != "" {
			domains = []string{r.Topology.Domain}
		}
	}
	for _, domain := range domains {
		b := newBoard(c, r)
		var try func(m, placed int)
		try = func(m, placed int) {
			best = max(best, placed)
			if m == len(members) || placed+len(members)-m <= best {
				return
			}
			for at := range c.nodes {
				if domain != "" && c.nodes[at].Labels[r.Topology.Key] != domain || !b.takes(at, members[m]) {
					continue
				}
				b.put(at, members[m], 1)
				try(m+1, placed+1)
				b.put(at, members[m], -1)
			}
			try(m+1, placed)
		}
		try(0, 0)
	}
	return best
}

// verify checks that a proposal fits.
func verify(t *rapid.T, c *cluster, r *proposal.Request, result proposal.Result) {
	slots := slotsOf(r, result)
	if len(slots) < r.Need {
		t.Fatalf("%d members have a node, and %d are needed", len(slots), r.Need)
	}
	b := newBoard(c, r)
	for _, slot := range slots {
		if !newBoard(c, r).takes(slot.at, slot.class) {
			t.Fatalf("%s does not fit on %s", slot.member, c.nodes[slot.at].Name)
		}
	}
	// What is promised to some members is taken by them: together they are measured by what is free.
	c.kept = nil
	for _, slot := range slots {
		if !b.takes(slot.at, slot.class) {
			t.Fatalf("%s does not fit on %s beside the others", slot.member, c.nodes[slot.at].Name)
		}
		b.put(slot.at, slot.class, 1)
		if key := r.Topology.Key; key != "" && c.nodes[slot.at].Labels[key] != result.Domain {
			t.Fatalf("%s is outside of %s", slot.member, result.Domain)
		}
	}
	for index, hint := range result.Hints {
		for _, at := range hint.Nodes[hint.Members:] {
			if !b.takes(at, index) {
				t.Fatalf("class %d may be tried on %s, which is full", index, c.nodes[at].Name)
			}
		}
	}
}
