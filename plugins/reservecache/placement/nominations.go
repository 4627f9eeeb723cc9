package placement

import "zonewise.dev/plugins/reservecache/ledger"

// Room to which a pod is nominated is that pod's: it may have had others evicted for it. Before a draft is recorded
// that holds more on a node, the planner asks which pods are nominated there.

// askLocked asks which pods are nominated to nodes. It releases the lock meanwhile: the queue that is asked may wait
// for those that wait for this lock.
func (p *Planner) askLocked(nodes []string) {
	answers := make([]ledger.Resources, len(nodes))
	p.mu.Unlock()
	for i, name := range nodes {
		answers[i] = p.nominatedOn(name)
	}
	p.mu.Lock()
	for i, name := range nodes {
		p.nominateLocked(name, answers[i])
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

// askAgainLocked asks again about nodes to which pods were nominated, because the end of a nomination does not change
// its node. It asks about any limit of them, or all if limit is 0.
func (p *Planner) askAgainLocked(limit int) {
	nodes := make([]string, 0, len(p.nominated))
	for name := range p.nominated {
		nodes = append(nodes, name)
		if len(nodes) == limit {
			break
		}
	}
	if len(nodes) > 0 {
		p.askLocked(nodes)
	}
}
