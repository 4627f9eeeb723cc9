package serve

import (
	"iter"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/zonespread/policy"
)

// Applied is a policy that is applied to pods. It does not change.
type Applied struct {
	*policy.Policy
	entry *entry
}

// namespace holds the policies that apply to the pods of one namespace, found by label: a namespace may have a policy for
// each of its workloads. It does not change.
type namespace struct {
	all     []*Applied
	byLabel map[label][]*Applied
	rest    []*Applied // policies without such a label
}

type label struct{ key, value string }

func (n *namespace) add(a *Applied) {
	n.all = append(n.all, a)
	key, values := a.Lookup()
	for _, value := range values {
		l := label{key, value}
		if !slices.Contains(n.byLabel[l], a) { // the API server takes a value twice
			n.byLabel[l] = append(n.byLabel[l], a)
		}
	}
	if len(values) == 0 {
		n.rest = append(n.rest, a)
	}
}

// publishLocked publishes the policies that apply now in a namespace, or in all namespaces if the name is empty.
func (s *Policies) publishLocked(name string) {
	active := map[string]*namespace{}
	if before := s.active.Load(); before != nil && name != "" {
		maps.Copy(active, *before)
		delete(active, name)
	}
	for _, e := range s.entries {
		in := e.object.Latest.Namespace
		if !s.served || !e.object.Valid() || name != "" && in != name {
			continue
		}
		if active[in] == nil {
			active[in] = &namespace{byLabel: map[label][]*Applied{}}
		}
		active[in].add(&Applied{e.object.Spec, e})
	}
	s.active.Store(&active)
}

// in returns the policies of a namespace; nil when it has none.
func (s *Policies) in(name string) *namespace {
	if active := s.active.Load(); active != nil {
		return (*active)[name]
	}
	return nil
}

// each yields the policies that apply to a pod, in any order, at the cost of a map lookup per label of the pod.
func (s *Policies) each(pod *v1.Pod) iter.Seq[*Applied] {
	return func(yield func(*Applied) bool) {
		n := s.in(pod.Namespace)
		if n == nil {
			return
		}
		for _, a := range n.rest {
			if a.Selects(pod.Labels) && !yield(a) {
				return
			}
		}
		if len(n.byLabel) == 0 {
			return
		}
		for key, value := range pod.Labels {
			for _, a := range n.byLabel[label{key, value}] {
				if a.Selects(pod.Labels) && !yield(a) {
					return
				}
			}
		}
	}
}

// For returns the policies that apply to a pod, in the order in which they are named in messages; nil for most pods.
func (s *Policies) For(pod *v1.Pod) []*Applied {
	var selected []*Applied
	for a := range s.each(pod) {
		selected = append(selected, a)
	}
	slices.SortFunc(selected, func(a, b *Applied) int { return strings.Compare(a.Key(), b.Key()) })
	return selected
}

// Selects reports whether a policy applies to a pod.
func (s *Policies) Selects(pod *v1.Pod) bool {
	for range s.each(pod) {
		return true
	}
	return false
}

// SelectsHard reports whether a hard policy applies to a pod.
func (s *Policies) SelectsHard(pod *v1.Pod) bool {
	for a := range s.each(pod) {
		if a.Hard() {
			return true
		}
	}
	return false
}
