package serve

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/pods"
)

// surveyRest is how many times as long as the last survey took the next one waits, beyond a tick.
const surveyRest = 100

// survey is what is found about pods, running and waiting ones, for a reservation.
type survey struct {
	// highest is the highest priority among its owners; owned is false if there are none.
	highest int32
	owned   bool
	// outranking is the pod of the highest priority that is not its owner, and above that priority.
	outranking string
	above      int32
	// winners are the reservations to which pods belong that this one selects as well.
	winners map[string]bool
}

// defaultPriority is that of a reservation that names none: the highest among its owners, and not below that of pods
// without a priority class.
func (s *survey) defaultPriority(fallback int32) int32 {
	if s.owned {
		return max(s.highest, fallback)
	}
	return fallback
}

// ranked is the name and the priority of a pod, and the reservation that owns it, empty for none.
type ranked struct {
	name     string
	priority int32
	owner    types.UID
	known    bool
}

func (r *ranked) take(name string, priority int32, owner types.UID) {
	if !r.known || priority > r.priority || priority == r.priority && name < r.name {
		*r = ranked{name, priority, owner, true}
	}
}

// surveyLocked looks at all pods.
func (s *Server) surveyLocked(owners *ownerIndex) {
	all, err := s.Handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return // an informer's store has no errors
	}
	found, first := map[types.UID]*survey{}, map[types.UID]*ranked{}
	of := func(spec *spec) *survey {
		if found[spec.uid] == nil {
			found[spec.uid] = &survey{winners: map[string]bool{}}
		}
		return found[spec.uid]
	}
	for _, pod := range all {
		if pods.Ended(pod) || IgnoresSlots(pod) {
			continue
		}
		owner, priority := types.UID(""), schedulingv1.PodPriority(pod)
		if specs := owners.matching(pod); len(specs) > 0 {
			own := of(specs[0])
			own.highest, owner = max(priority, own.highest), specs[0].uid
			if !own.owned {
				own.highest, own.owned = priority, true
			}
			for _, spec := range specs[1:] {
				of(spec).winners[specs[0].name] = true
			}
		}
		if first[owner] == nil {
			first[owner] = &ranked{}
		}
		first[owner].take(klog.KObj(pod).String(), priority, owner)
	}
	var top, second ranked // of two owners
	for owner, r := range first {
		if !top.known || r.priority > top.priority || r.priority == top.priority && r.name < top.name {
			top, second = *r, top
			top.owner = owner
		} else {
			second.take(r.name, r.priority, owner)
		}
	}
	for uid, e := range s.entries {
		now := survey{}
		if found[uid] != nil {
			now = *found[uid]
		}
		if r := top; r.known {
			if r.owner == uid {
				r = second
			}
			now.outranking, now.above = r.name, r.priority
		}
		if !e.survey.equal(&now) {
			if e.survey.highest != now.highest || e.survey.owned != now.owned {
				s.needsApply = true
			}
			e.survey = now
			s.writeLaterLocked(uid, statusPause)
		}
	}
}

// surveyPods looks at all pods, unless it has done so within a tick. It returns when it is due.
func (s *Server) surveyPods() (due time.Time) {
	if len(s.Claims().List) == 0 {
		return time.Time{}
	}
	if began := s.Clock.Now(); !began.Before(s.nextSurvey) {
		s.mu.Lock()
		s.surveyLocked(s.Claims().owners)
		s.mu.Unlock()
		s.nextSurvey = s.Clock.Now().Add(max(tick, surveyRest*s.Clock.Since(began)))
	}
	return s.nextSurvey
}

func (s *survey) equal(other *survey) bool {
	return s.highest == other.highest && s.owned == other.owned && s.outranking == other.outranking && s.above == other.above &&
		maps.Equal(s.winners, other.winners)
}
