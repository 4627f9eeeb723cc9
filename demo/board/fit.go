package board

import (
	corev1 "k8s.io/api/core/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Waiting is what still waits, apart from gangs.
type Waiting struct {
	// Pods are not bound.
	Pods int
	// Placeable are those of them that some node could take at this moment:
	// the scheduler has work left.
	Placeable []string
}

// FindWaiting recounts which pods wait, and which of them have somewhere to go,
// of which it stops at atMost. Members of gangs are left out: whether those fit
// is a question about all of them.
func FindWaiting(nodes []*corev1.Node, pods []*corev1.Pod, atMost int) Waiting {
	return findWaiting(newRecount(nodes, pods), atMost)
}

func findWaiting(r *recount, atMost int) Waiting {
	var w Waiting
	for _, pod := range r.pending {
		if pod.Labels[schedv1alpha1.PodGroupLabel] != "" {
			continue
		}
		w.Pods++
		if len(w.Placeable) < atMost && r.placeable(pod) {
			w.Placeable = append(w.Placeable, pod.Namespace+"/"+pod.Name)
		}
	}
	return w
}

// placeable reports whether some node could take the pod now, by its own
// requests, taints, affinity and hard spread constraints.
func (r *recount) placeable(pod *corev1.Pod) bool {
	type limit struct {
		key     string
		counts  map[string]int
		lowest  int
		maxSkew int
	}
	var limits []limit
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			counts := r.domains(pod, c)
			limits = append(limits, limit{c.TopologyKey, counts, lowest(counts, c), int(c.MaxSkew)})
		}
	}
	requests := requestsOf(pod)
nodes:
	for _, n := range r.order {
		if !tolerates(pod, n.node) || !selects(pod, n.node) {
			continue
		}
		for name, asked := range requests {
			if asked > 0 && n.allocated[name]+asked > n.allocatable[name] {
				continue nodes
			}
		}
		for _, l := range limits {
			// The pods of a Deployment match their own selector.
			count, known := l.counts[n.node.Labels[l.key]]
			if !known || count+1-l.lowest > l.maxSkew {
				continue nodes
			}
		}
		return true
	}
	return false
}
