package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// RefusalGap is the longest time between two refusals of which the second continues the first. The framework tries
	// a waiting pod again within 5 minutes, and refusedSize.last may be older than the last refusal by renewInterval.
	RefusalGap = 15 * time.Minute
	// renewInterval is the resolution of refusedSize.last, so that it is not written with every attempt.
	renewInterval = 5 * time.Minute
	// maxSizes is how many sizes are kept for a zone, see sizes.refused.
	maxSizes = 8
)

// refusedSize is an unbroken run of attempts in which all eligible nodes of a zone refused pods that asked for
// atLeast, or less.
type refusedSize struct {
	since, last seconds
	atLeast     Requests
	// resources is true if no eligible node had the requested resources at the last look.
	resources bool
}

// live reports whether the run may still be continued.
func (s *refusedSize) live(now time.Time) bool { return !s.last.passed(RefusalGap, now) }

// full reports whether the run has made the zone full for its pods: between the first refusal and the last there is fullAfter.
func (s *refusedSize) full(fullAfter time.Duration) bool {
	return s.since.passed(fullAfter, s.last.time())
}

// sizes are the runs of a zone, no two of one size. Most zones have none, most others one: the size of the workload's pods.
type sizes []*refusedSize

// fullFor reports whether a live run makes the zone full for a pod.
func (all sizes) fullFor(r Requests, fullAfter time.Duration, now time.Time) bool {
	return slices.ContainsFunc(all, func(s *refusedSize) bool { return s.live(now) && s.full(fullAfter) && s.atLeast.Within(r) })
}

// anyFull reports whether a live run makes the zone full for some pod.
func (all sizes) anyFull(fullAfter time.Duration, now time.Time) bool {
	return slices.ContainsFunc(all, func(s *refusedSize) bool { return s.live(now) && s.full(fullAfter) })
}

// refused records that all eligible nodes of the zone refused a pod. Runs that have ended must be gone. It returns whether
// a fact has changed, and whether a run has thereby made the zone full.
//
// If there are too many sizes, a new one joins a run of smaller pods, or else widens the latest run, which then begins
// again. So a zone becomes full for every size at most fullAfter after the last size was first seen.
func (all *sizes) refused(r Requests, resources bool, fullAfter time.Duration, now time.Time) (changed, full bool) {
	at := roundUp(now)
	known := false
	renew := func(s *refusedSize) {
		c, f := s.renew(at, resources, fullAfter)
		changed, full = changed || c, full || f
	}
	var covering, youngest *refusedSize
	for _, s := range *all {
		if youngest == nil || s.since > youngest.since {
			youngest = s
		}
		if s.atLeast.Within(r) {
			covering = s
		}
		if r.Within(s.atLeast) {
			renew(s)
			known = known || s.atLeast.Within(r)
		}
	}
	switch {
	case known:
	case len(*all) < maxSizes:
		*all = append(*all, &refusedSize{since: at, last: at, atLeast: r, resources: resources})
		changed = true
	case covering != nil:
		renew(covering)
	default:
		youngest.since, youngest.last, youngest.atLeast, youngest.resources = at, at, least(youngest.atLeast, r), resources
		changed = true
	}
	return changed, full
}

func (s *refusedSize) renew(at seconds, resources bool, fullAfter time.Duration) (changed, full bool) {
	then := at.time()
	full = !s.full(fullAfter) && s.since.passed(fullAfter, then)
	if resources == s.resources && !full && !s.last.passed(renewInterval, then) {
		return false, false
	}
	s.last, s.resources = at, resources
	return true, full
}

// took records that the zone has room for a pod. It returns whether a fact has changed, and whether the zone had been full for the pod.
func (all *sizes) took(r Requests, fullAfter time.Duration, now time.Time) (changed, wasFull bool) {
	*all = slices.DeleteFunc(*all, func(s *refusedSize) bool {
		if !s.atLeast.Within(r) {
			return false
		}
		changed = true
		wasFull = wasFull || s.live(now) && s.full(fullAfter)
		return true
	})
	return changed, wasFull
}

// expire forgets the runs that were not continued. It returns when the last of them ended that had made the zone full.
func (all *sizes) expire(fullAfter time.Duration, now time.Time) (changed bool, ended seconds) {
	*all = slices.DeleteFunc(*all, func(s *refusedSize) bool {
		if s.live(now) {
			return false
		}
		changed = true
		ended = max(ended, s.endedFull(fullAfter))
		return true
	})
	return changed, ended
}

// endedFull returns when a run that is not live ended, and 0 if it had not made the zone full.
func (s *refusedSize) endedFull(fullAfter time.Duration) seconds {
	if !s.full(fullAfter) {
		return 0
	}
	return roundUp(s.last.time().Add(RefusalGap))
}

// least returns the smaller amount of each resource.
func least(a, b Requests) Requests {
	r := Requests{}
	for name, amount := range a {
		if m := min(amount, b[name]); m > 0 {
			r[name] = m
		}
	}
	return r
}

func (all sizes) export() []v1alpha1.RefusedSize {
	var out []v1alpha1.RefusedSize
	for _, s := range slices.SortedStableFunc(slices.Values(all), func(a, b *refusedSize) int { return cmp.Compare(a.since, b.since) }) {
		out = append(out, v1alpha1.RefusedSize{
			Since: metav1.NewTime(s.since.time()), Last: metav1.NewTime(s.last.time()), AtLeast: s.atLeast.list(), Resources: s.resources,
		})
	}
	return out
}

func importSizes(list []v1alpha1.RefusedSize) sizes {
	var all sizes
	for i := range list {
		s := &refusedSize{
			since: fromTime(&list[i].Since), last: fromTime(&list[i].Last),
			atLeast: requestsFrom(list[i].AtLeast), resources: list[i].Resources,
		}
		same := func(o *refusedSize) bool { return maps.Equal(o.atLeast, s.atLeast) }
		if s.since.set() && s.last.set() && !slices.ContainsFunc(all, same) {
			all = append(all, s)
		}
	}
	return all
}
