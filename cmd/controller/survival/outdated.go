package survival

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/survival"
)

// slowRound is how long a full round may take without that the old answers are marked first: to mark each of them on a
// small cluster, where the new answer comes in a second, would only be two writes in place of one.
const slowRound = 5 * time.Second

// answer is what is known about a ZoneSurvival.
type answer struct {
	name string
	// computed is the last certificate, shown the status as it should be, which says where the certificate no longer
	// fits.
	computed, shown v1alpha1.ZoneSurvivalStatus
	// writtenFrom is the resourceVersion that the last write was based on.
	writtenFrom string
}

// rememberAnswers takes the statuses of ZoneSurvivals that are new to the process for their last answers, so that their
// metrics go on before the first round is over, and forgets those that are gone.
func (r *round) rememberAnswers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.asked {
		if r.answers[s.UID] == nil {
			r.answers[s.UID] = &answer{name: s.Name, computed: *s.Status.DeepCopy(), shown: *s.Status.DeepCopy()}
		}
	}
	if len(r.options.Missing) == 0 {
		maps.DeleteFunc(r.answers, func(uid types.UID, _ *answer) bool {
			return !slices.ContainsFunc(r.asked, func(s *v1alpha1.ZoneSurvival) bool { return s.UID == uid })
		})
	}
}

// setAnswer sets the last certificate of a ZoneSurvival, unless that is gone.
func (c *Controller) setAnswer(uid types.UID, status v1alpha1.ZoneSurvivalStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[uid]; a != nil {
		a.computed = *status.DeepCopy()
	}
}

// noteWritten notes on which resourceVersion the last write was based.
func (c *Controller) noteWritten(uid types.UID, from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[uid].writtenFrom = from
}

// show returns the status that a ZoneSurvival should have: the last certificate as far as it still fits, what is held,
// and what is left of a zone that is cut off. stale is true if what was read does not have the last write yet.
func (r *round) show(s *v1alpha1.ZoneSurvival, impaired *survival.Impaired) (shown *v1alpha1.ZoneSurvivalStatus, stale bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.answers[s.UID]
	shown = r.asShown(&a.computed, s)
	room := &s.Status // what is said of the room stays as it is where it is not known
	if now := r.rooms[s.UID]; now != nil {
		room = now
	}
	shown.Reservations, shown.Held, shown.Missing = room.Reservations, room.Held, room.Missing
	copyCondition(shown, room, v1alpha1.ConditionHeld)
	shown.Impaired = s.Status.Impaired
	copyCondition(shown, &s.Status, v1alpha1.ConditionServes)
	missing := strings.Join(r.options.Missing, "; ")
	switch {
	case missing != "":
		setUnknown(shown, v1alpha1.ConditionHeld, v1alpha1.ReasonSnapshotIncomplete, missing)
		setUnknown(shown, v1alpha1.ConditionServes, v1alpha1.ReasonSnapshotIncomplete, missing)
	case len(shown.Conditions) > 0:
		impaired.Answer(s, metav1.Time{Time: r.options.Sim.Now}, shown)
	}
	shown.Buy = s.Status.Buy.DeepCopy() // another part of the controller writes it
	copyCondition(shown, &s.Status, v1alpha1.ConditionBuying)
	keepTimes(shown, &s.Status, r.options.Sim.Now)
	a.shown = *shown.DeepCopy()
	return shown, a.writtenFrom != "" && a.writtenFrom == s.ResourceVersion
}

// copyCondition gives a status the condition of another one, none if that has none. It becomes the last one.
func copyCondition(status, from *v1alpha1.ZoneSurvivalStatus, kind string) {
	meta.RemoveStatusCondition(&status.Conditions, kind)
	if c := meta.FindStatusCondition(from.Conditions, kind); c != nil {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
}

// keepTimes gives conditions the times at which they came to be what they are, as an API server keeps times.
func keepTimes(status, before *v1alpha1.ZoneSurvivalStatus, now time.Time) {
	status.ComputedAt, status.ReplayedAt = status.ComputedAt.Rfc3339Copy(), status.ReplayedAt.Rfc3339Copy()
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.LastTransitionTime = metav1.Time{Time: now.Truncate(time.Second)}
		if old := meta.FindStatusCondition(before.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

// sameStatus compares statuses; the order of conditions does not matter.
func sameStatus(a, b *v1alpha1.ZoneSurvivalStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1alpha1.ZoneSurvivalStatus{a, b} {
		slices.SortFunc(s.Conditions, func(x, y metav1.Condition) int { return strings.Compare(x.Type, y.Type) })
	}
	return equality.Semantic.DeepEqual(a, b)
}

// asShown returns a certificate as it is shown: one that is True does not stay so if it is about another cluster than
// the one of now, about another spec or another scheduler, or if not all of the cluster is known. One that is False
// stays: what is wrong is worth a warning until it is known to be mended.
func (r *round) asShown(computed *v1alpha1.ZoneSurvivalStatus, asked *v1alpha1.ZoneSurvival) *v1alpha1.ZoneSurvivalStatus {
	shown := computed.DeepCopy()
	survives := meta.FindStatusCondition(shown.Conditions, v1alpha1.ConditionSurvives)
	outdated := func(what string) {
		setUnknown(shown, v1alpha1.ConditionSurvives, v1alpha1.ReasonClusterChanged,
			"at computedAt every loss was survived; "+what+" changed since, and only the next full round can say whether that is still so")
	}
	switch {
	case len(r.options.Missing) > 0:
		if survives == nil { // it has never been answered
			shown.ComputedAt, shown.ReplayedAt = metav1.Time{Time: r.options.Sim.Now}, metav1.Time{Time: r.options.Sim.Now}
			if before := &asked.Status; !before.ComputedAt.IsZero() {
				shown.ComputedAt, shown.ReplayedAt = before.ComputedAt, before.ReplayedAt
			}
			shown.ObservedGeneration = asked.Generation
			meta.SetStatusCondition(&shown.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue, ObservedGeneration: asked.Generation,
			})
		}
		setUnknown(shown, v1alpha1.ConditionSurvives, v1alpha1.ReasonSnapshotIncomplete, strings.Join(r.options.Missing, "; "))
	case survives == nil:
	case survives.ObservedGeneration != asked.Generation:
		outdated("the spec has")
	case shown.Snapshot.Scheduler != r.options.Scheduler:
		outdated("the scheduler's configuration or version has")
	case shown.Snapshot.Hash != r.options.Fingerprint && !r.answerIsNear:
		outdated("the cluster has")
	}
	return shown
}

// setUnknown makes a condition that is True Unknown.
func setUnknown(status *v1alpha1.ZoneSurvivalStatus, condition, reason, message string) {
	c := meta.FindStatusCondition(status.Conditions, condition)
	if c != nil && c.Status == metav1.ConditionTrue {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reason, message
	}
}

// toldStatus is what events have told of a condition: that a certificate which was True waits for the next round is no
// news.
func toldStatus(c *metav1.Condition) metav1.ConditionStatus {
	switch {
	case c == nil:
		return ""
	case c.Reason == v1alpha1.ReasonClusterChanged:
		return metav1.ConditionTrue
	}
	return c.Status
}
