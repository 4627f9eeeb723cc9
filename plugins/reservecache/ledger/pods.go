package ledger

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/internal/pods"
)

// Change is what an event did to the ledger.
type Change int

// The changes that an event can make.
const (
	// Unchanged means that the event changed nothing.
	Unchanged Change = iota
	// PodAdded means that the pod was not known before.
	PodAdded
	// PodConfirmed means that an assumed pod turned up on the node that it was assumed on.
	PodConfirmed
	// PodMoved means that the pod was accounted to another node before, assumed or added.
	PodMoved
	// PodUpdated means that an added pod was replaced by a version of itself that asks for something else, has other
	// labels or has begun to be deleted.
	PodUpdated
	// PodRemoved means that the pod was accounted for and is no longer.
	PodRemoved
)

// String returns the name of the change.
func (c Change) String() string {
	return [...]string{"Unchanged", "PodAdded", "PodConfirmed", "PodMoved", "PodUpdated", "PodRemoved"}[c]
}

// AssumePod accounts a pod to a node from now on, before the API server knows of it. The node need not be
// known yet. Now is not the zero time.
//
// It fails with ErrNoUID or ErrNoNode, and with ErrAssumed or ErrAdded when the pod is accounted for
// already, on this node or another; the ledger is then as it was.
func (l *Ledger) AssumePod(object *v1.Pod, nodeName string, now time.Time) error {
	if object.UID == "" {
		return ErrNoUID
	}
	if nodeName == "" {
		return ErrNoNode
	}
	requests := podRequests(object, l.opts.Requests)

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unknownLocked(object.UID); err != nil {
		return err
	}
	l.assumeLocked(&pod{object: object, requests: requests, assumedAt: now}, nodeName)
	return nil
}

// unknownLocked fails for a pod that the ledger has.
func (l *Ledger) unknownLocked(uid types.UID) error {
	p, ok := l.pods[uid]
	if !ok {
		return nil
	}
	err := ErrAdded
	if p.state() == Assumed {
		err = ErrAssumed
	}
	return fmt.Errorf("%w on node %q", err, p.node.name)
}

func (l *Ledger) assumeLocked(p *pod, nodeName string) {
	l.pods[p.object.UID] = p
	l.assumed[p.object.UID] = p
	l.placeLocked(p, nodeName)
}

// ForgetPod undoes AssumePod. It reports whether it did: a pod that is not assumed on this node is left
// alone.
func (l *Ledger) ForgetPod(uid types.UID, nodeName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.assumed[uid]
	if !ok || p.node.name != nodeName {
		return false
	}
	l.dropLocked(p)
	return true
}

// AddPod records what the API server shows: a pod on a node. It confirms an assumed pod, moves a pod that
// was accounted to another node, and takes a repeated Add for an update. A pod that has finished
// (Succeeded or Failed) takes no capacity, so that an Add of it is a Remove; so is an Add of a pod that is
// being deleted and has no node, since the API server binds no such pod. Any other pod without a node is
// left alone, whatever the ledger has of it.
//
// It fails with ErrNoUID.
func (l *Ledger) AddPod(object *v1.Pod) (Change, error) {
	if object.UID == "" {
		return Unchanged, ErrNoUID
	}
	if pods.Ended(object) {
		return l.RemovePod(object.UID), nil
	}
	if object.Spec.NodeName == "" {
		if object.DeletionTimestamp != nil {
			return l.RemovePod(object.UID), nil
		}
		return Unchanged, nil
	}
	requests := podRequests(object, l.opts.Requests)

	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addLocked(object, requests), nil
}

func (l *Ledger) addLocked(object *v1.Pod, requests Resources) Change {
	p, ok := l.pods[object.UID]
	if !ok {
		p = &pod{object: object, requests: requests}
		l.pods[object.UID] = p
		l.placeLocked(p, object.Spec.NodeName)
		return PodAdded
	}
	change := PodUpdated
	if p.state() == Assumed {
		change = PodConfirmed
		p.assumedAt = time.Time{}
		delete(l.assumed, object.UID)
	}
	if p.node.name != object.Spec.NodeName {
		l.takeLocked(p)
		p.object, p.requests = object, requests
		l.placeLocked(p, object.Spec.NodeName)
		return PodMoved
	}
	n := p.node
	same := p.requests.Equal(&requests) && maps.Equal(p.object.Labels, object.Labels) &&
		(p.object.DeletionTimestamp == nil) == (object.DeletionTimestamp == nil)
	n.requested.Add(&p.requests, -1)
	n.requested.Add(&requests, 1)
	p.object, p.requests = object, requests
	// What a kubelet says of its pods all day matters to no decision about the node.
	if !same {
		l.touchLocked(n)
		return change
	}
	if change == PodUpdated {
		return Unchanged
	}
	return change
}

// UpdatePod records a newer version of a pod, as AddPod does. When the versions have different UIDs, one
// pod has been replaced by another of its name, and the old one is removed.
//
// It fails with ErrNoUID when the new version has none; the old one is removed all the same.
func (l *Ledger) UpdatePod(oldObject, newObject *v1.Pod) (Change, error) {
	if oldObject.UID != newObject.UID {
		l.RemovePod(oldObject.UID)
	}
	return l.AddPod(newObject)
}

// RemovePod frees what a pod takes, in whatever state it is: the API server has shown that it is gone.
func (l *Ledger) RemovePod(uid types.UID) Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.pods[uid]
	if !ok {
		return Unchanged
	}
	l.dropLocked(p)
	return PodRemoved
}

// placeLocked accounts p to the node of that name.
func (l *Ledger) placeLocked(p *pod, nodeName string) {
	n := l.nodes[nodeName]
	if n == nil {
		n = l.newNodeLocked(nodeName)
		l.ghosts++
	}
	p.node, p.index = n, len(n.pods)
	n.pods = append(n.pods, p)
	n.requested.Add(&p.requests, 1)
	l.touchLocked(n)
}

// takeLocked takes p off its node, and a ghost that is left without pods out of the ledger.
func (l *Ledger) takeLocked(p *pod) {
	n := p.node
	last := len(n.pods) - 1
	n.pods[p.index] = n.pods[last]
	n.pods[p.index].index = p.index
	n.pods[last] = nil
	n.pods = n.pods[:last]
	n.requested.Add(&p.requests, -1)
	p.node = nil
	if n.ghost() && len(n.pods) == 0 {
		l.dropNodeLocked(n)
		l.ghosts--
		return
	}
	l.touchLocked(n)
}

// dropLocked removes p from its node and from the ledger.
func (l *Ledger) dropLocked(p *pod) {
	l.takeLocked(p)
	delete(l.pods, p.object.UID)
	delete(l.assumed, p.object.UID)
}

// Requests returns what a pod takes from its node, by the ledger's rules.
func (l *Ledger) Requests(object *v1.Pod) Resources { return podRequests(object, l.opts.Requests) }
