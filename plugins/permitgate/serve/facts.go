package serve

import (
	"slices"
	"strings"

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

// facts has the facts of one gang's pods. The cost of an update does not depend on the size of the gang, unless it is the
// first or the last live pod of an owner.
type facts struct {
	of       map[types.UID]fact
	tally    tally
	owners   map[string]int        // how many counted pods have these
	families map[types.UID]*family // by controller
}

// family is the pods of one controller.
type family struct {
	live      int
	succeeded map[types.UID]struct{}
}

func newFacts() *facts {
	return &facts{of: map[types.UID]fact{}, owners: map[string]int{}, families: map[types.UID]*family{}}
}

// set stores the current state of a pod. It returns the finished pods that from now on count towards the quorum, and those
// that no longer do.
//
// A pod that has succeeded counts while its controller has live members in the gang: so a Job that
// loses a pod after another has completed can replace it. Pods of an earlier Job, which may stay for long, do not count, and
// so do not let the pods of the next Job start one by one.
func (fs *facts) set(uid types.UID, f fact) (begin, end []types.UID) {
	was, known := fs.of[uid]
	if known && was == f {
		return nil, nil
	}
	if known {
		fs.count(was, -1)
	}
	fs.of[uid] = f
	fs.count(f, 1)
	if known && was.part() == f.part() {
		return nil, nil // so that those of the last live pod do not end and begin again
	}
	if known {
		end = fs.leave(uid, was.part())
	}
	return fs.join(uid, f.part()), end
}

// delete drops a pod.
func (fs *facts) delete(uid types.UID) (end []types.UID) {
	f, known := fs.of[uid]
	if !known {
		return nil
	}
	delete(fs.of, uid)
	fs.count(f, -1)
	return fs.leave(uid, f.part())
}

func (fs *facts) count(f fact, n int) {
	fs.tally.add(f, int32(n))
	if f.counted() && f.owners != "" {
		if fs.owners[f.owners] += n; fs.owners[f.owners] == 0 {
			delete(fs.owners, f.owners)
		}
	}
}

// part returns the part that a pod has among those of its controller.
type part struct {
	controller      types.UID // empty for one that counts for nothing
	live, succeeded bool
}

func (f fact) part() part {
	p := part{f.owner, f.live(), f.phase == v1.PodSucceeded}
	if f.owner == "" || !p.live && !p.succeeded {
		return part{}
	}
	return p
}

func (fs *facts) join(uid types.UID, p part) (begin []types.UID) {
	if p.controller == "" {
		return nil
	}
	f := fs.families[p.controller]
	if f == nil {
		f = &family{succeeded: map[types.UID]struct{}{}}
		fs.families[p.controller] = f
	}
	if p.live {
		if f.live++; f.live == 1 {
			return f.done()
		}
		return nil
	}
	f.succeeded[uid] = struct{}{}
	if f.live > 0 {
		return []types.UID{uid}
	}
	return nil
}

func (fs *facts) leave(uid types.UID, p part) (end []types.UID) {
	f := fs.families[p.controller]
	if f == nil {
		return nil
	}
	switch {
	case p.live:
		if f.live--; f.live == 0 {
			end = f.done()
		}
	default:
		delete(f.succeeded, uid)
		if f.live > 0 {
			end = []types.UID{uid}
		}
	}
	if f.live == 0 && len(f.succeeded) == 0 {
		delete(fs.families, p.controller)
	}
	return end
}

// done lists the pods that have succeeded.
func (f *family) done() []types.UID {
	done := make([]types.UID, 0, len(f.succeeded))
	for uid := range f.succeeded {
		done = append(done, uid)
	}
	return done
}

// succeeded counts the pods that have succeeded, without those of controllers that have no live members any more: these pods
// are left from an earlier Job.
func (fs *facts) succeeded() int {
	n := int(fs.tally.succeeded)
	for _, f := range fs.families {
		if f.live == 0 {
			n -= len(f.succeeded)
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
