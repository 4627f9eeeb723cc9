package proposal

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Unlimited is the free amount of a resource that no filter counts on the node.
const Unlimited = math.MaxInt64 / 4

// Cluster is the nodes at one moment.
type Cluster interface {
	// Len is the number of nodes.
	Len() int
	// Node returns node i, which must not be modified.
	Node(i int) *v1.Node
	// Free writes what the pods on node i leave of each named resource, in thousandths for cpu; pods is the number of
	// pods that the node still admits. The value is negative on an overcommitted node, and Unlimited for a resource
	// that is not counted there.
	Free(i int, names []v1.ResourceName, into []int64)
	// Kept adds how much of each resource is promised to others, but not taken yet, and so kept from pods like this
	// one: Unlimited if a gang keeps the node.
	Kept(i int, pod *v1.Pod, names []v1.ResourceName, into []int64)
}

// Class has the members that ask the same of a node; see [Signature].
type Class struct {
	// Pod is one of them.
	Pod *v1.Pod
	// Members are all of them, in the order to place them.
	Members []types.UID
}

// Topology asks for all members in one domain of a node label. The zero value asks for nothing.
type Topology struct {
	// Key is the label.
	Key string
	// Required means that members may not be elsewhere. Without it they go wherever they fit if no domain can hold
	// them.
	Required bool
	// Domain is the domain of members that have a node already, or empty.
	Domain string
	// Tried are the domains that the filters have refused.
	Tried map[string]bool
}

// Request asks for a proposal.
type Request struct {
	Cluster Cluster
	Classes []Class
	// Need is how many of the members must have a node; the others get one if they fit.
	Need     int
	Topology Topology
	// TolerationOperators: tolerations may compare numbers.
	TolerationOperators bool
	// SpreadKey is the label whose domains are proposed in turn.
	SpreadKey string
	// Start is the node at which the search begins.
	Start int
}

// Verdict is the kind of a result.
type Verdict uint8

// The verdicts.
const (
	// Refused: it is proved that fewer than Need members can be placed.
	Refused Verdict = iota
	// Proposed: there are nodes for at least Need members.
	Proposed
	// Unproven: neither nodes nor a proof were found.
	Unproven
	// Exhausted: every domain that could hold the members has been tried.
	Exhausted
)

// Hint is on which nodes to try the members of a class.
type Hint struct {
	// Members is how many of them there is room for: the first of the class.
	Members int
	// Nodes are nodes in the Cluster: one for each of these members, and then some with room to spare.
	Nodes []int
}

// Result is a proposal, or why there is none.
type Result struct {
	Verdict Verdict
	// Hints are those of each class.
	Hints []Hint
	// Domain is the domain that the members are confined to; empty when they are not.
	Domain string
	// Bound is the most members that can be placed, Nodes how many nodes were looked at.
	Bound, Nodes int
	// Reasons say why no more could be placed, the most frequent first.
	Reasons []Reason
}

// Reason says why some nodes take no more members.
type Reason struct {
	Nodes int
	Words string
}
