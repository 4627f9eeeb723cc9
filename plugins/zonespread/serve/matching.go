package serve

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

// matching are the live pods that a policy with spec.replicas Matching selects: their number is R.
type matching struct {
	policy  *policy.Policy
	pods    map[types.UID]string // with their gang, see policy.GroupBy
	gangs   map[string]int       // pods by gang
	inGangs int                  // pods of all gangs
	filled  bool                 // the pods that existed when the spec was seen are there
}

func newMatching(p *policy.Policy) *matching {
	return &matching{policy: p, pods: map[types.UID]string{}, gangs: map[string]int{}}
}

// update records the current state of a pod of the policy's namespace.
func (m *matching) update(pod *v1.Pod) {
	m.remove(pod.UID)
	if !pods.Live(pod) || !m.policy.Selects(pod.Labels) {
		return
	}
	gang := pod.Labels[m.policy.GroupBy()]
	m.pods[pod.UID] = gang
	if gang != "" {
		m.gangs[gang]++
		m.inGangs++
	}
}

// remove removes a pod, if it is there.
func (m *matching) remove(uid types.UID) {
	gang, known := m.pods[uid]
	if !known {
		return
	}
	delete(m.pods, uid)
	if gang == "" {
		return
	}
	m.inGangs--
	if m.gangs[gang]--; m.gangs[gang] == 0 {
		delete(m.gangs, gang)
	}
}

// count returns how many pods there are, or how many gangs and pods without a gang; -1 while that is not known.
func (m *matching) count() int64 {
	if m == nil || !m.filled {
		return -1
	}
	return int64(len(m.pods) - m.inGangs + len(m.gangs))
}

// countWith is count with a pod that the informer may not have shown yet.
func (m *matching) countWith(pod *v1.Pod) int64 {
	n := m.count()
	if n < 0 {
		return n
	}
	if _, known := m.pods[pod.UID]; !known && m.gangs[pod.Labels[m.policy.GroupBy()]] == 0 {
		n++
	}
	return n
}

// resetMatchingLocked has the pods of a new or changed policy collected, if their number is R. They are still known if
// the policy selects the same ones as before.
func (s *Policies) resetMatchingLocked(e *entry) {
	p := e.object.Spec
	switch {
	case p == nil || !p.Matching():
		e.matching = nil
	case e.matching != nil && e.matching.policy.CountsAs(p):
		e.matching.policy = p
	default:
		e.matching = newMatching(p)
		s.schedule(task{fillMatching, e.object.Latest.UID}, 0)
	}
}

// fillStep is how many pods are added at a time, so that cycles do not wait for all pods of a policy.
const fillStep = 256

// fillMatching adds the existing pods that a policy selects.
func (s *Policies) fillMatching(uid types.UID) {
	if !s.cluster.synced() {
		return // it is done again then
	}
	s.mu.Lock()
	e := s.entries[uid]
	if e == nil || e.matching == nil || e.matching.filled {
		s.mu.Unlock()
		return
	}
	m := e.matching
	p := m.policy
	s.mu.Unlock()
	// The scheduler's pods have no index by namespace. The lister of a cache has no errors.
	all, _ := s.cluster.pods.List(labels.Everything())
	for step := range slices.Chunk(all, fillStep) {
		s.mu.Lock()
		if e.matching != m {
			s.mu.Unlock()
			return // of another spec, or of a newer list
		}
		for _, listed := range step {
			if listed.Namespace != p.Namespace() || !p.Selects(listed.Labels) {
				continue
			}
			// The pods' events arrive at the same time. Only the lister's current state is not older than the last of
			// them.
			if pod, err := s.cluster.pods.Pods(listed.Namespace).Get(listed.Name); err == nil {
				m.update(pod)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.matching == m {
		m.filled, e.stale = true, true
	}
}
