package serve

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/reservecache/holds"
)

const (
	// surveyPause is the least time between two surveys, and surveyRest how many times as long as the last one took.
	surveyPause = time.Second
	surveyRest  = 100
)

// survey is what is found about the pods that a reservation selects: whether they can use its slots, and whether they
// are its own.
type survey struct {
	// slots is how many slots the largest owner takes, and largest its name.
	slots   int
	largest string
	// apart is the name of an owner that may not share a node with others like it; empty if there is none.
	apart string
	// winners are the reservations to which pods belong that this one selects as well.
	winners map[string]bool
}

// surveyOwners looks at all pods, unless it has done so a moment ago and no reservation has changed. It returns when it
// is due; zero if it is not.
func (s *Server) surveyOwners() (due time.Time) {
	if !s.Any() {
		return time.Time{}
	}
	began := s.Clock.Now()
	if began.Before(s.nextSurvey) {
		return s.nextSurvey
	}
	all, err := s.Handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return time.Time{} // an informer's store has no errors
	}
	index, found := s.owners.Load(), map[types.UID]*survey{}
	for _, pod := range all {
		if specs := index.matching(pod); len(specs) > 0 && !pods.Ended(pod) && !IgnoresHolds(pod) {
			s.surveyPod(pod, specs, found)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.entries {
		now := survey{}
		if found[uid] != nil {
			now = *found[uid]
		}
		if !e.survey.equal(&now) {
			e.survey = now
			s.writeLaterLocked(uid, statusPause)
		}
	}
	s.nextSurvey = s.Clock.Now().Add(max(surveyPause, surveyRest*s.Clock.Since(began)))
	return time.Time{}
}

// surveyPod takes a pod into account that reservations select, and belongs to the first of them.
func (s *Server) surveyPod(pod *v1.Pod, specs []*spec, found map[types.UID]*survey) {
	surveyOf := func(spec *spec) *survey {
		if found[spec.uid] == nil {
			found[spec.uid] = &survey{winners: map[string]bool{}}
		}
		return found[spec.uid]
	}
	name, request := pod.Namespace+"/"+pod.Name, s.Ledger.Requests(pod)
	own := surveyOf(specs[0])
	slots := holds.SlotsCovering(&request, &specs[0].slot)
	if slots > own.slots || slots == own.slots && name < own.largest {
		own.slots, own.largest = slots, name
	}
	if (own.apart == "" || name < own.apart) && keepsAway(pod) {
		own.apart = name
	}
	for _, spec := range specs[1:] {
		surveyOf(spec).winners[specs[0].name] = true
	}
}

func (s *survey) equal(other *survey) bool {
	return s.slots == other.slots && s.largest == other.largest && s.apart == other.apart &&
		maps.Equal(s.winners, other.winners)
}

// keepsAway reports whether a pod may not be on one node with many others like it: by a required anti-affinity by
// hostname, or by a topology spread constraint by hostname that has to be met.
func keepsAway(pod *v1.Pod) bool {
	like := func(selector *metav1.LabelSelector) bool {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && parsed.Matches(labels.Set(pod.Labels))
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			t := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			if t.TopologyKey == v1.LabelHostname && like(t.LabelSelector) {
				return true
			}
		}
	}
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.TopologyKey == v1.LabelHostname && c.WhenUnsatisfiable == v1.DoNotSchedule && like(c.LabelSelector)
	})
}

// misfit says why owners cannot use the slots as they are, or nothing. most is the largest number of slots on one node.
func (s *survey) misfit(spec *spec, most int) (reason, message string) {
	if spec.perNode > 0 {
		most = spec.perNode
	}
	switch most := max(most, 1); {
	case s.slots > most:
		return v1alpha1.ReasonLargerThanSlot, fmt.Sprintf(
			"spec.slot: pod %s asks for as much as %d slots, but a node has at most %d", s.largest, s.slots, most)
	case s.apart != "" && most > 1:
		return v1alpha1.ReasonOneOwnerPerNode, fmt.Sprintf(
			"spec.slotsPerNode: pods such as %s keep away from each other by hostname, but nodes have up to %d slots: "+
				"set it to the number of such pods that may share a node", s.apart, most)
	}
	return "", ""
}
