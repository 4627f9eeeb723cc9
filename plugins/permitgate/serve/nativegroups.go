package serve

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// A native PodGroup says by conditions what becomes of its gang.

// writeGroup gives a native PodGroup the conditions that it should have and has not, as far as the informer shows.
func (s *Server) writeGroup(ctx context.Context, id podgroup.ID) error {
	g, known := s.Gangs.Get(id)
	if !known || g.Group == nil {
		return nil
	}
	now := s.Clock.Now()
	if g.mayBeShort() {
		if due := g.ShortSince.Add(reportGrace); now.Before(due) {
			s.agenda.AddAt(job{kind: jobGroup, gang: id}, due)
		}
	}
	has := native.Conditions(g.Group)
	conditions := missingFrom(has, s.groupConditions(id, &g, has, now))
	if len(conditions) == 0 {
		return nil
	}
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = g.Group.GetGeneration(), metav1.Time{Time: now}
		if old := apimeta.FindStatusCondition(has, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return native.PatchConditions(ctx, s.patcher.Client, g.Group, conditions)
}

// missingFrom returns the conditions that are wanted and not there, but for times.
func missingFrom(has, want []metav1.Condition) (missing []metav1.Condition) {
	for i := range want {
		w := &want[i]
		w.Message = crd.Shortened(w.Message)
		if c := apimeta.FindStatusCondition(has, w.Type); c == nil || c.Status != w.Status || c.Reason != w.Reason || c.Message != w.Message {
			missing = append(missing, *w)
		}
	}
	return missing
}

// groupConditions returns the conditions that a native PodGroup should have.
func (s *Server) groupConditions(id podgroup.ID, g *Gang, has []metav1.Condition, now time.Time) (want []metav1.Condition) {
	add := func(kind string, status metav1.ConditionStatus, reason, message string) {
		want = append(want, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
	switch {
	case g.Group.Gang == nil && g.Group.Unguarded.Reason != "":
		add(native.ConditionGuarded, metav1.ConditionFalse, g.Group.Unguarded.Reason, g.Group.Unguarded.Text)
		return want
	case g.Group.Gang == nil:
		return nil
	case g.Group.SharesClaims:
		add(native.ConditionGuarded, metav1.ConditionFalse, "SharedClaims",
			"the members are bound together or not at all, but they do not give back the devices of spec.resourceClaims: kube-scheduler allocates these before the barrier, and keeps them for the PodGroup until a cycle places no member of it")
	}
	if reason, message := s.whyNotPlaced(id, g, now); reason != "" {
		add(native.ConditionFits, metav1.ConditionFalse, reason, message)
	} else if g.Lacking <= 0 && apimeta.IsStatusConditionFalse(has, native.ConditionFits) {
		add(native.ConditionFits, metav1.ConditionTrue, "Placed", "the gang has been placed")
	}
	if complaint := g.Group.Complaints[0]; complaint.Text != "" {
		add(native.ConditionPacked, metav1.ConditionFalse, "Ignored", complaint.Text)
	} else if apimeta.IsStatusConditionFalse(has, native.ConditionPacked) {
		add(native.ConditionPacked, metav1.ConditionTrue, "Accepted", "the annotation applies, if there is one")
	}
	switch {
	case g.Phase == gang.Whole:
		add(native.ConditionReleased, metav1.ConditionTrue, "Bound", fmt.Sprintf("%d members or more are bound", g.MinMember))
	case g.Last.Cause != "":
		add(native.ConditionReleased, metav1.ConditionFalse, reasonRolledBack, rollbackNote(&g.Last, s.memberNamed(id, g)))
	}
	switch kind, note := s.partlyBoundNote(id, g); {
	case kind != "":
		add(native.ConditionPartlyBound, metav1.ConditionTrue, reasonPartlyBound, note)
	case apimeta.IsStatusConditionTrue(has, native.ConditionPartlyBound) && g.Phase != gang.Releasing:
		add(native.ConditionPartlyBound, metav1.ConditionFalse, "Bound", "the gang is not bound in part any more")
	}
	return want
}

// memberNamed returns the pod that the last rollback names, nil if it is gone.
func (s *Server) memberNamed(id podgroup.ID, g *Gang) *v1.Pod {
	for _, m := range s.Gangs.Members(id) {
		if m.Pod.UID == g.Last.Member {
			return m.Pod
		}
	}
	return nil
}

// whyNotPlaced says why a native gang cannot be placed; empty if nothing is known that keeps it.
func (s *Server) whyNotPlaced(id podgroup.ID, g *Gang, now time.Time) (reason, message string) {
	switch {
	case g.mayBeShort() && !now.Before(g.ShortSince.Add(reportGrace)):
		return string(gang.ReasonTooFew), g.Detail + "; kube-scheduler counts no pods that have succeeded for spec.schedulingPolicy.gang.minCount"
	case !g.Vain || g.Lacking <= 0:
		return "", ""
	case g.Refusal.Cause == gang.CauseNoRoom:
		return "NoRoom", g.Refusal.ConditionMessage()
	case g.Refusal.Cause != "":
		return "Unschedulable", g.Refusal.ConditionMessage()
	}
	if why := whyUnschedulable(s.Gangs.Members(id)); why != "" {
		return "Unschedulable", why
	}
	return "", ""
}

// mayBeShort reports whether members of a native gang wait for others to be created.
func (g *Gang) mayBeShort() bool { return g.Reason == gang.ReasonTooFew && g.Unbound > 0 }

// whyUnschedulable returns what kube-scheduler says of the first member that found no node; empty if it says nothing.
func whyUnschedulable(members []Member) string {
	name, message := "", ""
	for _, m := range members {
		for i := range m.Pod.Status.Conditions {
			c := &m.Pod.Status.Conditions[i]
			if c.Type != v1.PodScheduled || c.Status != v1.ConditionFalse || !strings.HasPrefix(c.Message, "0/") {
				continue
			}
			if name == "" || cmp.Or(cmp.Compare(len(m.Pod.Name), len(name)), cmp.Compare(m.Pod.Name, name)) < 0 {
				name, message = m.Pod.Name, c.Message
			}
		}
	}
	if name == "" {
		return ""
	}
	return "member " + name + ": " + message
}
