package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file stands for the loss of nodes, in both of its forms: the Node objects are deleted, or they stay.

// Loss has the pods that are lost with nodes.
type Loss struct {
	Nodes []*v1.Node
	// Displaced pods had a controller that has made Replacements, in the same order.
	Displaced, Replacements []*v1.Pod
	// Orphans had no controller that replaces them, see WhyNotReplaced; NodeBound pods are lost with their nodes.
	Orphans, NodeBound []*v1.Pod
	// Staying pods are not evicted from nodes that have failed, since they tolerate that: nothing runs in their place.
	Staying []*v1.Pod
	// drivers are what says which volumes and devices the nodes have.
	drivers []client.Object
}

// fate is what becomes of a pod whose node is lost.
type fate int

const (
	removed    fate = iota // it is gone
	terminates             // it is deleted, and no kubelet ends it
	endsLate               // the same, until its node counts as out of service; its controller waits for that
	stays                  // nothing happens to it
)

// outOfServiceTime is how long after nodes have failed they count as out of service: when other pods have been replaced.
const outOfServiceTime = time.Minute

// Lose removes nodes with all that is on them, as when a zone has failed for good: the nodes are deleted, then their
// pods, and their controllers make others. Run schedules these.
func (s *Sim) Lose(lost func(node *v1.Node) bool) *Loss {
	out := s.newLoss(lost)
	out.drivers = s.removeNodes(out.nodeNames())
	s.losePods(out, func(*v1.Pod) fate { return removed })
	return out
}

// Fail has nodes stop working while their objects stay, as in an outage until somebody deletes them: they are marked as
// node-lifecycle-controller marks nodes whose kubelets are silent, and pods that do not tolerate that are deleted, as
// by taint-eviction-controller. No kubelet ends these, so they terminate for as long as the nodes are there; their
// controllers make others, which Run schedules. A controller that waits for the end of a pod, as a StatefulSet's does,
// replaces it after the others, when Run comes to it: as it does once an operator has given the nodes the taint
// node.kubernetes.io/out-of-service.
func (s *Sim) Fail(failed func(node *v1.Node) bool) *Loss {
	out := s.newLoss(failed)
	now := metav1.Time{Time: s.clock.Now().Truncate(time.Second)} // as the API server keeps it
	for name := range out.nodeNames() {
		_, _ = changeObject(s.store, name, func(node *v1.Node) error {
			return markUnreachable(node, now)
		})
	}
	s.losePods(out, func(pod *v1.Pod) fate {
		switch {
		case NodeBound(pod):
			return stays
		case pod.DeletionTimestamp == nil && toleratesUnreachable(pod):
			out.Staying = append(out.Staying, pod)
			return stays
		case s.WhyNotReplaced(pod) == "" && !s.replacesAtOnce(pod):
			return endsLate
		}
		return terminates
	})
	return out
}

// newLoss returns a loss of nodes, which are not lost yet.
func (s *Sim) newLoss(lost func(node *v1.Node) bool) *Loss {
	return &Loss{Nodes: slices.DeleteFunc(list[*v1.Node](s.store), func(node *v1.Node) bool { return !lost(node) })}
}

func (l *Loss) nodeNames() map[string]bool {
	out := map[string]bool{}
	for _, node := range l.Nodes {
		out[node.Name] = true
	}
	return out
}

// losePods gives the pods of lost nodes their fates, and has the controllers of those that do not stay make others.
func (s *Sim) losePods(out *Loss, fateOf func(pod *v1.Pod) fate) {
	pods := objectsByIndex[*v1.Pod](s.store, nodeIndex, slices.Collect(maps.Keys(out.nodeNames()))...)
	s.sortForReplacement(pods)
	fates := map[*v1.Pod]fate{}
	for _, pod := range pods {
		fates[pod] = fateOf(pod)
	}
	s.countFailures(slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return fates[pod] == stays })...)
	var made []*v1.Pod
	for _, pod := range pods {
		switch fates[pod] {
		case stays:
			continue
		case terminates, endsLate:
			if pod.DeletionTimestamp == nil {
				s.countHealthy(pod, -1)
				s.terminate(pod)
			} else if fates[pod] == terminates {
				continue // its controller has replaced it
			}
		case removed:
			s.store.remove(kindFor[*v1.Pod](s.store), keyOf(pod))
			if pod.DeletionTimestamp == nil {
				s.countHealthy(pod, -1)
			}
			s.releaseClaims(pod)
		}
		var replacement *v1.Pod
		if pod.DeletionTimestamp == nil || !s.replacesAtOnce(pod) {
			replacement = s.replacement(pod) // of another one that ends, it is there already
		}
		switch {
		case replacement != nil:
			out.Displaced = append(out.Displaced, pod)
			made = append(made, replacement)
		case NodeBound(pod):
			out.NodeBound = append(out.NodeBound, pod)
		case pod.DeletionTimestamp == nil:
			out.Orphans = append(out.Orphans, pod)
		}
	}
	late := s.clock.Now().Add(outOfServiceTime)
	for i, pod := range made {
		replaced := out.Displaced[i]
		if fates[replaced] != endsLate {
			s.replaceLost(pod, replaced)
			continue
		}
		s.endPodAt(replaced, late, func(*v1.Pod) {
			s.releaseClaims(replaced)
			s.replaceLost(pod, replaced)
		})
	}
	out.Replacements = made
	s.noteProgress()
}

// replaceLost creates a pod that replaces a lost one, or has Run create it in its turn.
func (s *Sim) replaceLost(pod, lost *v1.Pod) {
	if s.options.OneByOne {
		s.toCreate = append(s.toCreate, replacedPod{pod, lost})
		return
	}
	s.createReplacement(pod, lost)
}

// replacedPod is a lost pod and the one that replaces it.
type replacedPod struct{ made, lost *v1.Pod }

// createNext creates the next of the pods that are created one by one. It returns false when there is none.
func (s *Sim) createNext() bool {
	if len(s.toCreate) == 0 {
		return false
	}
	next := s.toCreate[0]
	s.toCreate = s.toCreate[1:]
	s.createReplacement(next.made, next.lost)
	return true
}

// terminate deletes a pod that no kubelet ends. What the pod has in common with the one before is shared.
func (s *Sim) terminate(pod *v1.Pod) {
	now := s.clock.Now().Truncate(time.Second)
	shallow := *pod
	shallow.DeletionTimestamp, shallow.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, pod.Spec.TerminationGracePeriodSeconds
	s.store.mu.Lock()
	s.store.stampLocked(&shallow)
	s.store.mu.Unlock()
	_ = s.store.put(&shallow) // its kind is known
}

// markUnreachable makes a node what node-lifecycle-controller makes of one whose kubelet is silent.
func markUnreachable(node *v1.Node, now metav1.Time) error {
	node.Status.Conditions = slices.Clone(node.Status.Conditions)
	marked := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.MatchTaint(&unreachableTaints[1]) })
	for i := range node.Status.Conditions {
		switch c := &node.Status.Conditions[i]; c.Type {
		case v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
			if c.Status != v1.ConditionUnknown {
				marked = false
				c.Status, c.Reason, c.LastTransitionTime = v1.ConditionUnknown, "NodeStatusUnknown", now
			}
		}
	}
	if marked {
		return errUnchanged
	}
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
	for _, t := range unreachableTaints {
		t.TimeAdded = &now
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
	return nil
}

var unreachableTaints = []v1.Taint{
	{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}, {Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute},
}

// toleratesUnreachable reports whether taint-eviction-controller leaves a pod on an unreachable node for good: the pod
// tolerates the taint, and for no limited time (getMinTolerationTime).
func toleratesUnreachable(pod *v1.Pod) bool {
	tolerated, by := v1helper.GetMatchingTolerations(klog.Logger{}, unreachableTaints[1:], pod.Spec.Tolerations)
	return tolerated && !slices.ContainsFunc(by, func(t v1.Toleration) bool { return t.TolerationSeconds != nil })
}

// ReturnNodes brings back what Lose has taken, as when a zone is up again: the nodes with their drivers and the pods
// that go with them. Pods that have been displaced stay where they are; Run schedules those that wait.
func (s *Sim) ReturnNodes(loss *Loss) error {
	var back []client.Object
	for _, node := range loss.Nodes {
		back = append(back, node)
	}
	back = append(back, loss.drivers...)
	for _, pod := range loss.NodeBound {
		if pod.DeletionTimestamp == nil {
			back = append(back, pod)
		}
	}
	for _, obj := range back {
		if err := s.Put(obj); err != nil {
			return err
		}
	}
	return nil
}

// sortForReplacement puts lost pods into the order in which their controllers replace them. In a cluster it is random.
func (s *Sim) sortForReplacement(pods []*v1.Pod) {
	type lost struct {
		pod  *v1.Pod
		rank []int64
		draw uint64
	}
	all := make([]lost, len(pods))
	for i, pod := range pods {
		all[i].pod = pod
		if s.options.Rank != nil {
			all[i].rank = s.options.Rank(pod)
		}
		if s.options.Seed != 0 {
			all[i].draw = seededNumber(s.options.Seed, string(pod.UID))
		}
	}
	slices.SortStableFunc(all, func(a, b lost) int {
		return cmp.Or(slices.Compare(a.rank, b.rank), cmp.Compare(a.draw, b.draw))
	})
	for i := range all {
		pods[i] = all[i].pod
	}
}
