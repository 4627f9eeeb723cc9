package waiting

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Node is what Pick needs of a node.
type Node struct {
	Object *v1.Node
	// Pods are those on the node.
	Pods                   []*v1.Pod
	Allocatable, Requested ledger.Resources
	Holds                  *holds.NodeHolds
	// Owned is what the pods of each claim there ask for.
	Owned map[types.UID]ledger.Resources
}

// Cluster is what Pick asks about nodes and pods.
type Cluster struct {
	// Node returns a node, and false for one that is gone.
	Node func(name string) (Node, bool)
	// Requester returns a pod as holds see it.
	Requester func(pod *v1.Pod) holds.Requester
	// MayGo reports whether a pod may go to a node, apart from its room.
	MayGo func(pod *v1.Pod, node *v1.Node) bool
}

// Picked is what Pick chose.
type Picked struct {
	// Pods are the pods to try, by namespace and name.
	Pods map[string]*v1.Pod
	// Next is when to call Pick again: when the backoff of an eligible pod or the time of a chosen one ends; zero for
	// never.
	Next time.Time
}

// Pick chooses pods for the open nodes: those of the highest priority first, and among these those that were refused
// first. One goroutine at a time may call it. It asks about the cluster without the lock.
func (p *Pods) Pick(now time.Time, cluster *Cluster) Picked {
	picked := Picked{Pods: map[string]*v1.Pod{}}
	nodes, waiting := p.openNodes()
	slices.SortFunc(waiting, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(schedulingv1.PodPriority(b.object), schedulingv1.PodPriority(a.object)), cmp.Compare(a.refused, b.refused))
	})
	for _, name := range nodes {
		node, exists := cluster.Node(name)
		if !exists {
			p.closeNode(name)
			continue
		}
		s := picking{pods: p, name: name, node: &node, cluster: cluster, now: now, picked: &picked}
		s.pick(waiting)
	}
	return picked
}

// openNodes returns the open nodes by name, and the pods that wait.
func (p *Pods) openNodes() (nodes []string, waiting []*pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pods) == 0 {
		clear(p.openings)
	}
	if len(p.openings) == 0 {
		return nil, nil
	}
	waiting = make([]*pod, 0, len(p.pods))
	for _, w := range p.pods {
		if w.waits {
			waiting = append(waiting, w)
		}
	}
	return slices.Sorted(maps.Keys(p.openings)), waiting
}

// closeNode closes a node, to which the pods that were chosen for it cannot go.
func (p *Pods) closeNode(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.openings[name]; o != nil {
		for _, w := range o.chosen {
			w.chosen = ""
		}
		delete(p.openings, name)
	}
}

// picking chooses pods for one node.
type picking struct {
	pods    *Pods
	name    string
	serial  uint64
	node    *Node
	cluster *Cluster
	now     time.Time
	picked  *Picked
	// left means that a pod could be chosen once its backoff ends.
	left bool
}

// pick looks at all pods that wait, and closes the node if none is left that it may help.
func (s *picking) pick(waiting []*pod) {
	s.node.Requested, s.node.Owned = s.node.Requested.Clone(), maps.Clone(s.node.Owned)
	for _, w := range s.keepChosen() {
		s.countAsPlaced(w, s.cluster.Requester(w.object).Claim)
	}
	for _, w := range waiting {
		s.chooseIfHelped(w)
	}
	s.pods.mu.Lock()
	defer s.pods.mu.Unlock()
	if o := s.pods.openings[s.name]; o.serial == s.serial && !s.left && len(o.chosen) == 0 {
		delete(s.pods.openings, s.name)
	}
}

// keepChosen returns the pods that have been chosen for the node and are yet to be tried. One that has not been tried
// for long is kept back by something other than holds.
func (s *picking) keepChosen() (chosen []*pod) {
	s.pods.mu.Lock()
	defer s.pods.mu.Unlock()
	o := s.pods.openings[s.name]
	s.serial = o.serial
	for _, w := range o.chosen {
		if end := w.since.Add(maxBackoff); end.After(s.now) {
			chosen = append(chosen, w)
			s.pickAgainAt(end)
		} else {
			s.pods.unchooseLocked(w)
		}
	}
	return chosen
}

// chooseIfHelped chooses a pod if the node may help it.
func (s *picking) chooseIfHelped(w *pod) {
	n := s.node
	if w.lastOpening == s.serial || ledger.Lacks(&w.request, &n.Allocatable, &n.Requested) {
		return
	}
	requester := s.cluster.Requester(w.object)
	result := n.Holds.Fit(&holds.FitInput{
		Requester: &requester, Request: &w.request, Allocatable: &n.Allocatable, Requested: &n.Requested,
		Owned: func(claim types.UID) ledger.Resources { return n.Owned[claim] },
	})
	if !result.Fits || !s.cluster.MayGo(w.object, n.Object) {
		return
	}
	if w.due.After(s.now) {
		s.left = true
		s.pickAgainAt(w.due)
		return
	}
	if s.choose(w) {
		s.countAsPlaced(w, requester.Claim)
	}
}

// choose chooses a pod, unless it has been tried meanwhile.
func (s *picking) choose(w *pod) bool {
	p, uid := s.pods, w.object.UID
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[uid] != w || !w.waits {
		return false
	}
	w.waits = false
	w.chosen, w.since, w.lastOpening, w.lastNode = s.name, s.now, s.serial, s.name
	p.openings[s.name].chosen[uid] = w
	s.pickAgainAt(s.now.Add(maxBackoff))
	s.picked.Pods[w.object.Namespace+"/"+w.object.Name] = w.object
	return true
}

// pickAgainAt asks for another Pick at that time.
func (s *picking) pickAgainAt(at time.Time) {
	if s.picked.Next.IsZero() || at.Before(s.picked.Next) {
		s.picked.Next = at
	}
}

// countAsPlaced counts a chosen pod as if it were on the node.
func (s *picking) countAsPlaced(w *pod, claim types.UID) {
	if slices.ContainsFunc(s.node.Pods, func(pod *v1.Pod) bool { return pod.UID == w.object.UID }) {
		return // it is there already, and about to be taken in
	}
	s.node.Requested.Add(&w.request, 1)
	if claim != "" {
		s.node.Owned = ledger.AddTo(s.node.Owned, claim, &w.request)
	}
}
