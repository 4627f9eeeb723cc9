package counts

import (
	"hash/maphash"
	"maps"

	v1 "k8s.io/api/core/v1"
)

// shape is all counted pods of one namespace that have the same labels. Pods of one template share their
// labels, so that there are far fewer shapes than pods; selectors are matched against shapes.
type shape struct {
	namespace *namespace
	labels    map[string]string
	hash      uint64
	next      *shape // another shape with the same hash
	pods      int32
	cells     cells
	counters  []*counter // the live selectors that match
	postings  []posting  // where the shape is listed: namespace.all first, then one term per label
}

// posting is a place in a term's list of shapes.
type posting struct {
	term *term
	at   int32
}

// listed is an entry of a term's list: a shape and which of its postings says so.
type listed struct {
	shape   *shape
	posting int32
}

// label is one label of a pod.
type label struct{ key, value string }

// term is what one label of a namespace leads to: the shapes that have it, and the selectors that are
// looked up by it.
type term struct {
	shapes   []listed
	counters []*counter
}

// namespace holds the terms of one namespace.
type namespace struct {
	name  string
	terms map[label]*term
	// all lists every shape, and the selectors that require no label's value.
	all term
}

// shapes finds pods by their labels.
type shapes struct {
	hash       func(pod *v1.Pod) uint64 // of namespace and labels
	byHash     map[uint64]*shape
	namespaces map[string]*namespace
	count      int // of shapes
	pods       int // counted
}

func newShapes() shapes {
	return shapes{hash: newHash(), byHash: map[uint64]*shape{}, namespaces: map[string]*namespace{}}
}

// newHash returns a hash that does not depend on the order in which a map yields its labels.
func newHash() func(pod *v1.Pod) uint64 {
	seed := maphash.MakeSeed()
	return func(pod *v1.Pod) uint64 {
		sum := maphash.String(seed, pod.Namespace)
		for k, v := range pod.Labels {
			// The multiplier keeps {a: b} and {b: a} apart.
			sum += maphash.String(seed, k)*0x9e3779b97f4a7c15 ^ maphash.String(seed, v)
		}
		return sum
	}
}

// of returns the shape of a pod, which it makes if need be; nil for a pod that does not count.
func (s *shapes) of(pod *v1.Pod) *shape {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	hash := s.hash(pod)
	for known := s.byHash[hash]; known != nil; known = known.next {
		if known.namespace.name == pod.Namespace && maps.Equal(known.labels, pod.Labels) {
			return known
		}
	}
	made := &shape{namespace: s.namespace(pod.Namespace), labels: pod.Labels, hash: hash, next: s.byHash[hash]}
	s.byHash[hash] = made
	s.count++
	made.postings = make([]posting, 0, len(pod.Labels)+1)
	made.list(&made.namespace.all)
	for k, v := range pod.Labels {
		made.list(made.namespace.term(label{k, v}))
	}
	return made
}

// list enters the shape at a term and meets the selectors that are looked up there.
func (sh *shape) list(t *term) {
	t.shapes = append(t.shapes, listed{shape: sh, posting: int32(len(sh.postings))})  //nolint:gosec // few labels
	sh.postings = append(sh.postings, posting{term: t, at: int32(len(t.shapes) - 1)}) //nolint:gosec // fewer shapes than pods
	for _, c := range t.counters {
		if c.matches(sh.labels) {
			sh.counters = append(sh.counters, c)
		}
	}
}

// change counts pods of the shape onto a node or off it.
func (s *shapes) change(sh *shape, slot, pods int32) {
	sh.pods += pods
	s.pods += int(pods)
	sh.cells.add(slot, pods)
	for _, c := range sh.counters {
		c.add(sh, slot, pods)
	}
}

// remove counts a pod off a node, and forgets its shape with the last one; nil stands for a pod that did
// not count.
func (s *shapes) remove(sh *shape, slot int32) {
	if sh == nil {
		return
	}
	s.change(sh, slot, -1)
	if sh.pods == 0 {
		s.forget(sh)
	}
}

func (s *shapes) forget(sh *shape) {
	s.count--
	if first := s.byHash[sh.hash]; first != sh {
		for first.next != sh {
			first = first.next
		}
		first.next = sh.next
	} else if sh.next != nil {
		s.byHash[sh.hash] = sh.next
	} else {
		delete(s.byHash, sh.hash)
	}
	for _, p := range sh.postings {
		last := len(p.term.shapes) - 1
		moved := p.term.shapes[last]
		p.term.shapes[p.at] = moved
		moved.shape.postings[moved.posting].at = p.at
		p.term.shapes[last] = listed{}
		p.term.shapes = p.term.shapes[:last]
	}
	for k, v := range sh.labels {
		sh.namespace.dropTermIfEmpty(label{k, v})
	}
	s.dropNamespaceIfEmpty(sh.namespace)
}

func (s *shapes) namespace(name string) *namespace {
	ns, ok := s.namespaces[name]
	if !ok {
		ns = &namespace{name: name, terms: map[label]*term{}}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *shapes) dropNamespaceIfEmpty(ns *namespace) {
	if len(ns.terms) == 0 && len(ns.all.shapes) == 0 && len(ns.all.counters) == 0 {
		delete(s.namespaces, ns.name)
	}
}

func (ns *namespace) term(l label) *term {
	t, ok := ns.terms[l]
	if !ok {
		t = &term{}
		ns.terms[l] = t
	}
	return t
}

func (ns *namespace) dropTermIfEmpty(l label) {
	if t, ok := ns.terms[l]; ok && len(t.shapes) == 0 && len(t.counters) == 0 {
		delete(ns.terms, l)
	}
}
