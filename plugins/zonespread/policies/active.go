package policies

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/zonespread/policy"
)

// applied is a policy that is applied to pods. It does not change.
type applied struct {
	policy *policy.Policy
	entry  *entry
}

// namespace holds the policies that apply to the pods of one namespace, found by label: a namespace may have a policy for
// each of its workloads. It does not change.
type namespace struct {
	all     []*applied
	byLabel map[label][]*applied
	rest    []*applied // those that no label leads to
}

type label struct{ key, value string }

func (n *namespace) add(a *applied) {
	n.all = append(n.all, a)
	key, values := a.policy.Lookup()
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

// publishLocked makes what applies now visible to pods.
func (s *Policies) publishLocked() {
	active := map[string]*namespace{}
	if s.served {
		for _, e := range s.entries {
			if e.policy == nil {
				continue
			}
			n := active[e.policy.Namespace()]
			if n == nil {
				n = &namespace{byLabel: map[label][]*applied{}}
				active[e.policy.Namespace()] = n
			}
			n.add(&applied{e.policy, e})
		}
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
func (s *Policies) each(pod *v1.Pod) iter.Seq[*applied] {
	return func(yield func(*applied) bool) {
		n := s.in(pod.Namespace)
		if n == nil {
			return
		}
		for _, a := range n.rest {
			if a.policy.Selects(pod.Labels) && !yield(a) {
				return
			}
		}
		if len(n.byLabel) == 0 {
			return
		}
		for key, value := range pod.Labels {
			for _, a := range n.byLabel[label{key, value}] {
				if a.policy.Selects(pod.Labels) && !yield(a) {
					return
				}
			}
		}
	}
}

// of returns the policies that apply to a pod, in the order in which they are named in messages; none, for most pods.
func (s *Policies) of(pod *v1.Pod) []*applied {
	var selected []*applied
	for a := range s.each(pod) {
		selected = append(selected, a)
	}
	sortByName(selected)
	return selected
}
