package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// attempt places the members in one way.
type attempt struct {
	p      *planner
	free   []int64
	spread [][]int // counts by constraint and domain
	least  []int   // by constraint
	terms  []termState
	rules  []*ruleState // by class
	ports  map[int][]v1.ContainerPort
	nodes  [][]int // by class, of the first of its pods
	limit  []int   // by class: how many of its pods are tried
	seq    [][]int // by class, the place of each of nodes in the order of all
	placed int
	// only confines the members of a term to one domain, see variants.
	only map[int]int32
}

// termState is a term as the attempt goes on.
type termState struct {
	company []int32 // how many pods of a domain the term matches
	owners  []bool  // domains with a member that the term belongs to
	total   int32   // of company
}

// ruleState is a class's Rules, asked once for each domain between two placements.
type ruleState struct {
	rules    Rules
	domainOf []int32
	sample   []int // a node of each domain
	words    []string
	fresh    bool
}

// try places what it can.
func (p *planner) try(v variant) *attempt {
	a := p.begin(v)
	// What one class places may be what another waits for: its spread, or its company.
	for progress := true; progress; {
		progress = false
		for _, i := range v.order {
			if a.place(i) > 0 {
				progress = true
			}
		}
	}
	return a
}

// begin returns an attempt that has placed nobody.
func (p *planner) begin(v variant) *attempt {
	a := &attempt{
		p: p, free: slices.Clone(p.free), only: v.only,
		spread: make([][]int, len(p.spread)), least: make([]int, len(p.spread)),
		terms: make([]termState, len(p.terms)), rules: make([]*ruleState, len(p.classes)),
		ports: map[int][]v1.ContainerPort{}, nodes: make([][]int, len(p.classes)), seq: make([][]int, len(p.classes)), limit: v.limit,
	}
	for s, c := range p.spread {
		a.spread[s] = slices.Clone(c.counts)
		a.least[s] = c.least(a.spread[s])
	}
	for t, from := range p.terms {
		a.terms[t] = termState{company: slices.Clone(from.company), owners: make([]bool, len(from.names)), total: from.total}
	}
	for i, c := range p.classes {
		if c.hasRules && p.Rules != nil {
			a.rules[i] = p.newRules(c)
		}
	}
	return a
}

func (p *planner) newRules(c *class) *ruleState {
	rules := p.Rules(c.pods[0])
	if rules == nil {
		return nil
	}
	for _, gone := range p.Removed {
		rules.Remove(gone.Pod, p.Cluster.Node(gone.Node))
	}
	r := &ruleState{rules: rules, domainOf: make([]int32, p.n)}
	index := map[string]int32{}
	for i := range r.domainOf {
		name := rules.Domain(p.Cluster.Node(i))
		d, known := index[name]
		if !known {
			d = int32(len(r.sample)) //nolint:gosec // as many as nodes at most
			index[name] = d
			r.sample = append(r.sample, i)
		}
		r.domainOf[i] = d
	}
	r.words = make([]string, len(r.sample))
	return r
}

// check returns why the rules refuse a node, empty when they do not.
func (r *ruleState) check(p *planner, node int) string {
	if !r.fresh {
		for d, i := range r.sample {
			r.words[d] = r.rules.Check(p.Cluster.Node(i))
		}
		r.fresh = true
	}
	return r.words[r.domainOf[node]]
}

// place gives nodes to as many members of a class as it can, and returns how many those are.
func (a *attempt) place(index int) int {
	c := a.p.classes[index]
	want := a.limit[index] - len(a.nodes[index])
	if want == 0 {
		return 0
	}
	candidates := a.candidates(index)
	// Without anything that looks at other pods the first node with room is the best.
	plain := len(c.spread) == 0 && a.rules[index] == nil && len(c.ports) == 0 && len(a.p.terms) == 0
	done := 0
	for done < want {
		best, bestLoad := -1, 0
		kept := candidates[:0]
		for at, i := range candidates {
			if !a.fits(c, i) {
				continue
			}
			kept = append(kept, i)
			if !plain && !a.allows(index, i) {
				continue
			}
			load := a.load(c, i)
			if best < 0 || load < bestLoad {
				best, bestLoad = i, load
			}
			if plain || bestLoad == 0 {
				kept = append(kept, candidates[at+1:]...)
				break
			}
		}
		candidates = kept
		if best < 0 {
			break
		}
		a.take(index, best)
		done++
	}
	return done
}

// candidates lists the nodes that are possible for a class and have room now, those with the least to spare
// first.
func (a *attempt) candidates(index int) []int {
	c := a.p.classes[index]
	type candidate struct {
		node  int
		spare float64
	}
	found := make([]candidate, 0, a.p.n)
	k := len(a.p.names)
	for i, v := range c.static {
		if v != possible || !a.fits(c, i) {
			continue
		}
		spare := 0.0
		for j, free := range a.free[i*k:][:k] {
			spare += float64(free-c.request[j]) / float64(a.p.most[j])
		}
		found = append(found, candidate{i, spare})
	}
	slices.SortFunc(found, func(x, y candidate) int {
		if d := cmp.Compare(x.spare, y.spare); d != 0 {
			return d
		}
		return cmp.Compare(a.p.byName[x.node], a.p.byName[y.node])
	})
	nodes := make([]int, len(found))
	for i := range found {
		nodes[i] = found[i].node
	}
	return nodes
}

// fits reports whether a node has room for one more pod of the class.
func (a *attempt) fits(c *class, node int) bool {
	k := len(c.request)
	for j, free := range a.free[node*k:][:k] {
		if c.request[j] > free && c.request[j] > 0 {
			return false
		}
	}
	return true
}

// allows reports whether other pods let one more pod of the class onto a node that has room.
func (a *attempt) allows(index, node int) bool {
	c := a.p.classes[index]
	for _, s := range c.spread {
		if a.ahead(s, node) {
			return false
		}
	}
	for t := range a.p.terms {
		if a.minds(t, index, node) {
			return false
		}
	}
	for k := range c.ports {
		if conflicts(&c.ports[k], a.ports[node]) {
			return false
		}
	}
	return a.rules[index] == nil || a.rules[index].check(a.p, node) == ""
}

// ahead reports whether a hard constraint keeps its class off a node: one more pod would take its domain
// more than maxSkew ahead of the emptiest.
func (a *attempt) ahead(s, node int) bool {
	c := a.p.spread[s]
	if !c.hard {
		return false
	}
	count := 0
	if d := c.domainOf[node]; c.exists[d] {
		count = a.spread[s][d]
	}
	return count+c.self-a.least[s] > c.maxSkew
}

// minds reports whether a term keeps a class off a node: its own, or the anti-affinity of another class's
// members that the plan has placed.
func (a *attempt) minds(t, index, node int) bool {
	from, state := a.p.terms[t], &a.terms[t]
	d := from.domainOf[node]
	own := from.class == index
	switch {
	case own && !from.anti && d < 0:
		return true
	case d < 0:
		return false
	case from.anti:
		return own && state.company[d] > 0 || a.p.classes[index].matches[from.selector] && state.owners[d]
	case !own:
		return false
	case state.total > 0:
		return state.company[d] == 0
	}
	if only, confined := a.only[t]; confined {
		return d != only
	}
	return !from.self // the first of a company of its own may go anywhere
}

// load is how many of the pods that a class is to be spread from are near a node.
func (a *attempt) load(c *class, node int) int {
	load := 0
	for _, s := range c.spread {
		if d := a.p.spread[s].domainOf[node]; d >= 0 {
			load += a.spread[s][d]
		}
	}
	return load
}

// take gives a node to the next member of a class.
func (a *attempt) take(index, node int) {
	p, c := a.p, a.p.classes[index]
	pod := c.pods[len(a.nodes[index])]
	a.nodes[index] = append(a.nodes[index], node)
	a.seq[index] = append(a.seq[index], a.placed)
	a.placed++
	k := len(c.request)
	for j := range k {
		a.free[node*k+j] -= c.request[j]
	}
	for s, from := range p.spread {
		if c.matches[from.selector] && from.counted[node] {
			a.spread[s][from.domainOf[node]]++
			a.least[s] = from.least(a.spread[s])
		}
	}
	for t, from := range p.terms {
		d := from.domainOf[node]
		if d < 0 {
			continue
		}
		if from.class == index {
			a.terms[t].owners[d] = true
		}
		if c.matches[from.selector] {
			a.terms[t].company[d]++
			a.terms[t].total++
		}
	}
	if len(c.ports) > 0 {
		a.ports[node] = append(a.ports[node], c.ports...)
	}
	for _, r := range a.rules {
		if r != nil {
			r.rules.Add(pod, p.Cluster.Node(node))
			r.fresh = false
		}
	}
}

// conflicts reports whether two pods cannot have their host ports on one node.
func conflicts(port *v1.ContainerPort, taken []v1.ContainerPort) bool {
	everywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	protocol := func(p v1.Protocol) v1.Protocol {
		if p == "" {
			return v1.ProtocolTCP
		}
		return p
	}
	for i := range taken {
		t := &taken[i]
		if t.HostPort == port.HostPort && protocol(t.Protocol) == protocol(port.Protocol) &&
			(t.HostIP == port.HostIP || everywhere(t.HostIP) || everywhere(port.HostIP)) {
			return true
		}
	}
	return false
}

// slots lists what has been placed in the order of the members' creation.
func (a *attempt) slots() []Slot {
	slots := make([]Slot, 0, a.placed)
	for i, nodes := range a.nodes {
		c := a.p.classes[i]
		for m, node := range nodes {
			slots = append(slots, Slot{
				Pod: c.pods[m], Node: a.p.Cluster.Node(node).Name,
				Class: i, Seq: a.seq[i][m], Ordered: a.ordered(i),
			})
		}
	}
	slices.SortFunc(slots, func(x, y Slot) int { return byAge(x.Pod, y.Pod) })
	return slots
}

// ordered reports whether it matters in which order members of a class take their nodes.
func (a *attempt) ordered(index int) bool {
	if a.rules[index] != nil {
		return true
	}
	for _, s := range a.p.classes[index].spread {
		if a.p.spread[s].hard {
			return true
		}
	}
	for _, t := range a.p.classes[index].terms {
		if !a.p.terms[t].anti {
			return true
		}
	}
	return false
}
