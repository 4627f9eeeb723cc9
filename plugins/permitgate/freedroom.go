package permitgate

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// News of room comes from informers and from other pods' cycles, before or after the scheduler's own cache knows it. It
// is kept until a scheduling cycle sees it in the nodes: then it is weighed for the gangs that wait for room (see judge).

// maxFreed bounds how much news is kept apart; beyond it, every node may have got room.
const maxFreed = 1000

// none is the key of no gang.
var none = types.NamespacedName{}

// freedRoom is what may have given nodes room since gangs were refused. Its methods may be called from several goroutines.
type freedRoom struct {
	// some is true while there is news; for scheduling cycles, which need no lock for a look.
	some atomic.Bool

	mu     sync.Mutex // guards everything below
	events map[event]struct{}
	all    bool // anything may have changed
}

// event is a node that may have got room. It is comparable: the same news twice counts once.
type event struct {
	node string
	// gone is the pod that has left the node, empty when it was something else.
	gone types.UID
	// changed is true when the node itself is new or has changed; before is its version until then.
	changed bool
	before  string
	// by is the gang that the pod was of, for which it is no news that its own members leave.
	by types.NamespacedName
}

// add takes in news.
func (n *freedRoom) add(e event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.events == nil {
		n.events = map[event]struct{}{}
	}
	if len(n.events) >= maxFreed {
		n.all = true
		clear(n.events)
	}
	if !n.all {
		n.events[e] = struct{}{}
	}
	n.some.Store(true)
}

// take returns the news that the nodes of a scheduling cycle show; the rest is kept. all stands for all nodes.
func (n *freedRoom) take(nodes fwk.NodeInfoLister) (events []event, all bool) {
	if !n.some.Load() {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	all, n.all = n.all, false
	for e := range n.events {
		if e.shows(nodes) {
			events = append(events, e)
			delete(n.events, e)
		}
	}
	n.some.Store(len(n.events) > 0)
	return events, all
}

// shows reports whether the nodes of a cycle are as the event has left them.
func (e event) shows(nodes fwk.NodeInfoLister) bool {
	info, err := nodes.Get(e.node)
	switch {
	case e.gone != "":
		return err != nil || !isOn(info, e.gone)
	case e.changed:
		return err == nil && info.Node().ResourceVersion != e.before
	}
	return true
}

// concerns reports whether there is news that is not of a gang's own doing, and whether some of it is of no gang's doing.
func (n *freedRoom) concerns(gang types.NamespacedName) (concerns, sure bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.events {
		concerns = concerns || e.by != gang
		sure = sure || e.by == none
	}
	return concerns || n.all, sure || n.all
}

// forget drops the news of a node that is gone.
func (n *freedRoom) forget(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.events {
		if e.node == node {
			delete(n.events, e)
		}
	}
	n.some.Store(n.all || len(n.events) > 0)
}

// isOn reports whether a pod is on a node.
func isOn(info fwk.NodeInfo, uid types.UID) bool {
	for _, p := range info.GetPods() {
		if p.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// nodeEvent is the news of a node that is new (was is nil then) or has changed.
func nodeEvent(was, is *v1.Node) event {
	e := event{node: is.Name, changed: true}
	if was != nil {
		if was.ResourceVersion == is.ResourceVersion { // an API server without versions
			return event{node: is.Name}
		}
		e.before = was.ResourceVersion
	} else {
		e.before = "none"
	}
	return e
}

// nodeMayFitMore reports whether the change of a node may let a pod fit that did not before.
func nodeMayFitMore(was, is *v1.Node) bool {
	return !apiequality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable) ||
		!apiequality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!apiequality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) ||
		was.Spec.Unschedulable != is.Spec.Unschedulable
}
