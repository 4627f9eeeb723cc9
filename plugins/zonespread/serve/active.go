package serve

import (
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/zonespread/policy"
)

// Applied is a policy that is applied to pods. It does not change.
type Applied struct {
	*policy.Policy
	entry *entry
}

// active are the policies that apply now, by namespace. A change costs no more than there are labels in the policy, so
// that a tenant with many policies delays no other.
type active struct {
	mu         sync.RWMutex // guards all that follows, and what it points to; it is taken after that of Policies
	namespaces map[string]*namespace
}

// namespace holds the policies of one namespace, found by label: a namespace may have a policy for each of its
// workloads.
type namespace struct {
	all     map[*Applied]bool
	byLabel map[label]map[*Applied]bool
	rest    map[*Applied]bool // policies without such a label
}

type label struct{ key, value string }

// replace makes a policy apply instead of its former version. Either may be nil.
func (x *active) replace(former, latest *Applied) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if former != nil {
		n := x.namespaces[former.Namespace()]
		n.change(former, func(set map[*Applied]bool) { delete(set, former) })
		if len(n.all) == 0 {
			delete(x.namespaces, former.Namespace())
		}
	}
	if latest != nil {
		n := x.namespaces[latest.Namespace()]
		if n == nil {
			n = &namespace{all: map[*Applied]bool{}, byLabel: map[label]map[*Applied]bool{}, rest: map[*Applied]bool{}}
			x.namespaces[latest.Namespace()] = n
		}
		n.change(latest, func(set map[*Applied]bool) { set[latest] = true })
	}
}

// change changes the sets to which a policy belongs.
func (n *namespace) change(a *Applied, set func(map[*Applied]bool)) {
	set(n.all)
	key, values := a.Lookup()
	if len(values) == 0 {
		set(n.rest)
	}
	for _, value := range values {
		l := label{key, value}
		if n.byLabel[l] == nil {
			n.byLabel[l] = map[*Applied]bool{}
		}
		if set(n.byLabel[l]); len(n.byLabel[l]) == 0 {
			delete(n.byLabel, l)
		}
	}
}

// hasNamespace reports whether a namespace has policies.
func (x *active) hasNamespace(name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.namespaces[name] != nil
}

// inNamespace returns the policies of a namespace, in any order.
func (x *active) inNamespace(name string) []*Applied {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.namespaces[name]; n != nil {
		return slices.Collect(maps.Keys(n.all))
	}
	return nil
}

// selecting returns the policies that apply to a pod, in any order, at the cost of a map lookup per label of the pod.
func (x *active) selecting(pod *v1.Pod) (found []*Applied) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.namespaces[pod.Namespace]
	if n == nil {
		return nil
	}
	for a := range n.rest {
		if a.Selects(pod.Labels) {
			found = append(found, a)
		}
	}
	if len(n.byLabel) == 0 {
		return found
	}
	for key, value := range pod.Labels {
		for a := range n.byLabel[label{key, value}] {
			if a.Selects(pod.Labels) {
				found = append(found, a)
			}
		}
	}
	return found
}

// applyLocked makes an entry's policy apply, if it does now. The pods that it refused are woken.
func (s *Policies) applyLocked(e *entry) {
	former := e.applied
	e.applied = nil
	if s.served && e.object.Valid() {
		e.applied = &Applied{e.object.Spec, e}
	}
	s.active.replace(former, e.applied)
	s.wakeAllLocked(e)
	if former != nil && e.applied == nil {
		s.dropRefusalsLocked(e)
	}
}

// For returns the policies that apply to a pod, in the order in which they are named in messages; nil for most pods.
func (s *Policies) For(pod *v1.Pod) []*Applied {
	selected := s.active.selecting(pod)
	slices.SortFunc(selected, func(a, b *Applied) int { return strings.Compare(a.Key(), b.Key()) })
	return selected
}

// Known reports whether the policies that exist are known, without a limit of time. They are if there is no API
// server to have any.
func (s *Policies) Known() bool { return s.kind == nil || s.kind.Settled() }

// Selects reports whether a policy applies to a pod.
func (s *Policies) Selects(pod *v1.Pod) bool {
	return len(s.active.selecting(pod)) > 0
}

// SelectsHard reports whether a hard policy applies to a pod.
func (s *Policies) SelectsHard(pod *v1.Pod) bool {
	return slices.ContainsFunc(s.active.selecting(pod), func(a *Applied) bool { return a.Hard() })
}
