package serve

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fact is what the status of a PodGroup needs of one of its pods, finished or not.
type fact struct {
	phase       v1.PodPhase
	bound       bool
	terminating bool
	owner       types.UID // of the controller; empty when the pod has none
	owners      string    // namespace and name of all owners, as status.occupiedBy has them
	boundAt     time.Time // or when it was created, if that is unknown
	finishedAt  time.Time // when its last container ended; zero if unknown
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
	f.boundAt = pod.CreationTimestamp.Time
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			f.boundAt = c.LastTransitionTime.Time
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil && ended.FinishedAt.After(f.finishedAt) {
			f.finishedAt = ended.FinishedAt.Time
		}
	}
	return f
}

// finished reports whether the pod has succeeded or failed.
func (f fact) finished() bool { return f.phase == v1.PodSucceeded || f.phase == v1.PodFailed }

// counted reports whether the pod exists for the status: it is finished, or not terminating.
func (f fact) counted() bool { return f.finished() || !f.terminating }

// live reports whether the pod is a live member.
func (f fact) live() bool { return f.counted() && !f.finished() }

// tally counts pods.
type tally struct{ exist, live, bound, running, succeeded, failed int32 }

func (t *tally) add(f fact, n int32) {
	if !f.counted() {
		return
	}
	t.exist += n
	switch f.phase {
	case v1.PodSucceeded:
		t.succeeded += n
		t.bound += n
	case v1.PodFailed:
		t.failed += n
	default:
		t.live += n
		if f.bound {
			t.bound += n
		}
		if f.phase == v1.PodRunning {
			t.running += n
		}
	}
}

// facts has the facts of one gang's pods. The cost of an update does not depend on the size of the gang, as long as no pod has succeeded.
type facts struct {
	of     map[types.UID]fact
	tally  tally
	owners map[string]int // how many counted pods have these
	// ran are the pods that have succeeded and count towards the quorum, if it lacks members.
	ran map[types.UID]struct{}
}

func newFacts() *facts {
	return &facts{of: map[types.UID]fact{}, owners: map[string]int{}, ran: map[types.UID]struct{}{}}
}

// set stores the current state of a pod. It returns the finished pods that from now on count towards the quorum, and those
// that no longer do.
func (fs *facts) set(uid types.UID, f fact) (begin, end []types.UID) {
	before, known := fs.of[uid]
	if known && before == f {
		return nil, nil
	}
	if known {
		fs.count(before, -1)
	}
	fs.of[uid] = f
	fs.count(f, 1)
	if known && before.part() == f.part() {
		return nil, nil
	}
	return fs.recount()
}

// delete drops a pod.
func (fs *facts) delete(uid types.UID) (end []types.UID) {
	f, known := fs.of[uid]
	if !known {
		return nil
	}
	delete(fs.of, uid)
	fs.count(f, -1)
	_, end = fs.recount()
	return end
}

func (fs *facts) count(f fact, n int) {
	fs.tally.add(f, int32(n))
	if f.counted() && f.owners != "" {
		if fs.owners[f.owners] += n; fs.owners[f.owners] == 0 {
			delete(fs.owners, f.owners)
		}
	}
}

// part is what a pod's facts mean for those that have succeeded.
type part struct {
	owner                  types.UID
	live, bound, succeeded bool
}

func (f fact) part() part {
	return part{f.owner, f.live(), f.live() && f.bound, f.phase == v1.PodSucceeded}
}

// recount brings ran up to date, and returns what has changed.
//
// A pod that has succeeded counts if its controller has live members in the gang, or if it finished after the oldest of the members that
// are bound now was bound, and so ran with them. So a Job that loses a pod after another has completed can replace it, and so can a
// JobSet whose driver has finished. Pods of an earlier Job, which may stay for long, do not count.
func (fs *facts) recount() (begin, end []types.UID) {
	if fs.tally.succeeded == 0 && len(fs.ran) == 0 {
		return nil, nil
	}
	controllers, oldest := map[types.UID]bool{}, time.Time{}
	for _, f := range fs.of {
		if !f.live() {
			continue
		}
		controllers[f.owner] = f.owner != ""
		if f.bound && (oldest.IsZero() || f.boundAt.Before(oldest)) {
			oldest = f.boundAt
		}
	}
	for uid, f := range fs.of {
		if f.phase != v1.PodSucceeded {
			continue
		}
		counts := controllers[f.owner] || !oldest.IsZero() && f.finishedAt.After(oldest)
		if _, counted := fs.ran[uid]; counts && !counted {
			fs.ran[uid] = struct{}{}
			begin = append(begin, uid)
		} else if !counts && counted {
			end = append(end, uid)
		}
	}
	for uid := range fs.ran {
		if fs.of[uid].phase != v1.PodSucceeded {
			end = append(end, uid)
		}
	}
	for _, uid := range end {
		delete(fs.ran, uid)
	}
	return begin, end
}

// succeeded counts the pods that have succeeded, without those that are left from an earlier Job.
func (fs *facts) succeeded() int {
	n := len(fs.ran)
	for uid, f := range fs.of {
		if _, counted := fs.ran[uid]; !counted && f.owner == "" && f.phase == v1.PodSucceeded {
			n++
		}
	}
	return n
}

// occupiedBy returns the owners that the status names, the first of several.
func (fs *facts) occupiedBy() string {
	first := ""
	for owners := range fs.owners {
		if first == "" || owners < first {
			first = owners
		}
	}
	return first
}
