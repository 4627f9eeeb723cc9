package counts

import (
	"hash/maphash"
	"maps"

	v1 "k8s.io/api/core/v1"
)

// labelSet is all counted pods of one namespace that have the same labels. Pods of one template share their
// labels, so that there are far fewer label sets than pods; selectors are matched against label sets.
type labelSet struct {
	namespace *namespace
	labels    map[string]string
	hash      uint64
	next      *labelSet // another label set with the same hash
	pods      int32
	cells     cells
	counters  []*counter // the live selectors that match
	places    []place    // where it is entered: namespace.all first, then the index of each label
}

// place is where a label set is in the entries of a labelIndex.
type place struct {
	index *labelIndex
	at    int32
}

// entry is a label set in a labelIndex, and which of its places says so.
type entry struct {
	set   *labelSet
	place int32
}

// label is one label of a pod.
type label struct{ key, value string }

// labelIndex is what one label of a namespace leads to: the label sets that have it, and the selectors that are
// looked up by it.
type labelIndex struct {
	entries  []entry
	counters []*counter
}

// namespace holds the labels of one namespace.
type namespace struct {
	name    string
	byLabel map[label]*labelIndex
	// all lists every label set, and the selectors that require no label's value.
	all labelIndex
}

// labelSets finds pods by their labels.
type labelSets struct {
	hash       func(pod *v1.Pod) uint64 // of namespace and labels
	byHash     map[uint64]*labelSet
	namespaces map[string]*namespace
	count      int // of label sets
	pods       int // counted
}

func newLabelSets() labelSets {
	return labelSets{hash: newHash(), byHash: map[uint64]*labelSet{}, namespaces: map[string]*namespace{}}
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

// setOf returns the label set of a pod, which it makes if need be; nil for a pod that does not count.
func (s *labelSets) setOf(pod *v1.Pod) *labelSet {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	hash := s.hash(pod)
	for known := s.byHash[hash]; known != nil; known = known.next {
		if known.namespace.name == pod.Namespace && maps.Equal(known.labels, pod.Labels) {
			return known
		}
	}
	made := &labelSet{namespace: s.namespace(pod.Namespace), labels: pod.Labels, hash: hash, next: s.byHash[hash]}
	s.byHash[hash] = made
	s.count++
	made.places = make([]place, 0, len(pod.Labels)+1)
	made.enterAt(&made.namespace.all)
	for k, v := range pod.Labels {
		made.enterAt(made.namespace.indexOf(label{k, v}))
	}
	return made
}

// enterAt enters the label set at a label, and meets the selectors that are looked up there.
func (set *labelSet) enterAt(index *labelIndex) {
	index.entries = append(index.entries, entry{set: set, place: int32(len(set.places))}) //nolint:gosec // few labels
	set.places = append(set.places,
		place{index: index, at: int32(len(index.entries) - 1)}) //nolint:gosec // fewer label sets than pods
	for _, c := range index.counters {
		if c.matches(set.labels) {
			set.counters = append(set.counters, c)
		}
	}
}

// change counts pods of the label set onto a node or off it.
func (s *labelSets) change(set *labelSet, slot, pods int32) {
	set.pods += pods
	s.pods += int(pods)
	set.cells.addPods(slot, pods)
	for _, c := range set.counters {
		c.addPods(set, slot, pods)
	}
}

// add counts a pod onto a node. It returns its label set; nil for a pod that does not count.
func (s *labelSets) add(pod *v1.Pod, slot int32) *labelSet {
	set := s.setOf(pod)
	if set != nil {
		s.change(set, slot, 1)
	}
	return set
}

// remove counts a pod off a node, and forgets its label set with the last one; nil stands for a pod that did
// not count.
func (s *labelSets) remove(set *labelSet, slot int32) {
	if set == nil {
		return
	}
	s.change(set, slot, -1)
	if set.pods == 0 {
		s.dropSet(set)
	}
}

func (s *labelSets) dropSet(set *labelSet) {
	s.count--
	if first := s.byHash[set.hash]; first != set {
		for first.next != set {
			first = first.next
		}
		first.next = set.next
	} else if set.next != nil {
		s.byHash[set.hash] = set.next
	} else {
		delete(s.byHash, set.hash)
	}
	for _, p := range set.places {
		last := len(p.index.entries) - 1
		moved := p.index.entries[last]
		p.index.entries[p.at] = moved
		moved.set.places[moved.place].at = p.at
		p.index.entries[last] = entry{}
		p.index.entries = p.index.entries[:last]
	}
	for k, v := range set.labels {
		set.namespace.dropIndexIfEmpty(label{k, v})
	}
	s.dropNamespaceIfEmpty(set.namespace)
}

func (s *labelSets) namespace(name string) *namespace {
	ns, ok := s.namespaces[name]
	if !ok {
		ns = &namespace{name: name, byLabel: map[label]*labelIndex{}}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *labelSets) dropNamespaceIfEmpty(ns *namespace) {
	if len(ns.byLabel) == 0 && len(ns.all.entries) == 0 && len(ns.all.counters) == 0 {
		delete(s.namespaces, ns.name)
	}
}

func (ns *namespace) indexOf(l label) *labelIndex {
	index, ok := ns.byLabel[l]
	if !ok {
		index = &labelIndex{}
		ns.byLabel[l] = index
	}
	return index
}

func (ns *namespace) dropIndexIfEmpty(l label) {
	if index, ok := ns.byLabel[l]; ok && len(index.entries) == 0 && len(index.counters) == 0 {
		delete(ns.byLabel, l)
	}
}
