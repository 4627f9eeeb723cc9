package serve

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// statusPause gathers changes: a gang's status is written at most twice a second.
const statusPause = 500 * time.Millisecond

// desiredStatus returns the status that a PodGroup should have. The phases are those of Coscheduling's
// controller:
//
//	Pending     fewer than minMember pods exist
//	Scheduling  they exist, and wait to be scheduled or to run
//	Unknown     fewer than minMember are bound, and the gang is not being released
//	Running     minMember pods run or have succeeded
//	Finished    minMember pods have succeeded
//	Failed      pods have failed, and without them too few live or have succeeded
//
// Coscheduling's controller says Failed while a failed pod exists, and writes nothing after that. Here a gang whose
// failed pods are replaced goes on.
//
// Finished and Failed stay when their pods are cleaned up, until new pods come. releasing is true while
// members that were released together are being bound.
func desiredStatus(old v1alpha1.PodGroupStatus, minMember int32, pods podCounts, releasing bool) v1alpha1.PodGroupStatus {
	status := old
	final := old.Phase == v1alpha1.PodGroupFinished || old.Phase == v1alpha1.PodGroupFailed
	if final && pods.live == 0 {
		return status
	}
	status.Running, status.Succeeded, status.Failed = pods.running, pods.succeeded, pods.failed
	switch {
	case minMember < 1 || pods.exist < minMember:
		status.Phase = v1alpha1.PodGroupPending
	case pods.succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupFinished
	case pods.running+pods.succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupRunning
	case pods.failed > 0 && pods.live+pods.succeeded < minMember && pods.failed+pods.running+pods.succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupFailed
	case pods.bound > 0 && pods.bound < minMember && !releasing:
		status.Phase = v1alpha1.PodGroupUnknown
	default:
		status.Phase = v1alpha1.PodGroupScheduling
	}
	return status
}

// currentAndDesired returns a PodGroup as it is and as it should be, for the writer.
func (s *Server) currentAndDesired(uid types.UID) (current, desired *v1alpha1.PodGroup, ok bool) {
	s.mu.Lock()
	id, known := s.groups[uid]
	s.mu.Unlock()
	if !known {
		return nil, nil, false
	}
	g, known := s.Gangs.Get(id)
	if !known || g.Group == nil || g.Group.GetUID() != uid {
		return nil, nil, false
	}
	current, known = g.Group.Object.(*v1alpha1.PodGroup)
	if !known {
		return nil, nil, false
	}
	desired = current.DeepCopy()
	desired.Status = desiredStatus(desired.Status, desired.Spec.MinMember, countPods(s.podsOf(id)), g.Phase == gang.Releasing)
	return current, desired, true
}

// groupSeen takes the PodGroup of a gang, nil if there is none.
func (s *Server) groupSeen(id podgroup.ID, group *podgroup.Group) {
	uid := types.UID("")
	if group != nil {
		uid = group.GetUID()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.sentLocked(id)
	if t.group != uid {
		delete(s.groups, t.group)
		t.group, t.complaints = uid, nil
		if uid != "" && !id.Native {
			s.groups[uid] = id
		}
	}
}
