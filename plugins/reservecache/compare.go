package reservecache

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// contents is what the ledger has of a node, or another side: the scheduler's snapshot, or the informers.
type contents struct {
	// exists is false for a node that is not there. It may have pods still.
	exists bool
	pods   []*v1.Pod
	// requested is nil if the side does not know it.
	requested   *ledger.Resources
	allocatable ledger.Resources
}

// difference is one difference between what the ledger has of a node and another side.
type difference struct {
	what string
	pod  types.UID // empty for none
}

func (d difference) String() string {
	if d.pod != "" {
		return d.what + ": " + string(d.pod)
	}
	return d.what
}

// compareContents calls found with each difference between what the ledger has of a node and what another side has. It
// is no difference if the ledger does not have a pod of which it may hear later.
func compareContents(ours, theirs *contents, side string, later func(*v1.Pod) bool, found func(difference)) {
	if ours.exists != theirs.exists {
		owner := "the ledger"
		if theirs.exists {
			owner = side
		}
		found(difference{what: "the node is in " + owner + " only"})
		return
	}
	samePods := comparePods(ours.pods, theirs.pods, side, later, found)
	// Where the pods differ, the sums do too, for that reason.
	if samePods && theirs.requested != nil && !ours.requested.Equal(theirs.requested) {
		found(difference{what: "the sums of requests differ"})
	}
	if !ours.allocatable.Equal(&theirs.allocatable) {
		found(difference{what: "the allocatable resources differ"})
	}
}

// comparePods calls found with each pod that one side only has, and reports whether both have the same.
func comparePods(ours, theirs []*v1.Pod, side string, later func(*v1.Pod) bool, found func(difference)) bool {
	// Both sides append a pod that comes, and fill the place of one that goes with the last, so that they mostly agree
	// place by place.
	if slices.EqualFunc(ours, theirs, func(a, b *v1.Pod) bool { return a.UID == b.UID }) {
		return true
	}
	same := true
	left := make(map[types.UID]struct{}, len(ours))
	for _, pod := range ours {
		left[pod.UID] = struct{}{}
	}
	for _, pod := range theirs {
		if _, both := left[pod.UID]; !both {
			same = false
			if later(pod) {
				continue
			}
			found(difference{what: "a pod is in " + side + " only", pod: pod.UID})
		}
		delete(left, pod.UID)
	}
	for uid := range left {
		same = false
		found(difference{what: "a pod is in the ledger only", pod: uid})
	}
	return same
}
