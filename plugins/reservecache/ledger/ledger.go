package ledger

import (
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

// Options says how a ledger reads pods.
type Options struct {
	// Requests are the rules by which a pod's requests are computed. They must be those of the scheduler
	// that the ledger serves.
	Requests resource.PodResourcesOptions
}

// DefaultOptions returns the rules of a kube-scheduler 1.37 with default feature gates.
func DefaultOptions() Options {
	return Options{Requests: resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}}
}

// Errors of the ledger, to be tested with errors.Is.
var (
	// ErrNoUID means that a pod has no UID, by which pods are identified.
	ErrNoUID = errors.New("the pod has no UID")
	// ErrNoNode means that no node was named for a pod.
	ErrNoNode = errors.New("the pod has no node")
	// ErrAssumed means that a pod is assumed already.
	ErrAssumed = errors.New("the pod is assumed already")
	// ErrAdded means that the API server has already shown the pod on a node.
	ErrAdded = errors.New("the pod is bound already")
)

// State is where a pod stands in the ledger.
type State int

// The states of a pod.
const (
	// None is the state of a pod that the ledger does not know.
	None State = iota
	// Assumed means that the scheduler chose a node and the API server has not shown it yet.
	Assumed
	// Added means that the API server has shown the pod on its node.
	Added
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case Assumed:
		return "Assumed"
	case Added:
		return "Added"
	default:
		return "None"
	}
}

// pod is the ledger's record of a pod that is assumed or added.
type pod struct {
	object   *v1.Pod
	requests Resources
	node     *node
	// index is the place in node.pods.
	index int
	// assumedAt is when the scheduler has decided; zero once the pod is added.
	assumedAt time.Time
}

func (p *pod) state() State {
	if p.assumedAt.IsZero() {
		return Added
	}
	return Assumed
}

// Ledger is the account of all pods and nodes. Make one with New.
type Ledger struct {
	opts Options

	mu sync.Mutex // guards all fields below and everything that they lead to
	// generation counts changes of nodes and of what is on them.
	generation uint64
	pods       map[types.UID]*pod
	assumed    map[types.UID]*pod
	nodes      map[string]*node
	// newest is the head of the list of nodes in the order of their last change.
	newest *node
	ghosts int
	tree   tree
}

// New returns an empty ledger.
func New(opts Options) *Ledger {
	return &Ledger{
		opts:    opts,
		pods:    map[types.UID]*pod{},
		assumed: map[types.UID]*pod{},
		nodes:   map[string]*node{},
		tree:    newTree(),
	}
}

// PodStatus is what the ledger says of one pod.
type PodStatus struct {
	// Pod is the object as it was last given to the ledger.
	Pod   *v1.Pod
	State State
	// Node is the name of the node that the pod is accounted to.
	Node string
	// Requests is what the pod takes from its node.
	Requests Resources
	// AssumedAt is when the pod was assumed; zero once it is added.
	AssumedAt time.Time
}

// GetPod returns what is known of a pod, and false for a pod that the ledger does not have.
func (l *Ledger) GetPod(uid types.UID) (PodStatus, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.pods[uid]
	if !ok {
		return PodStatus{}, false
	}
	return p.status(), true
}

func (p *pod) status() PodStatus {
	return PodStatus{Pod: p.object, State: p.state(), Node: p.node.name, Requests: p.requests.Clone(), AssumedAt: p.assumedAt}
}

// IsAssumedPod reports whether a pod is assumed and not yet shown by the API server.
func (l *Ledger) IsAssumedPod(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.assumed[uid]
	return ok
}

// Stats are the sizes of a ledger.
type Stats struct {
	// Pods counts assumed and added pods, AssumedPods the first of them.
	Pods, AssumedPods int
	// Nodes counts the nodes of a snapshot, Ghosts the removed nodes that still have pods.
	Nodes, Ghosts int
	// OldestAssumed is when the pod that has been assumed for the longest was assumed; zero when no pod
	// is assumed.
	OldestAssumed time.Time
}

// Stats returns the present sizes, in time proportional to the number of assumed pods.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Pods:        len(l.pods),
		AssumedPods: len(l.assumed),
		Nodes:       len(l.nodes) - l.ghosts,
		Ghosts:      l.ghosts,
	}
	for _, p := range l.assumed {
		if s.OldestAssumed.IsZero() || p.assumedAt.Before(s.OldestAssumed) {
			s.OldestAssumed = p.assumedAt
		}
	}
	return s
}
