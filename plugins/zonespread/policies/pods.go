package policies

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// members are the live pods that a policy selects, as informers show them.
type members struct {
	facts map[types.UID]fact
	// placed counts pods by revision and node, zones by revision and zone; nil when a node has changed since.
	placed map[string]map[string]int64
	zones  *zoneCounts
	// direct counts pods by what controls them; the zero reference is for those that nothing controls.
	direct map[reference]int64
	// former are waiting pods of the policy's previous spec, to be woken once.
	former []*v1.Pod
}

// fact is what is kept of one pod.
type fact struct {
	revision   string
	node       string
	controller reference
	pod        *v1.Pod // while it waits for a node
}

// reference names the controller of a pod.
type reference struct {
	kind, name string
	uid        types.UID
}

func newMembers() members {
	return members{facts: map[types.UID]fact{}, placed: map[string]map[string]int64{}, direct: map[reference]int64{}}
}

func controllerOf(o metav1.Object) reference {
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil {
		return reference{}
	}
	return reference{kind: c.Kind, name: c.Name, uid: c.UID}
}

// live tells whether a pod counts at all.
func live(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// set takes a pod in. It returns whether it is news, and whether it comes from a controller not seen before.
func (m *members) set(uid types.UID, f fact) (changed, newController bool) {
	was, known := m.facts[uid]
	if known && was.revision == f.revision && was.node == f.node && was.controller == f.controller {
		m.facts[uid] = f
		return false, false
	}
	m.remove(uid)
	m.facts[uid] = f
	newController = m.direct[f.controller] == 0
	m.direct[f.controller]++
	if f.node != "" {
		if m.placed[f.revision] == nil {
			m.placed[f.revision] = map[string]int64{}
		}
		m.placed[f.revision][f.node]++
		m.zones.add(f.revision, f.node, 1)
	}
	return true, newController
}

// remove takes a pod out. It returns whether it was there, and whether it was the last of its controller.
func (m *members) remove(uid types.UID) (changed, lastOfController bool) {
	f, ok := m.facts[uid]
	if !ok {
		return false, false
	}
	delete(m.facts, uid)
	if m.direct[f.controller]--; m.direct[f.controller] == 0 {
		delete(m.direct, f.controller)
		lastOfController = true
	}
	if f.node != "" {
		nodes := m.placed[f.revision]
		if nodes[f.node]--; nodes[f.node] == 0 {
			delete(nodes, f.node)
		}
		m.zones.add(f.revision, f.node, -1)
		if len(nodes) == 0 {
			delete(m.placed, f.revision)
			m.zones.drop(f.revision)
		}
	}
	return true, lastOfController
}

// waiting returns the pods without a node, those of the former spec among them.
func (m *members) waiting() []*v1.Pod {
	pods := m.former
	for _, f := range m.facts {
		if f.pod != nil {
			pods = append(pods, f.pod)
		}
	}
	return pods
}

// fillLocked takes in the pods that exist already. Their events may come once more, which changes nothing.
func (s *Policies) fillLocked(e *entry) {
	pods, err := s.cluster.pods.Pods(e.policy.Namespace()).List(labels.Everything())
	if err != nil {
		return // the lister of a cache has no errors
	}
	for _, pod := range pods {
		e.take(pod)
	}
}

// take brings the policy's members in line with a pod, and reports whether that is news.
func (e *entry) take(pod *v1.Pod) bool {
	if e.policy == nil || !live(pod) || !e.policy.Selects(pod.Labels) {
		return e.lose(pod.UID)
	}
	f := fact{revision: e.policy.Revision(pod.Labels), node: pod.Spec.NodeName, controller: controllerOf(pod)}
	if f.node == "" {
		f.pod = pod
	} else {
		delete(e.refused, pod.UID)
	}
	changed, newController := e.pods.set(pod.UID, f)
	if newController {
		e.fresh = false
	}
	return changed
}

func (e *entry) lose(uid types.UID) bool {
	delete(e.refused, uid)
	changed, lastOfController := e.pods.remove(uid)
	if lastOfController {
		e.fresh = false
	}
	return changed
}

// podSeen takes a pod as the API server shows it.
func (s *Policies) podSeen(o any) {
	if pod, ok := object[*v1.Pod](o); ok {
		s.eachOf(pod.Namespace, func(e *entry) bool { return e.take(pod) })
	}
}

func (s *Policies) podUpdated(before, after any) {
	was, ok1 := object[*v1.Pod](before)
	is, ok2 := object[*v1.Pod](after)
	if ok1 && ok2 && was.UID != is.UID {
		s.podGone(was)
	}
	s.podSeen(after)
}

func (s *Policies) podGone(o any) {
	if pod, ok := object[*v1.Pod](o); ok {
		s.eachOf(pod.Namespace, func(e *entry) bool { return e.lose(pod.UID) })
	}
}

// eachOf runs f on the policies of a namespace that apply, and has the worker look at those for which it returns true.
// A policy that is made at the same moment reads the lister, which is ahead of the events.
func (s *Policies) eachOf(namespace string, f func(e *entry) bool) {
	if s.in(namespace) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.in(namespace)
	if n == nil {
		return
	}
	for _, a := range n.all {
		if f(a.entry) {
			s.queue.AddAfter(a.policy.UID(), gather)
		}
	}
}
