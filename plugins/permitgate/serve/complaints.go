package serve

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// partlyBoundNote says that a gang, whose PodGroup exists, stays bound in part, and what happens to it. It returns an
// empty string if it does not, or is about to be released. kind tells one such state from another, for an event about
// each.
func (s *Server) partlyBoundNote(id podgroup.ID, g *Gang) (kind, note string) {
	switch {
	case !g.PartlyBound:
		return "", ""
	case g.Phase == gang.Pending && id.Native: // the condition Fits says that members are missing
		return "", ""
	case g.Phase == gang.Pending:
		note = s.depletedNote(id, g)
		return note, note
	}
	note = fmt.Sprintf("%d of %d members have been bound for %s, and the other %d cannot join them",
		g.Bound, g.MinMember, s.RecoveryTimeout.Round(time.Second), g.Live-g.Bound)
	if why := cmp.Or(g.Refusal.Detail, g.Last.Detail); why != "" {
		note += ": " + why
	}
	return "stranded", note + "; the bound members keep running"
}

// depletedNote says that a part of a gang stays bound while members of its quorum do not exist, or returns an empty
// string. Members that have succeeded count, so a gang that is about to finish is not depleted.
func (s *Server) depletedNote(id podgroup.ID, g *Gang) string {
	if !s.finishedRead() {
		return ""
	}
	members := s.podsOf(id)
	counts, done := countPods(members), succeeded(members)
	for _, pod := range members {
		if pods.ControllerUID(pod) == "" && pod.Status.Phase == v1.PodSucceeded { // certainly not left from an earlier Job
			done.Insert(pod.UID)
		}
	}
	bound := int(counts.bound - counts.succeeded)
	if bound+len(done) >= g.MinMember {
		return ""
	}
	return fmt.Sprintf("bound in part for %s: needs %d members, %d exist, %d of them bound; the bound members keep running",
		s.RecoveryTimeout.Round(time.Second), g.MinMember, g.Live, bound)
}
