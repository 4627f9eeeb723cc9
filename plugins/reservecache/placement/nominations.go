package placement

import "zonewise.dev/plugins/reservecache/ledger"

// Room to which a pod is nominated is that pod's: it may have had others evicted for it. Before a draft is recorded
// that holds more on a node, the planner asks the scheduling queue which pods are nominated there.

// queryNominationsLocked asks which pods are nominated to nodes.
func (p *Planner) queryNominationsLocked(nodes []string) {
	for _, name := range nodes {
		p.nominateLocked(name, p.nominatedOn(name))
	}
}

// nominateLocked records what the pods ask for that are nominated to a node.
func (p *Planner) nominateLocked(name string, requests ledger.Resources) {
	before := p.nominated[name]
	p.nominated[name] = requests
	if requests.IsZero() {
		delete(p.nominated, name)
	}
	if before.Exceeds(&requests) != "" {
		p.freeLocked(name)
	}
}

// refreshNominationsLocked asks again about nodes to which pods were nominated, because the end of a nomination does
// not change its node. It asks about any limit of them, or all if limit is 0.
func (p *Planner) refreshNominationsLocked(limit int) {
	nodes := make([]string, 0, len(p.nominated))
	for name := range p.nominated {
		nodes = append(nodes, name)
		if len(nodes) == limit {
			break
		}
	}
	p.queryNominationsLocked(nodes)
}
