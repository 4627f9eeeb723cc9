package proposal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	// maxReasons limits how many reasons a refusal gives.
	maxReasons = 6
	shortOf    = "short of "
	and        = " and "
	// keptForGang is the reason of a node with room, on which a gang keeps that for itself.
	keptForGang = "kept for another gang"
)

// reasons returns why the nodes take no more members of the scarcest class, once as many as possible are placed. With a
// domain it is about that domain's nodes.
func (s *search) reasons(domain string) []Reason {
	index := s.scarcest()
	count := map[string]int{}
	for at := range s.Cluster.Len() {
		if key := s.Topology.Key; key != "" {
			switch value, labelled := s.Cluster.Node(at).Labels[key]; {
			case domain == "" && !labelled:
				count["without the label "+key]++
				continue
			case domain != "" && value != domain:
				continue
			}
		}
		s.Cluster.Free(at, s.names, s.free)
		count[s.obstacleTo(index, at)]++
	}
	if len(count) == 0 && domain != "" {
		return []Reason{{Words: "in " + domain}}
	}
	reasons := make([]Reason, 0, len(count))
	for reason, nodes := range count {
		reasons = append(reasons, Reason{Nodes: nodes, Words: reason})
	}
	slices.SortFunc(reasons, func(x, y Reason) int {
		return cmp.Or(cmp.Compare(y.Nodes, x.Nodes), cmp.Compare(x.Words, y.Words))
	})
	return reasons[:min(len(reasons), maxReasons)]
}

// scarcest returns the class that lacks the most room.
func (s *search) scarcest() int {
	fits := make([]int, len(s.classes))
	for i := range s.sites {
		for _, r := range s.sites[i].rooms {
			fits[r.class] += r.fit
		}
	}
	worst, least := 0, 2.0
	for c, fit := range fits {
		if share := float64(fit) / float64(max(1, len(s.classes[c].Members))); share < least {
			worst, least = c, share
		}
	}
	return worst
}

// obstacleTo describes what keeps one more member of a class off a node that has as many as it can take.
func (s *search) obstacleTo(index, at int) string {
	c := s.classes[index]
	if v := c.static.check(s.Cluster.Node(at)); v != possible {
		return v.words()
	}
	clear(s.kept)
	s.Cluster.Kept(at, c.Pod, s.names, s.kept)
	if len(s.kept) > 0 && s.kept[0] >= Unlimited {
		if fit(s.free, nil, c.request, 1) > 0 {
			return keptForGang
		}
		clear(s.kept)
	}
	n := int64(fit(s.free, s.kept, c.request, len(c.Members)))
	if n > 0 && c.onePerNode(s.Cluster.Node(at)) {
		return "with a member already (one per node)"
	}
	lacks := ""
	for j, want := range c.request {
		switch {
		case want == 0 || s.free[j]-s.kept[j]-n*want >= want:
		case lacks == "":
			lacks = string(s.names[j])
		default:
			lacks += and + string(s.names[j])
		}
	}
	if lacks == "" {
		return "with room"
	}
	return shortOf + lacks
}

// String describes reasons, such as "41 nodes short of cpu, 3 nodes tainted".
func String(reasons []Reason) string {
	if len(reasons) == 0 {
		return "there are no nodes"
	}
	described := make([]string, len(reasons))
	for i, reason := range reasons {
		if reason.Nodes == 1 {
			described[i] = "1 node " + reason.Words
		} else {
			described[i] = fmt.Sprintf("%d nodes %s", reason.Nodes, reason.Words)
		}
	}
	return strings.Join(described, ", ")
}

// Short lists the reasons without numbers and in a fixed order, so that the text stays the same while the cluster fills
// and empties. Full nodes are a better reason than nodes that can never take a member: what they lack is said once, and
// alone but for nodes that are kept for a gang.
func Short(reasons []Reason) string {
	var lacking, others []string
	kept := ""
	for _, r := range reasons {
		if lacks, ok := strings.CutPrefix(r.Words, shortOf); ok {
			lacking = append(lacking, strings.Split(lacks, and)...)
		} else {
			others = append(others, r.Words)
		}
		if r.Words == keptForGang {
			kept = ", or " + keptForGang
		}
	}
	if len(lacking) > 0 {
		return shortOf + strings.Join(distinct(lacking), and) + kept
	}
	return strings.Join(distinct(others), ", ")
}

// distinct sorts words and drops repeated ones.
func distinct(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
