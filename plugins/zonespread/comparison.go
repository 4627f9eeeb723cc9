package zonespread

import (
	"fmt"
	"maps"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
)

// CompareCounts has each answer of the index compared with a recount of the pods, which costs as much as the cluster is
// large, and differ called with each difference. It is for tests, and is called before New.
func (s *Shared) CompareCounts(differ func(difference string)) { s.index.differ = differ }

// compareLocked compares the answers to queries about a cycle's snapshot with a recount.
func (s *sharedIndex) compareLocked(nodes []fwk.NodeInfo, queries []counts.Query, tables []*counts.Table) {
	if s.differ == nil {
		return
	}
	recounts := counts.Direct(nodes, queries, func(n int, do func(i int)) {
		for i := range n {
			do(i)
		}
	})
	for i := range queries {
		q := &queries[i]
		counted, recounted := domainCounts(tables[i]), domainCounts(recounts[i])
		if !maps.Equal(counted, recounted) {
			s.differ(fmt.Sprintf("pods of %s with %v by %s: counted %v, recounted %v", q.Namespace, q.Selector, q.TopologyKey, counted, recounted))
		}
		if slices.ContainsFunc(nodes, func(n fwk.NodeInfo) bool { return atNode(tables[i], n) != atNode(recounts[i], n) }) {
			s.differ(fmt.Sprintf("pods of %s with %v by %s: a node has another domain than its labels say", q.Namespace, q.Selector, q.TopologyKey))
		}
	}
}

func domainCounts(t *counts.Table) map[string]int {
	byDomain := make(map[string]int, t.Domains())
	for d, value := range t.All() {
		byDomain[value] = t.At(d)
	}
	return byDomain
}

// atNode returns the count of a node's domain, and -1 if it has none.
func atNode(t *counts.Table, n fwk.NodeInfo) int {
	d, known := t.Find(n.Node())
	if !known {
		return -1
	}
	return t.At(d)
}
