package plan

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is what a plan is made for: the nodes of one moment, as the gang may use them.
type Cluster interface {
	// Len is the number of nodes.
	Len() int
	// Node returns node i, which the plan does not change.
	Node(i int) *v1.Node
	// Free writes what the gang may take of each named resource of node i. The unit of cpu is a
	// thousandth; pods is the number of pods that the node still admits. It is called from several
	// goroutines when the Request has a Parallel.
	Free(i int, names []v1.ResourceName, into []int64)
	// Pods yields the pods that are on node i.
	Pods(i int) iter.Seq[*v1.Pod]
	// PortTaken reports whether a pod on node i uses a host port.
	PortTaken(i int, port *v1.ContainerPort) bool
}

// Rules are limits on where pods of one class may go that depend on how many pods are where.
// They belong to one plan and are called from one goroutine.
type Rules interface {
	// Domain names what decides about a node: nodes of one domain are judged alike.
	Domain(node *v1.Node) string
	// Check says in words why a node is refused to one more pod of the class, empty when it is not.
	Check(node *v1.Node) string
	// Add counts a member that the plan has given a node.
	Add(pod *v1.Pod, node *v1.Node)
	// Remove counts a pod no more that the plan does without.
	Remove(pod *v1.Pod, node *v1.Node)
}

// Exclusions are nodes that something else refuses to members, by name, each with the reason. Members that
// point to the same Exclusions are excluded alike.
type Exclusions struct {
	Nodes map[string]string
	// Unless names, of some of these nodes, the pods without which the node is not refused. It may be nil.
	Unless map[string][]types.UID
}

// Member is a pod that needs a node.
type Member struct {
	Pod *v1.Pod
	// Excluded may be nil.
	Excluded *Exclusions
	// Signature is what the function Signature returns for the pod; empty when it is to be asked.
	Signature string
}

// Request asks for a plan.
type Request struct {
	Members []Member
	// Need is how many of the members must have a node; the others get one where they fit.
	Need    int
	Cluster Cluster
	// Rules returns the further limits of a pod; it may be nil, and return nil. Pods with the same
	// key are limited alike, so that it is called for one of them.
	Rules func(pod *v1.Pod) Rules
	// Removed are pods that the Cluster is without and that Rules count nevertheless.
	Removed []Removal
	// RulesKey returns the key; pods for which it is empty have no Rules.
	RulesKey func(pod *v1.Pod) string
	// ComparisonOperators tells whether tolerations may compare numbers (the feature gate
	// TaintTolerationComparisonOperators).
	ComparisonOperators bool
	// Parallel runs do for each number below n, in any order and possibly at the same time. nil means
	// one after the other.
	Parallel func(n int, do func(i int))
}

// Slot is a member and the node that is planned for it.
type Slot struct {
	Pod  *v1.Pod
	Node string
	// Class numbers the members with equal needs: they may change places with each other.
	Class int
	// Seq numbers the slots of a plan in the order in which they were filled. Each is allowed when those
	// before it are taken; with some of them free, it may not be: a zone is ahead of the others for a while.
	// Ordered tells whether that can matter for the class.
	Seq     int
	Ordered bool
}

// Result is a plan, or why there is none.
type Result struct {
	// Slots are in the order of the members' creation. They are at least Request.Need when Refusal is nil.
	Slots []Slot
	// Refusal is nil when the plan stands.
	Refusal *Refusal
}

// Refusal says why the members could not all be placed.
type Refusal struct {
	// Found is how many members found a node.
	Found int
	// Pod is a member that found none.
	Pod *v1.Pod
	// Reasons are the nodes' reasons to refuse it when the others had been placed, the most frequent first.
	Reasons []Reason
}

// Reason is why some nodes are no place for a member.
type Reason struct {
	// Nodes is how many nodes have this reason; 0 when it is not a matter of single nodes.
	Nodes int
	Words string
}
