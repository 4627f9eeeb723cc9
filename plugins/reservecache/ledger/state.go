package ledger

// State returns a node as it is now, with its pods; false for one that is not there, or a ghost.
func (l *Ledger) State(nodeName string) (*NodeState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[nodeName]
	if n == nil || n.ghost() {
		return nil, false
	}
	state := &NodeState{}
	n.copyTo(state)
	return state, true
}
