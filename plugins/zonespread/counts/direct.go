package counts

// Direct answers the queries by looking at every pod of every node. It is for snapshots that an Index
// must not learn from. each calls do(i) for all 0 <= i < n, at once if it can.
//
// The cost is the number of pods times the number of queries.
func Direct[N NodeInfo[P], P PodInfo](nodes []N, queries []Query, each func(n int, do func(i int))) []*Table {
	if len(queries) == 0 {
		return nil
	}
	// perNode[i*len(queries)+j] is what node i has for query j, or absent.
	perNode := make([]int32, len(nodes)*len(queries))
	each(len(nodes), func(i int) {
		node := nodes[i].Node()
		row := perNode[i*len(queries):][:len(queries)]
		for j := range queries {
			q := &queries[j]
			row[j] = absent
			if _, ok := q.domainOf(node); !ok || !q.eligible(node) {
				continue
			}
			row[j] = 0
			for _, p := range nodes[i].GetPods() {
				if _, grouped := q.groupOf(p.GetPod()); !grouped && q.matches(p.GetPod()) {
					row[j]++
				}
			}
		}
	})

	tables := make([]*Table, len(queries))
	for j := range queries {
		q := &queries[j]
		ids := map[string]int32{}
		var names []string
		var counts []int32
		seen := map[groupAt]bool{}
		for i := range nodes {
			value, ok := q.domainOf(nodes[i].Node())
			if !ok {
				continue
			}
			id, ok := ids[value]
			if !ok {
				id = int32(len(counts)) //nolint:gosec // at most as many as there are nodes
				ids[value] = id
				names = append(names, value)
				counts = append(counts, absent)
			}
			n := perNode[i*len(queries)+j]
			if n == absent {
				continue
			}
			counts[id] = max(counts[id], 0) + n
			if q.GroupBy == "" {
				continue
			}
			for _, p := range nodes[i].GetPods() {
				group, grouped := q.groupOf(p.GetPod())
				at := groupAt{group: group, domain: id}
				if grouped && group != q.ExceptGroup && !seen[at] && q.matches(p.GetPod()) {
					seen[at] = true
					counts[id]++
				}
			}
		}
		tables[j] = newTable(q.TopologyKey, ids, names, counts)
	}
	return tables
}

// groupAt is a group in a domain.
type groupAt struct {
	group  string
	domain int32
}
