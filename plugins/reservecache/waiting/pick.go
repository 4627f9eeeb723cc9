package waiting

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Cluster is what Pick asks about nodes and pods. It is called under the lock of Pods.
type Cluster struct {
	// Node returns a node, and false for one that is gone.
	Node func(name string) (Node, bool)
	// Asker returns a pod as an asker of holds.
	Asker func(pod *v1.Pod) holds.Asker
	// MayGo reports whether a pod may go to a node, apart from its room.
	MayGo func(pod *v1.Pod, node *v1.Node) bool
}

// Picked is what Pick chose.
type Picked struct {
	// Pods are the pods to try, by namespace and name.
	Pods map[string]*v1.Pod
	// Next is when to call Pick again: when the backoff of an eligible pod or the time of a chosen one ends; zero for never.
	Next time.Time
	// More means that Pick must be called again.
	More bool
}

// Pick chooses pods for the open nodes.
func (p *Pods) Pick(now time.Time, cluster *Cluster) Picked {
	picked := Picked{Pods: map[string]*v1.Pod{}}
	if p.Empty() {
		p.mu.Lock()
		defer p.mu.Unlock()
		clear(p.openings)
		p.at = cursor{}
		return picked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from, looks := p.at, 0
	p.at = cursor{}
	names := slices.Sorted(maps.Keys(p.openings))
	first, _ := slices.BinarySearch(names, from.node)
	for _, name := range names[first:] {
		if looks++; looks > looksPerPick {
			p.at, picked.More = cursor{node: name}, true
			return picked
		}
		o := p.openings[name]
		node, ok := cluster.Node(name)
		if !ok {
			p.closeLocked(o)
			continue
		}
		s := picking{pods: p, opening: o, node: &node, cluster: cluster, now: now, picked: &picked, looks: looks}
		if from.node != name || from.serial != o.serial {
			from = cursor{}
		}
		if picked.More = !s.run(from); picked.More {
			return picked
		}
		if looks = s.looks; !s.left && len(o.chosen) == 0 {
			p.closeLocked(o)
		}
	}
	return picked
}

// closeLocked closes a node.
func (p *Pods) closeLocked(o *opening) {
	for _, w := range o.chosen {
		w.chosen = ""
	}
	delete(p.openings, o.node)
}

// picking chooses pods for one node.
type picking struct {
	pods    *Pods
	opening *opening
	node    *Node
	cluster *Cluster
	now     time.Time
	picked  *Picked
	looks   int
	// left means that a pod could be chosen once its backoff ends.
	left bool
}

// run looks at the pods from a place on, which is without a serial for all. It reports whether it has come to the end, and otherwise says where
// the next Pick goes on.
func (s *picking) run(from cursor) bool {
	s.node.Requested, s.node.Owned = s.node.Requested.Clone(), maps.Clone(s.node.Owned)
	s.left = from.left
	for _, w := range s.opening.chosen {
		// A chosen pod that is not tried is kept back by something other than holds.
		if end := w.since.Add(maxBackoff); end.After(s.now) {
			s.take(w, s.cluster.Asker(w.object).Claim)
			s.pickAgainAt(end)
		} else {
			s.pods.unchooseLocked(w)
		}
	}
	for _, priority := range slices.Clone(s.pods.priorities) {
		e := s.pods.queues[priority].Front()
		switch {
		case from.serial == 0 || priority < from.priority:
		case priority > from.priority:
			continue
		default:
			e = from.pod
		}
		for e != nil {
			if s.looks >= looksPerPick {
				s.pods.at = cursor{node: s.opening.node, serial: s.opening.serial, priority: priority, pod: e, left: s.left}
				return false
			}
			w, next := e.Value.(*pod), e.Next() //nolint:forcetypeassert // nothing else is in it
			s.looks++
			s.look(w)
			e = next
		}
	}
	return true
}

// look chooses a pod if the node may help it.
func (s *picking) look(w *pod) {
	o, n := s.opening, s.node
	if w.lastOpening == o.serial || ledger.Lacks(&w.request, &n.Allocatable, &n.Requested) {
		return
	}
	who := s.cluster.Asker(w.object)
	verdict := n.Holds.Fit(&holds.Question{
		Who: &who, Request: &w.request, Allocatable: &n.Allocatable, Requested: &n.Requested,
		Owned: func(claim types.UID) ledger.Resources { return n.Owned[claim] },
	})
	if !verdict.Fits || !s.cluster.MayGo(w.object, n.Object) {
		return
	}
	if w.due.After(s.now) {
		s.left = true
		s.pickAgainAt(w.due)
		return
	}
	s.pods.dequeueLocked(w)
	w.chosen, w.since, w.lastOpening, w.lastNode = o.node, s.now, o.serial, o.node
	s.pickAgainAt(s.now.Add(maxBackoff))
	o.chosen[w.object.UID] = w
	s.take(w, who.Claim)
	s.picked.Pods[w.object.Namespace+"/"+w.object.Name] = w.object
}

// pickAgainAt asks for another Pick at that time.
func (s *picking) pickAgainAt(at time.Time) {
	if s.picked.Next.IsZero() || at.Before(s.picked.Next) {
		s.picked.Next = at
	}
}

// take counts a chosen pod as if it were on the node.
func (s *picking) take(w *pod, claim types.UID) {
	if slices.ContainsFunc(s.node.Pods, func(pod *v1.Pod) bool { return pod.UID == w.object.UID }) {
		return // it is there already, and about to be taken in
	}
	s.node.Requested.Add(&w.request, 1)
	if claim != "" {
		s.node.Owned = ledger.AddTo(s.node.Owned, claim, &w.request)
	}
}
