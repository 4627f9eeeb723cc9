package serve

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/policy"
)

// members are the live pods that a policy selects, from the informers.
type members struct {
	facts   map[types.UID]fact
	gangs   map[string]int // pods by gang, see policy.GroupBy
	inGangs int            // pods of all gangs

	filled bool // the pods that existed when the spec was seen are there
}

// fact is the stored part of one pod.
type fact struct {
	revision string
	gang     string
	node     string
	owner    reference
}

// reference names the controller of a pod.
type reference struct {
	kind, name string
	uid        types.UID
}

func newMembers() *members {
	return &members{facts: map[types.UID]fact{}, gangs: map[string]int{}}
}

func ownerOf(o metav1.Object) reference {
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil {
		return reference{}
	}
	return reference{kind: c.Kind, name: c.Name, uid: c.UID}
}

// live reports whether a pod counts at all.
func live(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// upsert adds or updates a live, selected pod. It returns whether that changed anything.
func (m *members) upsert(p *policy.Policy, pod *v1.Pod) bool {
	f := fact{revision: p.Revision(pod.Labels), gang: pod.Labels[p.GroupBy()], node: pod.Spec.NodeName, owner: ownerOf(pod)}
	if before, known := m.facts[pod.UID]; known && before == f {
		return false
	}
	m.remove(pod.UID)
	m.facts[pod.UID] = f
	if f.gang != "" {
		m.gangs[f.gang]++
		m.inGangs++
	}
	return true
}

// remove removes a pod. It returns whether it was there.
func (m *members) remove(uid types.UID) bool {
	f, ok := m.facts[uid]
	if !ok {
		return false
	}
	delete(m.facts, uid)
	if f.gang != "" {
		m.inGangs--
		if m.gangs[f.gang]--; m.gangs[f.gang] == 0 {
			delete(m.gangs, f.gang)
		}
	}
	return true
}

// matching returns how many pods there are, or how many gangs and pods without a gang.
func (m *members) matching() int64 {
	return int64(len(m.facts) - m.inGangs + len(m.gangs))
}

// matchingWith is matching with a pod that the informer may not have shown yet.
func (m *members) matchingWith(uid types.UID, gang string) int64 {
	n := m.matching()
	if _, known := m.facts[uid]; !known && m.gangs[gang] == 0 {
		n++
	}
	return n
}
