package ledger

import v1 "k8s.io/api/core/v1"

// Taker says what kind of event took room of a node.
type Taker string

// The takers.
const (
	// PodScheduled is a pod that this scheduler placed.
	PodScheduled Taker = "PodScheduled"
	// PodBound is a pod that turned up bound, by another scheduler or by hand.
	PodBound Taker = "PodBound"
	// PodResized is a pod that asks for more than before.
	PodResized Taker = "PodResized"
	// NodeShrank means that the node has less to offer than before.
	NodeShrank Taker = "NodeShrank"
)

// Taking is an event after which a node has less room. The zero Taking is none.
type Taking struct {
	By Taker
	// Pod is nil for NodeShrank.
	Pod *v1.Pod
}

// LastTaking returns what took room of a node last, by which a reader can say why a node has become too full.
func (l *Ledger) LastTaking(nodeName string) Taking {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[nodeName]; n != nil {
		return n.taken
	}
	return Taking{}
}
