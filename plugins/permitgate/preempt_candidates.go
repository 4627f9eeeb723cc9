package permitgate

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/plan"
)

// company is what pods belong to that stand together.
type company struct {
	gang   types.NamespacedName
	native bool // of upstream's gang scheduling
}

func companyOf(pod *v1.Pod) (company, bool) {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return company{types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}, true}, true
	}
	key, ok := gangOf(pod)
	return company{gang: key}, ok
}

// candidates returns who may be evicted from each node for a gang: pods of a lower priority. It looks through the
// cluster once, for the gangs that these pods belong to: their members go singly as long as enough of them are left,
// and then all together.
func (s *Shared) candidates(cluster *view, now time.Time) func(i int, names []v1.ResourceName) []plan.Candidate {
	type tally struct{ present, removable int }
	tallies := map[company]*tally{}
	for _, info := range cluster.nodes {
		for _, one := range info.GetPods() {
			pod := one.GetPod()
			in, ok := companyOf(pod)
			if !ok || pod.DeletionTimestamp != nil {
				continue
			}
			if tallies[in] == nil {
				tallies[in] = &tally{}
			}
			tallies[in].present++
			if cluster.mayGo(pod) {
				tallies[in].removable++
			}
		}
	}
	companies := make(map[company]*plan.Company, len(tallies))
	for in, t := range tallies {
		if t.removable == 0 {
			continue
		}
		// Nothing is known here of what native groups need: all of one or none.
		needs := t.present
		if !in.native {
			needs = s.needs(in.gang)
		}
		if needs <= 0 {
			continue // no gang: its PodGroup is gone
		}
		companies[in] = &plan.Company{
			Name: in.gang.String(), Spare: min(t.removable, max(0, t.present-needs)), Whole: t.removable == t.present,
		}
	}
	return func(i int, names []v1.ResourceName) []plan.Candidate {
		info := cluster.nodes[i]
		var found []plan.Candidate
		for _, one := range info.GetPods() {
			pod := one.GetPod()
			leaving := isLeaving(pod, now)
			if !leaving && (pod.DeletionTimestamp != nil || !cluster.mayGo(pod)) {
				continue
			}
			if cluster.member(pod.UID) || cluster.keeps(info.Node().Name, pod.UID) {
				continue
			}
			c := plan.Candidate{Pod: pod, Gain: gainOf(one, names), Leaving: leaving}
			if in, ok := companyOf(pod); ok && !leaving {
				c.Company = companies[in]
			}
			found = append(found, c)
		}
		return found
	}
}

// needs returns how many bound members a gang needs, those aside that have succeeded; 0 for what is no gang.
func (s *Shared) needs(key types.NamespacedName) (n int) {
	s.look(key, func(e *entry, _ time.Time) {
		if minMember := e.gang.MinMember(); minMember > 0 {
			n = max(1, minMember-len(e.done))
		}
	})
	return n
}

// mayGo reports whether a pod may be evicted for the gang. Pods of DaemonSets would come back at once, and no hold
// keeps them off.
func (v *view) mayGo(pod *v1.Pod) bool {
	if corev1.PodPriority(pod) >= v.priority || v.member(pod.UID) || v.barred[pod.UID] {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner == nil || owner.Kind != "DaemonSet"
}

// keeps reports whether the room of a pod stays held for others when it goes.
func (v *view) keeps(node string, uid types.UID) bool {
	return v.held != nil && v.held.Keeps(node, v.gang, v.priority, uid)
}

// isLeaving reports whether a pod terminates and can be expected to be gone soon.
func isLeaving(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.Before(pod.DeletionTimestamp.Add(preemptionSlack))
}

// gainOf returns what a pod takes of named resources, as its node accounts for it.
func gainOf(pod fwk.PodInfo, names []v1.ResourceName) []int64 {
	takes := pod.CalculateResource().Resource
	gain := make([]int64, len(names))
	for j, name := range names {
		if name == v1.ResourcePods {
			gain[j] = 1
		} else {
			gain[j] = amountOf(takes, name)
		}
	}
	return gain
}

// without returns the cluster as it is when pods are gone.
func (v *view) without(gone []plan.Removal) *view {
	left := *v
	left.gone = make(map[string]map[types.UID]bool, len(gone)+len(v.gone))
	for node, pods := range v.gone {
		left.gone[node] = maps.Clone(pods)
	}
	for _, g := range gone {
		node := v.Node(g.Node).Name
		if left.gone[node] == nil {
			left.gone[node] = map[types.UID]bool{}
		}
		left.gone[node][g.Pod.UID] = true
	}
	return &left
}

// still returns those of the pods that have not left their nodes.
func (v *view) still(pods map[types.UID]string) []plan.Removal {
	nodes := map[string]bool{}
	for _, node := range pods {
		nodes[node] = true
	}
	var still []plan.Removal
	for i, info := range v.nodes {
		if !nodes[info.Node().Name] {
			continue
		}
		for _, one := range info.GetPods() {
			if _, ok := pods[one.GetPod().UID]; ok {
				still = append(still, plan.Removal{Pod: one.GetPod(), Node: i})
			}
		}
	}
	return still
}
