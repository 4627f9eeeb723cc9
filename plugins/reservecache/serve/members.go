package serve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// members are the pods that belong to reservations, as the API server shows them: what they ask for, and whether they keep away from each
// other.
type members struct {
	pods   map[types.UID]member
	claims map[types.UID]claimMembers
}

type member struct {
	claim types.UID
	shape shape
}

// shape is what matters of a pod to the slots of its reservation.
type shape struct {
	milliCPU, memory, ephemeralStorage int64
	scalar                             string
	// alone means that the pod keeps away from others like it by hostname.
	alone bool
}

// claimMembers are the members of one claim, by shape.
type claimMembers map[shape]*sample

// sample is how many pods have a shape, and one of them.
type sample struct {
	pods    int
	example string
	request ledger.Resources
}

func newMembers() members {
	return members{pods: map[types.UID]member{}, claims: map[types.UID]claimMembers{}}
}

// PodSeen records the current state of a pod.
func (s *Server) PodSeen(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memberLocked(pod, s.OwnerOf(pod))
}

// PodGone records that a pod is gone or has finished.
func (s *Server) PodGone(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropMemberLocked(uid)
}

func (s *Server) memberLocked(pod *v1.Pod, owner *Owner) {
	m, known := s.members.pods[pod.UID]
	if owner == nil {
		if known {
			s.dropMemberLocked(pod.UID)
		}
		return
	}
	request := s.Ledger.Requests(pod)
	now := member{claim: owner.Claim, shape: shapeOf(pod, &request)}
	if known && m == now {
		return
	}
	s.dropMemberLocked(pod.UID)
	s.members.pods[pod.UID] = now
	c := s.members.claims[now.claim]
	if c == nil {
		c = claimMembers{}
		s.members.claims[now.claim] = c
	}
	like := c[now.shape]
	if like == nil {
		like = &sample{example: pod.Namespace + "/" + pod.Name, request: request}
		c[now.shape] = like
		s.writeLaterLocked(now.claim, statusPause)
	}
	like.pods++
}

func (s *Server) dropMemberLocked(uid types.UID) {
	m, known := s.members.pods[uid]
	if !known {
		return
	}
	delete(s.members.pods, uid)
	c := s.members.claims[m.claim]
	if like := c[m.shape]; like.pods > 1 {
		like.pods--
	} else {
		delete(c, m.shape)
		s.writeLaterLocked(m.claim, statusPause)
	}
	if len(c) == 0 {
		delete(s.members.claims, m.claim)
	}
}

// countMembers finds the members of all reservations again, after these have changed.
func (s *Server) countMembers() {
	s.mu.Lock() // before the list: a pod that goes after it is dropped after it, too
	defer s.mu.Unlock()
	pods, err := s.Handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return // an informer's store has no errors
	}
	for _, pod := range pods {
		s.memberLocked(pod, s.OwnerOf(pod))
	}
}

// shapeOf reads a pod.
func shapeOf(pod *v1.Pod, request *ledger.Resources) shape {
	sh := shape{milliCPU: request.MilliCPU, memory: request.Memory, ephemeralStorage: request.EphemeralStorage, alone: keepsAway(pod)}
	var scalar strings.Builder
	for _, name := range slices.Sorted(maps.Keys(request.Scalar)) {
		fmt.Fprintf(&scalar, "%s=%d;", name, request.Scalar[name])
	}
	sh.scalar = scalar.String()
	return sh
}

// keepsAway reports whether a pod may not be on one node with many others like it: by a required anti-affinity by hostname, or by a
// topology spread constraint by hostname that has to be met.
func keepsAway(pod *v1.Pod) bool {
	like := func(selector *metav1.LabelSelector) bool {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && parsed.Matches(labels.Set(pod.Labels))
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if t := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]; t.TopologyKey == v1.LabelHostname && like(t.LabelSelector) {
				return true
			}
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.TopologyKey == v1.LabelHostname && c.WhenUnsatisfiable == v1.DoNotSchedule && like(c.LabelSelector) {
			return true
		}
	}
	return false
}

// misfit says why owners cannot use the slots as they are, or nothing. most is the largest number of slots on one node.
func (c claimMembers) misfit(spec *spec, most int) (reason, message string) {
	if spec.perNode > 0 {
		most = spec.perNode
	}
	samples := slices.SortedFunc(maps.Keys(c), func(a, b shape) int {
		return cmp.Compare(c[a].example, c[b].example)
	})
	for _, sh := range samples {
		like := c[sh]
		if cover := holds.Cover(&like.request, &spec.slot); cover > max(most, 1) {
			return v1alpha1.ReasonLargerThanSlot, fmt.Sprintf("spec.slot: pod %s asks for as much as %d slots, but a node has at most %d", like.example, cover, max(most, 1))
		}
	}
	for _, sh := range samples {
		if sh.alone && most > 1 {
			return v1alpha1.ReasonOneOwnerPerNode, fmt.Sprintf("spec.slotsPerNode: pods such as %s keep away from each other by hostname, but nodes have up to %d slots: set it to the number of such pods that may share a node", c[sh].example, most)
		}
	}
	return "", ""
}
