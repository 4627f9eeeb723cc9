package serve

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// In Kubernetes 1.37 a pod that waits in Permit gets its node as status.nominatedNodeName, and room is kept for it on
// that node. When the pod is rejected, kube-scheduler clears the nomination, but only if its informer has shown it by
// then. A member that is rejected sooner keeps it, and a waiting gang would hold room on the nodes of its last attempt.
// So these nominations are cleared here. A new scheduler also finds the nominations of its predecessor: it keeps those
// of a gang if all missing members of the quorum have one.

// nominationGrace is how long kube-scheduler has to clear a nomination itself.
const nominationGrace = 250 * time.Millisecond

// CheckNominations schedules a look at the nominations of a gang.
func (s *Server) CheckNominations(id podgroup.ID) {
	if s.leading() {
		s.agenda.AddAt(job{kind: jobNominations, gang: id}, s.Clock.Now().Add(nominationGrace))
	}
}

// correctNominations clears the stale nominations of a gang, takes back the devices of members that have been sent
// back, restores the nomination of a member whose bind has failed, and nominates the members of a gang that preempts to
// the nodes whose victims are on their way out: so autoscalers see what that room is for, and a new leader keeps it.
func (s *Server) correctNominations(ctx context.Context, id podgroup.ID) error {
	if !s.Synced() {
		s.CheckNominations(id)
		return nil
	}
	g, known := s.Gangs.Get(id)
	if !known {
		return nil
	}
	members := s.Gangs.Members(id)
	type change struct {
		pod *v1.Pod
		to  string
	}
	var changes []change
	keeps := g.keepsNominations(members)
	for i := range members {
		m := &members[i]
		switch {
		case m.Pod.Spec.NodeName != "" || m.Pod.Status.NominatedNodeName == m.KeptNode:
		case m.KeptNode != "" || m.SentBack || m.Missing && !keeps:
			changes = append(changes, change{m.Pod, m.KeptNode})
		}
	}
	err := forAll(changes, func(c change) error {
		err := s.patcher.Nomination(ctx, c.pod, c.to)
		if err == nil {
			klog.FromContext(ctx).V(3).Info("Corrected a nomination", "pod", klog.KObj(c.pod), "from", c.pod.Status.NominatedNodeName, "to", c.to, "podGroup", id)
		}
		return err
	})
	return cmp.Or(err, s.deallocate(ctx, id, members))
}

// deallocate takes back the devices of those of a gang's members that have been sent back, and are still. Their claims may still be shown as reserved for
// them: then there is a conflict, and the next try sees that they are not. A claim that other pods use stays.
func (s *Server) deallocate(ctx context.Context, id podgroup.ID, members []Member) error {
	claims, users := map[types.UID]*resourcev1.ResourceClaim{}, map[types.UID][]types.UID{}
	for _, pod := range sentBack(members) {
		for _, claim := range s.patcher.Allocated(pod) {
			claims[claim.UID] = claim
			users[claim.UID] = append(users[claim.UID], pod.UID)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	away := sets.New[types.UID]() // since the claims were read: what a member is given from now on changes them
	for _, pod := range sentBack(s.Gangs.Members(id)) {
		away.Insert(pod.UID)
	}
	var left []*resourcev1.ResourceClaim
	for uid, claim := range claims {
		for _, reserved := range claim.Status.ReservedFor {
			users[uid] = append(users[uid], reserved.UID)
		}
		if away.HasAll(users[uid]...) {
			left = append(left, claim)
		}
	}
	return forAll(left, func(claim *resourcev1.ResourceClaim) error { return s.patcher.Deallocate(ctx, claim) })
}

// sentBack returns the members that have lost the node that they were given.
func sentBack(members []Member) (pods []*v1.Pod) {
	for i := range members {
		if m := &members[i]; m.SentBack && m.Pod.Spec.NodeName == "" {
			pods = append(pods, m.Pod)
		}
	}
	return pods
}

// keepsForNone reports whether room is kept in the API for a pod that will have no cycle any more, as it is being
// deleted. A finalizer may have it stay for long.
func keepsForNone(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != ""
}

// PodLeaves clears the nomination of a member that is being deleted, if it has one and no node.
func (s *Server) PodLeaves(pod *v1.Pod) {
	if id, member := podgroup.Of(pod); member && keepsForNone(pod) && s.leading() {
		s.agenda.Add(job{kind: jobLeaving, gang: id, pod: pod.Name})
	}
}

// findLeaving clears such nominations of pods that were being deleted before this process led.
func (s *Server) findLeaving() {
	leaving, _ := s.Pods.List(labels.Everything()) // a lister over memory has no error to return
	for _, pod := range leaving {
		s.PodLeaves(pod)
	}
}

func (s *Server) clearLeaving(ctx context.Context, j job) error {
	pod, err := s.Pods.Pods(j.gang.Namespace).Get(j.pod)
	if err != nil || !keepsForNone(pod) {
		return nil //nolint:nilerr // it has gone: not found is the only error of a lister over memory
	}
	return s.patcher.Nomination(ctx, pod, "")
}

// keepsNominations reports whether to keep the nominations of members that have not been in a cycle yet. They are an
// earlier scheduler's, and only useful to the gang all together.
func (g *Gang) keepsNominations(members []Member) bool {
	if g.Group != nil && g.Group.Native {
		return true // they are for kube-scheduler's cycles of the group
	}
	switch g.Phase {
	case gang.Gathering, gang.Waiting, gang.Releasing, gang.Whole:
		return true
	case gang.Pending:
		return false
	case gang.Backoff:
		return g.Preempting
	case gang.Queued:
	}
	nominated := 0
	for i := range members {
		if m := &members[i]; m.Missing && m.Pod.Status.NominatedNodeName != "" {
			nominated++
		}
	}
	return g.Bound+nominated >= g.MinMember
}

// patchers is how many pods of a gang are written at a time.
const patchers = 8

// forAll calls f for each item, several at a time, and returns the first error.
func forAll[T any](list []T, f func(T) error) error {
	var group errgroup.Group
	group.SetLimit(patchers)
	for _, item := range list {
		group.Go(func() error { return f(item) })
	}
	return group.Wait()
}
