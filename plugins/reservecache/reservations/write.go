package reservations

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crdcache"
)

const (
	// statusPause gathers changes: a reservation's status is written at most twice a second.
	statusPause = 500 * time.Millisecond
	// messagePause is how long a status waits at least in which only the words of conditions are new, such as how many
	// nodes lack CPU for a slot.
	messagePause = 10 * time.Second
	// statusRetry is how long a failed write waits.
	statusRetry = 2 * time.Second
)

// lead starts what only the leader does.
func (s *Reservations) lead(ctx context.Context) {
	s.placing.Store(true)
	s.passSoon()
	s.mu.Lock()
	for uid := range s.entries {
		s.statusQueue.Add(uid)
	}
	s.mu.Unlock()
	go crdcache.KeepStatuses(ctx, s.statusQueue, "ZoneReservation", statusRetry, s.writeStatus)
}

// writeStatus writes one reservation's status if it is not what it should be, and then tells in Events what has changed.
func (s *Reservations) writeStatus(ctx context.Context, uid types.UID) error {
	obj, want := s.desiredStatus(uid)
	if obj == nil {
		delete(s.written, uid)
		return nil
	}
	if apiequality.Semantic.DeepEqual(obj.Status, want) {
		return nil
	}
	if rest := messagePause - s.clock.Since(s.written[uid]); rest > 0 && apiequality.Semantic.DeepEqual(wordless(obj.Status), wordless(want)) {
		s.statusQueue.AddAfter(uid, rest)
		return nil
	}
	s.written[uid] = s.clock.Now()
	patch, err := statusPatch(obj, want)
	if err != nil {
		return err
	}
	if err := s.watch.PatchStatus(ctx, "", obj.Name, patch); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s: %w", obj.Name, err)
	}
	s.tell(obj, want)
	return nil
}

// wordless returns a status without the messages of its conditions.
func wordless(status v1alpha1.ZoneReservationStatus) v1alpha1.ZoneReservationStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].Message = ""
	}
	return status
}

// statusPatch returns the merge patch that gives a reservation its status.
func statusPatch(obj *v1alpha1.ZoneReservation, want v1alpha1.ZoneReservationStatus) ([]byte, error) {
	if want.Zones == nil {
		want.Zones = []v1alpha1.ReservationZoneStatus{}
	}
	if want.Conditions == nil {
		want.Conditions = []metav1.Condition{}
	}
	return crdcache.StatusPatch(obj, map[string]any{
		"observedGeneration": want.ObservedGeneration, "slots": want.Slots, "zones": want.Zones, "conditions": want.Conditions,
	})
}

// tell records Events about the conditions that have changed for good or bad. A status that is about to change again
// within statusPause is not seen, so that there are never more than a few a second.
func (s *Reservations) tell(obj *v1alpha1.ZoneReservation, want v1alpha1.ZoneReservationStatus) {
	recorder := s.handle.EventRecorder()
	if recorder == nil {
		return
	}
	for _, about := range []struct {
		condition string
		bad       metav1.ConditionStatus
	}{
		{v1alpha1.ConditionAccepted, metav1.ConditionFalse},
		{v1alpha1.ConditionReady, metav1.ConditionFalse},
		{v1alpha1.ConditionDegraded, metav1.ConditionTrue},
		{v1alpha1.ConditionExpired, metav1.ConditionTrue},
	} {
		was, is := meta.FindStatusCondition(obj.Status.Conditions, about.condition), meta.FindStatusCondition(want.Conditions, about.condition)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		kind := v1.EventTypeNormal
		switch {
		case is.Status == about.bad:
			kind = v1.EventTypeWarning
		case was == nil || was.Status == metav1.ConditionUnknown:
			// That all is well from the start is worth a word for Ready only.
			if about.condition != v1alpha1.ConditionReady || is.Status != metav1.ConditionTrue {
				continue
			}
		}
		if about.condition == v1alpha1.ConditionExpired {
			kind = v1.EventTypeNormal
		}
		recorder.Eventf(reference(obj), nil, kind, is.Reason, "Reserving", "%s", is.Message)
	}
}

// reference refers to a reservation. The recorder's scheme knows built-in kinds only, and objects from a watch do not
// tell theirs.
func reference(obj *v1alpha1.ZoneReservation) *v1.ObjectReference {
	kind := v1alpha1.SchemeGroupVersion.WithKind("ZoneReservation")
	return &v1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion,
	}
}
