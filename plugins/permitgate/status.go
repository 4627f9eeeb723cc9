package permitgate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// fact is what the status of a PodGroup needs to know of one of its pods, finished ones included.
type fact struct {
	phase       v1.PodPhase
	bound       bool
	terminating bool
	owner       types.UID // of the controller; empty when the pod has none
	owners      string    // namespace and name of all owners, as status.occupiedBy has them
}

func factOf(pod *v1.Pod) fact {
	f := fact{phase: pod.Status.Phase, bound: pod.Spec.NodeName != "", terminating: pod.DeletionTimestamp != nil}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		f.owner = owner.UID
	}
	names := make([]string, 0, len(pod.OwnerReferences))
	for _, owner := range pod.OwnerReferences {
		names = append(names, pod.Namespace+"/"+owner.Name)
	}
	slices.Sort(names)
	f.owners = strings.Join(names, ",")
	return f
}

// desiredStatus returns the status that a PodGroup should have. The phases are those of Coscheduling's
// controller:
//
//	Pending     fewer than minMember pods exist
//	Scheduling  they exist, and wait to be scheduled or to run
//	Unknown     a part of minMember is bound, and the rest has been missing since
//	Running     minMember pods run or have succeeded
//	Finished    minMember pods have succeeded
//	Failed      a pod has failed, and minMember pods have failed, run or succeeded, without enough that
//	            run or have succeeded
//
// Finished and Failed stay when their pods are cleaned up, until new pods come. releasing is true while
// members that were let go together are being bound.
func desiredStatus(old v1alpha1.PodGroupStatus, minMember int32, facts map[types.UID]fact, releasing bool, now time.Time) v1alpha1.PodGroupStatus {
	status := old
	var exist, bound, running, succeeded, failed, live int32
	occupied := ""
	for _, f := range facts {
		switch f.phase {
		case v1.PodSucceeded:
			succeeded++
			exist++
			bound++
		case v1.PodFailed:
			failed++
			exist++
		default:
			if f.terminating {
				continue
			}
			live++
			exist++
			if f.bound {
				bound++
			}
			if f.phase == v1.PodRunning {
				running++
			}
		}
		if f.owners != "" && (occupied == "" || f.owners < occupied) {
			occupied = f.owners
		}
	}
	final := old.Phase == v1alpha1.PodGroupFinished || old.Phase == v1alpha1.PodGroupFailed
	if final && live == 0 {
		return status
	}

	status.Running, status.Succeeded, status.Failed = running, succeeded, failed
	switch {
	case minMember < 1 || exist < minMember:
		status.Phase = v1alpha1.PodGroupPending
	case succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupFinished
	case running+succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupRunning
	case failed > 0 && failed+running+succeeded >= minMember:
		status.Phase = v1alpha1.PodGroupFailed
	case bound > 0 && bound < minMember && !releasing:
		status.Phase = v1alpha1.PodGroupUnknown
	default:
		status.Phase = v1alpha1.PodGroupScheduling
	}
	if status.Phase == v1alpha1.PodGroupPending {
		return status
	}
	if occupied != "" {
		status.OccupiedBy = occupied
	}
	if status.ScheduleStartTime.IsZero() {
		status.ScheduleStartTime = metav1.Time{Time: now.Truncate(time.Second)}
	}
	return status
}

// doneMembers lists the pods that have succeeded and go on counting towards the quorum: those of a
// controller that has live members in the gang. A Job that loses a pod after another has completed
// can only then replace it; while the pods of an earlier Job, which may lie about for long, do not let
// those of the next one start one by one.
func doneMembers(facts map[types.UID]fact) []types.UID {
	live := map[types.UID]bool{}
	for _, f := range facts {
		if f.owner != "" && !f.terminating && f.phase != v1.PodSucceeded && f.phase != v1.PodFailed {
			live[f.owner] = true
		}
	}
	var done []types.UID
	for uid, f := range facts {
		if f.phase == v1.PodSucceeded && live[f.owner] {
			done = append(done, uid)
		}
	}
	slices.SortFunc(done, func(a, b types.UID) int { return cmp.Compare(a, b) })
	return done
}
