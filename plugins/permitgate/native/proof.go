package native

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// A cycle is asked for twice by kube-scheduler: on the cluster as it is, and, if that was in vain, on one without the pods that
// the group may preempt. Both begin with the first member's PreFilter. There the group may be refused by a proof, or confined to a domain; that
// holds for this run alone.

// Request is what a gang asks for at the beginning of a run.
type Request struct {
	Key types.NamespacedName
	// MinMember is the quorum, and Need how many of the Missing it lacks.
	MinMember, Need int
	// Missing are the members without a node, Needs their signatures (see proposal.Signature). Refused are those whose binds were refused.
	Missing map[types.UID]*v1.Pod
	Needs   map[types.UID]string
	Refused map[types.UID]bool
	// Members are all of them, PlacedOn the nodes of those that have one, and LostNodes those of members that a running gang has lost.
	Members             map[types.UID]bool
	PlacedOn, LostNodes []string
	// Topology is how to pack the gang, Tried are the domains in which it was tried in vain.
	Topology podgroup.Topology
	Tried    map[string]bool
	// Again is true if its last cycle was in vain, Running if a member has a node, both only if PermitGate is to prove that
	// the gang fits.
	Again, Running bool
	// Created is when the PodGroup was created, ReadySince when the quorum came to exist.
	Created, ReadySince time.Time
	// Preempting is true on a cluster without the pods that the group may preempt. MovesOn is true if that is not to be, because the run
	// before was for one domain only, and the next one is tried first.
	Preempting, MovesOn bool
}

// Plan is the answer to a Request.
type Plan struct {
	// Refusal is why the gang is refused; its Cause is empty when it is not.
	Refusal gang.Rollback
	// Domain is the value of the topology's label to which the run is confined, or empty. Exhausted is true if there was no other.
	Domain    string
	Exhausted bool
}

// Request begins a run, and returns what the gang asks for. ok is false if the pod is in none that is guarded.
func (g *Gangs) Request(pod *v1.Pod) (r Request, ok bool) {
	key, _ := GroupOf(pod)
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil || !e.guarded || e.group == nil {
		return r, false
	}
	e.cycle.runs++
	r = Request{
		Key: key, MinMember: e.gang.MinMember(), Missing: map[types.UID]*v1.Pod{}, Needs: map[types.UID]string{}, Refused: map[types.UID]bool{},
		Members: make(map[types.UID]bool, len(e.pods)), Topology: e.topology,
		Again: e.vain && !e.constrained, Running: e.gang.AnyPlaced() && !e.constrained,
		Created: e.group.CreationTimestamp.Time, ReadySince: e.gang.ReadySince(), Preempting: e.cycle.runs > 1, MovesOn: e.cycle.runs > 1 && e.cycle.plan.Domain != "",
	}
	if !e.cycle.plan.Exhausted {
		r.Tried = maps.Clone(e.tried)
	}
	r.Need = e.gang.Lacking()
	if r.Running {
		r.LostNodes = slices.Sorted(maps.Keys(e.lostNodes))
	}
	for _, uid := range e.gang.Missing() {
		if m := e.pods[uid]; m != nil {
			r.Missing[uid], r.Needs[uid], r.Refused[uid] = m.pod, m.template.Needs, e.gang.BindRefused(uid)
		}
	}
	for uid, m := range e.pods {
		r.Members[uid] = true
		switch {
		case m.pod.Spec.NodeName != "":
			r.PlacedOn = append(r.PlacedOn, m.pod.Spec.NodeName)
		case e.gang.HasNode(uid):
			r.PlacedOn = append(r.PlacedOn, e.gang.Node(uid))
		}
	}
	return r, true
}

// Planned takes the plan for the first run of a gang's cycle.
func (g *Gangs) Planned(key types.NamespacedName, plan *Plan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.byKey[key]; e != nil {
		e.cycle.plan = *plan
	}
}

// settleVainLocked notes what has come of a cycle that has placed nobody. A gang that was confined to a domain is tried in the next one.
func (g *Gangs) settleVainLocked(e *entry) {
	plan := &e.cycle.plan
	e.vain, e.refusal = true, plan.Refusal
	e.refusalDue = e.refusalDue || plan.Refusal.Cause != ""
	switch {
	case plan.Domain != "":
		e.noteTried(plan.Domain)
		g.wakeLocked(e)
	case plan.Exhausted || plan.Refusal.Cause == "":
		e.tried = nil // the next time it starts over
	}
}

// noteTried notes that the gang was tried in a domain in vain.
func (e *entry) noteTried(domain string) {
	if e.tried == nil {
		e.tried = map[string]bool{}
	}
	e.tried[domain] = true
}

// noteRolledBack notes that the gang was placed in a domain, but sent back by what comes after that.
func (e *entry) noteRolledBack(cause gang.Cause) {
	switch {
	case e.domain == "":
	case cause == gang.CauseRefused || cause == gang.CauseTimeout || cause == gang.CauseUnschedulable:
		e.noteTried(e.domain)
	}
}

// whyUnschedulable returns what kube-scheduler says of the first member that found no node; empty if it says nothing.
func (e *entry) whyUnschedulable() string {
	name, message := "", ""
	for _, m := range e.pods {
		for i := range m.pod.Status.Conditions {
			c := &m.pod.Status.Conditions[i]
			if c.Type != v1.PodScheduled || c.Status != v1.ConditionFalse || !strings.HasPrefix(c.Message, "0/") {
				continue
			}
			if name == "" || cmp.Or(cmp.Compare(len(m.pod.Name), len(name)), cmp.Compare(m.pod.Name, name)) < 0 {
				name, message = m.pod.Name, c.Message
			}
		}
	}
	if name == "" {
		return ""
	}
	return "member " + name + ": " + message
}
