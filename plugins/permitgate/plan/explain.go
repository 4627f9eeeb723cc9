package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxReasons bounds how many reasons a refusal gives.
const maxReasons = 6

// String says the reasons in words, such as "41 nodes short of cpu, 3 nodes tainted, zone-c full".
func (r *Refusal) String() string {
	if len(r.Reasons) == 0 {
		return "there are no nodes"
	}
	words := make([]string, len(r.Reasons))
	for i, reason := range r.Reasons {
		switch reason.Nodes {
		case 0:
			words[i] = reason.Words
		case 1:
			words[i] = "1 node " + reason.Words
		default:
			words[i] = fmt.Sprintf("%d nodes %s", reason.Nodes, reason.Words)
		}
	}
	return strings.Join(words, ", ")
}

// Words says why a gang has no plan that needs minMember members, of which settled are placed already or need no node.
func (r *Refusal) Words(minMember, settled int) string {
	return fmt.Sprintf("needs %d, plan found %d: %s", minMember, settled+r.Found, r)
}

// refusal says why the first class that was not placed in full got no further.
func (a *attempt) refusal() *Refusal {
	r := &Refusal{Found: a.placed}
	index := -1
	for i, c := range a.p.classes {
		if len(a.nodes[i]) < len(c.pods) && (index < 0 || c.size > a.p.classes[index].size) {
			index = i
		}
	}
	if index < 0 {
		return r
	}
	c := a.p.classes[index]
	r.Pod = c.pods[len(a.nodes[index])]
	count := map[string]int{}
	for i := range c.static {
		count[a.why(index, i)]++
	}
	for words, nodes := range count {
		r.Reasons = append(r.Reasons, Reason{Nodes: nodes, Words: words})
	}
	slices.SortFunc(r.Reasons, func(x, y Reason) int {
		if d := cmp.Compare(y.Nodes, x.Nodes); d != 0 {
			return d
		}
		return cmp.Compare(x.Words, y.Words)
	})
	r.Reasons = r.Reasons[:min(len(r.Reasons), maxReasons)]
	for _, s := range c.spread {
		r.Reasons = append(r.Reasons, a.full(index, s)...)
	}
	return r
}

// why says in words what keeps one more pod of a class off a node.
func (a *attempt) why(index, node int) string {
	p, c := a.p, a.p.classes[index]
	if v := c.static[node]; v == excluded {
		return c.excluded.Nodes[p.Cluster.Node(node).Name]
	} else if v != possible {
		return v.words()
	}
	if short := a.short(c, node); short != "" {
		return "short of " + short
	}
	for _, s := range c.spread {
		if a.ahead(s, node) {
			return fmt.Sprintf("more than %d ahead in %s", p.spread[s].maxSkew, p.spread[s].key)
		}
	}
	for t, from := range p.terms {
		if !a.minds(t, index, node) {
			continue
		}
		if from.anti {
			return "kept by the anti-affinity over " + from.key
		}
		return "away from the pods of the affinity over " + from.key
	}
	for k := range c.ports {
		if conflicts(&c.ports[k], a.ports[node]) {
			return "with the host port planned for another member"
		}
	}
	if r := a.rules[index]; r != nil {
		if words := r.check(p, node); words != "" {
			return words
		}
	}
	return "not tried" // the quorum was placed without this member, or by another variant
}

// short names the resources that a node lacks for one more pod of the class.
func (a *attempt) short(c *class, node int) string {
	k := len(c.request)
	var lacks []string
	for j, free := range a.free[node*k:][:k] {
		if c.request[j] > free && c.request[j] > 0 {
			lacks = append(lacks, string(a.p.names[j]))
		}
	}
	return strings.Join(lacks, " and ")
}

// full names the domains that hold back the others of a hard constraint because they can take no more.
func (a *attempt) full(index, s int) []Reason {
	c, from := a.p.classes[index], a.p.spread[s]
	if !from.hard || len(from.names) > 64 {
		return nil // hosts: their nodes have been counted
	}
	behind := false
	for i := range c.static {
		if c.static[i] == possible && a.fits(c, i) && a.ahead(s, i) {
			behind = true
			break
		}
	}
	if !behind {
		return nil
	}
	room := make([]bool, len(from.names))
	for i, d := range from.domainOf {
		if d >= 0 && c.static[i] == possible && a.fits(c, i) {
			room[d] = true
		}
	}
	var reasons []Reason
	domains := 0
	for d, name := range from.names {
		if !from.exists[d] {
			continue
		}
		domains++
		if a.spread[s][d] == a.least[s] && !room[d] {
			reasons = append(reasons, Reason{Words: name + " full"})
		}
	}
	slices.SortFunc(reasons, func(x, y Reason) int { return cmp.Compare(x.Words, y.Words) })
	if domains < from.minDomains {
		reasons = append(reasons, Reason{Words: fmt.Sprintf("%d of %d domains of %s exist", domains, from.minDomains, from.key)})
	}
	return reasons
}
