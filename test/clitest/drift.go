package clitest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
)

// DoNotDisrupt is the annotation of pods that ask not to be moved.
const DoNotDisrupt = "karpenter.sh/do-not-disrupt"

// Service is a workload of a cluster that has drifted, one pod of which may be moved at a time.
type Service struct {
	App      string
	Replicas int
	// MinAvailable is that of its budget; 0 if it has none.
	MinAvailable int
	// WeightOfA is that of zone a in its policy or constraint, of which every other zone has 1.
	WeightOfA int
}

// Drifted returns a random cluster of the zones a, b and c that has drifted, with constraints and policies, budgets, a
// reservation, a gang and pods that ask not to be moved.
func Drifted(r *rand.Rand) (*Cluster, []Service) {
	c := New()
	var nodes []string
	for i := range 3 + r.IntN(4) {
		name := fmt.Sprintf("node-%d", i)
		c.Node(name, string(rune('a'+i%3)), fmt.Sprint(6+4*r.IntN(3)), "64Gi")
		nodes = append(nodes, name)
	}
	var services []Service
	for i := range 2 + r.IntN(3) {
		s := Service{App: fmt.Sprintf("app-%d", i), Replicas: 2 + r.IntN(4), WeightOfA: 1}
		byPolicy := r.IntN(2) == 0
		add := c.Deployment(s.App, int32(s.Replicas), "1", "1Gi", func(p *corev1.PodTemplateSpec) { //nolint:gosec // small
			if !byPolicy {
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{ZoneSpread(s.App, 1)}
			}
		})
		first := r.IntN(len(nodes)) // the pods are on two nodes
		for range s.Replicas {
			pod := add(nodes[(first+r.IntN(2))%len(nodes)])
			if r.IntN(8) == 0 {
				pod.Annotations = map[string]string{DoNotDisrupt: "true"}
			}
		}
		if byPolicy {
			c.Policy(s.App, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				if r.IntN(3) > 0 {
					p.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
				}
				if r.IntN(2) == 0 {
					s.WeightOfA = 2
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To[int32](2)}}
				}
			})
		}
		if r.IntN(2) == 0 {
			s.MinAvailable = max(1, s.Replicas-1)
			c.Budget(s.App, int32(s.MinAvailable)) //nolint:gosec // small
		}
		services = append(services, s)
	}
	c.Gang("train", 2)
	for i := range 2 {
		c.Pod(fmt.Sprint("train-", i), nodes[i], Plain("1", "1Gi"), map[string]string{schedv1alpha1.PodGroupLabel: "train", "app": "app-0"})
	}
	if r.IntN(2) == 0 {
		c.Reservation("spare", "app-0", "1", 5, map[string]int64{nodes[r.IntN(len(nodes))]: 1})
	}
	return c, services
}

// Missing is how many of its pods are not ready, or end.
func (s *Service) Missing(all []*corev1.Pod) int {
	ready := 0
	for _, pod := range all {
		if pod.Labels["app"] == s.App && pod.Labels[schedv1alpha1.PodGroupLabel] == "" && pods.Live(pod) && pods.Ready(pod) {
			ready++
		}
	}
	return s.Replicas - ready
}

// CheckReady returns an error if the budget is broken, or if more than one pod is missing.
func (s *Service) CheckReady(all []*corev1.Pod) error {
	switch missing := s.Missing(all); {
	case s.Replicas-missing < s.MinAvailable:
		return fmt.Errorf("%d pods of %s are ready, and its budget wants %d", s.Replicas-missing, s.App, s.MinAvailable)
	case missing > 1:
		return fmt.Errorf("%d pods of %s are missing at once", missing, s.App)
	}
	return nil
}

// CheckSpread returns an error if a zone has more pods than the rule allows: of weights w and pods c, with the smallest
// share c/w in zone m, c*w(m) - w*c(m) is at most w(m). zones has the zone of each node.
func (s *Service) CheckSpread(all []*corev1.Pod, zones map[string]string) error {
	in, weight := map[string]int{}, map[string]int{"a": s.WeightOfA, "b": 1, "c": 1}
	for _, pod := range all {
		if zone := zones[pod.Spec.NodeName]; pod.Labels["app"] == s.App && zone != "" && pods.Live(pod) {
			in[zone]++
		}
	}
	least := "a"
	for zone := range weight {
		if in[zone]*weight[least] < in[least]*weight[zone] {
			least = zone
		}
	}
	for zone := range weight {
		if in[zone]*weight[least]-weight[zone]*in[least] > weight[least] {
			return fmt.Errorf("zone %s has too many pods of %s: %v, by weights %v", zone, s.App, in, weight)
		}
	}
	return nil
}

// LeastMoves is how few moves bring pods within a maxSkew of 1 over so many zones, which all take pods.
func LeastMoves(pods map[string]int, zones int) (moves int) {
	all := 0
	for _, n := range pods {
		all += n
	}
	larger := all % zones // zones that keep one more than the others
	for _, n := range slices.SortedFunc(maps.Values(pods), func(a, b int) int { return b - a }) {
		kept := all / zones
		if larger > 0 {
			kept, larger = kept+1, larger-1
		}
		moves += max(0, n-kept)
	}
	return moves
}
