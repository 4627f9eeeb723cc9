package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/workload"
)

// Moment is when the checks run.
type Moment int

// The moments, in order.
const (
	Before Moment = iota
	Lost
	Gone
	Back
	Moved
)

// String is the moment in words.
func (m Moment) String() string {
	return [...]string{
		Before: "before the loss",
		Lost:   "after the loss of " + workload.LostZone,
		Gone:   "after its nodes are deleted",
		Back:   "after the return of " + workload.LostZone,
		Moved:  "after the moves",
	}[m]
}

// Evidence is the input of the checks.
type Evidence struct {
	Moment  Moment
	Plan    *workload.Plan
	Census  *census.Census
	Status  *status.Report
	Metrics Metrics
	// Certificates are what was said before the loss, by ZoneSurvival. LostAt is when the zone was lost.
	Certificates map[string]*status.Survival
	LostAt       time.Time
	// Refused has the notes of the events FailedScheduling by pod.
	Refused map[types.UID]string
	// Rebalanced is the ZoneRebalance after its moves.
	Rebalanced *v1alpha1.ZoneRebalance
}

// certificate returns what was said of a ZoneSurvival; without an answer it is neither yes nor no.
func (e *Evidence) certificate(asked *v1alpha1.ZoneSurvival) *status.Survival {
	return cmp.Or(e.Certificates[asked.Name], &status.Survival{Name: asked.Name})
}

// Check is something that must be true.
type Check struct {
	Name string `json:"name"`
	// Evidence is what was read.
	Evidence string `json:"evidence"`
	// Violations are empty when it is true.
	Violations []string `json:"violations,omitempty"`
}

// OK reports whether it is true.
func (c Check) OK() bool { return len(c.Violations) == 0 }

func (c *Check) violation(format string, args ...any) {
	c.Violations = append(c.Violations, fmt.Sprintf(format, args...))
}

func (c *Check) setEvidence(format string, args ...any) { c.Evidence = fmt.Sprintf(format, args...) }

// checks are the checks in the order of the board.
var checks = []struct {
	name    string                                // %s is the name of the service that it is about
	service func(*workload.Plan) workload.Service // nil if the name has no %s
	check   func(*Evidence, *Check)
	moments []Moment // empty: always
}{
	{name: "every replica of every service is bound", check: checkServicesBound},
	// The scheduler moves no running pod back into a zone that returns. A ZoneRebalance is asked to move those of one
	// service.
	{name: "native constraints over zones hold", check: checkSpread, moments: []Moment{Before, Gone}},
	{name: "each zone has its share of %s", service: (*workload.Plan).Weighted, check: checkShares, moments: []Moment{Before, Lost, Moved}},
	{name: "%s is moved back", service: (*workload.Plan).Weighted, check: checkMoves, moments: []Moment{Moved}},
	{name: "the services survive the loss of any zone", check: checkCertified, moments: []Moment{Before, Moved}},
	{
		name:  workload.DefaultPolicyApp + ", with the default nodeTaintsPolicy, survives once the lost nodes are deleted",
		check: checkDefaultPolicy, moments: []Moment{Before},
	},
	{name: "what the certificates said came true", check: checkCertificatesWereRight, moments: []Moment{Lost, Gone}},
	{name: "displaced replicas of %s were bound at the first attempt", service: (*workload.Plan).Shared, check: checkFirstAttempts, moments: []Moment{Lost}},
	{name: "batch work fills what is not held", check: checkBatchWork},
	{name: "room for %s is held again", service: (*workload.Plan).Shared, check: checkHeldAgain, moments: []Moment{Moved}},
	{name: "batch work, for which nothing is held, would not survive", check: checkUnheld, moments: []Moment{Before}},
	{name: "gangs are whole, or wait and hold nothing", check: checkGangs},
	{name: "allocated never exceeds allocatable", check: checkAllocated},
	{name: "nothing was preempted", check: checkNothingPreempted},
}

// All returns the checks of the moment.
func All(e *Evidence) []Check {
	var out []Check
	for _, c := range checks {
		if len(c.moments) > 0 && !slices.Contains(c.moments, e.Moment) {
			continue
		}
		check := Check{Name: c.name}
		if c.service != nil {
			check.Name = fmt.Sprintf(c.name, c.service(e.Plan).Name())
		}
		c.check(e, &check)
		out = append(out, check)
	}
	return out
}

// Broken returns those that are not true.
func Broken(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), Check.OK)
}

// checkServicesBound: every replica is bound, since the nodes are chosen to have room for all, also while a zone is
// lost. Those of DefaultPolicyApp are not looked at while the nodes of the lost zone exist.
func checkServicesBound(e *Evidence, c *Check) {
	bound, want := 0, e.Plan.Replicas()
	for _, p := range e.Census.PodsIn(workload.ServiceNamespace) {
		switch {
		case e.Moment == Lost && hasDefaultPolicy(p):
			want--
		case p.Waits():
			c.violation("%s waits: %s", p.Key(), cmp.Or(census.Refusal(p.Pod).Message, "no attempt is known"))
		default:
			bound++
		}
	}
	c.setEvidence("%d of %d", bound, want)
	if bound != want && c.OK() {
		c.violation("%d replicas exist, want %d", bound, want)
	}
}

// checkSpread: native constraints hold.
func checkSpread(e *Evidence, c *Check) {
	spreads := e.Census.Spreads(workload.ServiceNamespace)
	worst := 0
	for _, s := range spreads {
		worst = max(worst, s.Skew())
		if s.Hard && s.Skew() > int(s.MaxSkew) {
			c.violation("%s: skew %d above maxSkew %d", s.Workload, s.Skew(), s.MaxSkew)
		}
	}
	c.setEvidence("%s, largest skew %d of 1", show.Plural(len(spreads), "Deployment"), worst)
	if len(spreads) == 0 {
		c.violation("no workload has one")
	}
}

// checkShares: the policy is satisfied, and its status knows whether a zone is lost.
func checkShares(e *Evidence, c *Check) {
	if len(e.Status.Policies) != 1 {
		c.violation("there are %d ZoneSpreadPolicies, want 1", len(e.Status.Policies))
		return
	}
	p, want := e.Status.Policies[0], int64(e.Plan.Weighted().Replicas)
	var parts []string
	for _, z := range p.Zones {
		part, unavailable := fmt.Sprintf("%s %d", z.Name, z.Pods), status.Unavailable(z.State)
		if unavailable != "" {
			part += " (" + unavailable + ")"
		}
		parts = append(parts, part)
		switch lost := e.Moment == Lost && z.Name == workload.LostZone; {
		case lost && (z.Pods > 0 || unavailable == ""):
			c.violation("%s is lost and has %d pods, state %q", z.Name, z.Pods, z.State)
		case !lost && z.Pods == 0:
			c.violation("%s has no pod of it", z.Name)
		}
	}
	c.setEvidence("%s; skew %d of %d", strings.Join(parts, ", "), p.Skew, p.MaxSkew)
	if p.State != status.OK {
		c.violation("the policy is %s: %s", p.State, p.Message)
	}
	if p.Pods != want || p.Skew > int64(p.MaxSkew) {
		c.violation("%d pods of %d, skew %d of %d", p.Pods, want, p.Skew, p.MaxSkew)
	}
}

// checkCertified: the certificates say that every replica runs again after the loss of any zone, and that room is held
// for that.
func checkCertified(e *Evidence, c *Check) {
	s, held := e.certificate(e.Plan.Survival()), e.certificate(e.Plan.Hold())
	var parts []string
	for i := range s.Losses {
		parts = append(parts, fmt.Sprintf("%s displaces %d", s.Losses[i].Zone, s.Losses[i].Displaced))
	}
	c.setEvidence("%s: %s of %d replicas; held for %s: %s", AnswerText(s), strings.Join(parts, ", "), s.Pods, held.Name, held.Room())
	for _, s := range []*status.Survival{s, held} {
		if s.State != status.OK || s.Message != "" {
			c.violation("ZoneSurvival %s: %s: %s", s.Name, s.State, s.Message)
		}
	}
	pods := s.Pods + e.certificate(e.Plan.DefaultPolicySurvival()).Pods
	if pods != int64(e.Plan.Replicas()) || len(s.Losses) != len(workload.Zones) {
		c.violation("%d replicas are protected of %d, against %d losses", pods, e.Plan.Replicas(), len(s.Losses))
	}
}

// checkHeldAgain: the room that was lost with the zone is held there again, although batch work waited for it, too.
func checkHeldAgain(e *Evidence, c *Check) {
	var slots v1alpha1.SlotCounts
	reservations := e.certificate(e.Plan.Hold()).Reservations
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](e.Census.Snapshot) {
		if slices.ContainsFunc(reservations, func(held v1alpha1.SurvivalReservation) bool { return held.Name == r.Name }) {
			slots.Desired, slots.Held, slots.Used = slots.Desired+r.Status.Slots.Desired, slots.Held+r.Status.Slots.Held, slots.Used+r.Status.Slots.Used
		}
	}
	c.setEvidence("%d of %d slots are held, %d of them are used", slots.Held, slots.Desired, slots.Used)
	if slots.Desired == 0 || slots.Held < slots.Desired {
		c.violation("%d of %d slots are held", slots.Held, slots.Desired)
	}
}

// checkUnheld: batch work, for which nothing is held, would not run again after the loss of a zone.
func checkUnheld(e *Evidence, c *Check) {
	checkBreaks(c, e.certificate(e.Plan.BatchSurvival()))
}

// checkDefaultPolicy: while the nodes of a lost zone exist, replicas of the service with the default nodeTaintsPolicy
// wait, and none does once they are deleted.
func checkDefaultPolicy(e *Evidence, c *Check) {
	s := e.certificate(e.Plan.DefaultPolicySurvival())
	checkBreaks(c, s)
	stay := slices.DeleteFunc(slices.Clone(s.Losses), func(loss v1alpha1.SurvivalLoss) bool { return !loss.NodesStay })
	if len(stay) != len(workload.Zones) {
		c.violation("that is said of the loss of %d of %d zones", len(stay), len(workload.Zones))
	}
}

// checkBreaks: the answer is no.
func checkBreaks(c *Check, s *status.Survival) {
	c.setEvidence("%s: %s", AnswerText(s), s.Message)
	if s.State != status.Breaks {
		c.violation("ZoneSurvival %s: %s", s.Name, cmp.Or(s.State, "there is no answer"))
	}
}

// AnswerText is what a certificate answers.
func AnswerText(s *status.Survival) string {
	switch s.State {
	case status.OK:
		return "yes"
	case status.Breaks:
		return "no"
	}
	return "unknown"
}

// checkCertificatesWereRight: of the replicas that replace those of the lost zone not more wait than the certificates
// said, and some do where they said so, in both forms of the loss.
func checkCertificatesWereRight(e *Evidence, c *Check) {
	var parts []string
	slowest := time.Duration(0)
	for _, s := range []*status.Survival{e.certificate(e.Plan.Survival()), e.certificate(e.Plan.DefaultPolicySurvival())} {
		at := slices.IndexFunc(s.Losses, func(loss v1alpha1.SurvivalLoss) bool { return loss.Zone == workload.LostZone })
		if at < 0 {
			c.violation("the certificate of %s says nothing about the loss of %s", s.Name, workload.LostZone)
			continue
		}
		said := s.Losses[at].Waiting
		if e.Moment == Gone && s.Losses[at].NodesStay {
			said = 0
		}
		displaced, waiting := 0, int64(0)
		for _, p := range e.replacements() {
			if hasDefaultPolicy(p) != (s.Name == workload.DefaultPolicyApp) {
				continue
			}
			displaced++
			if p.Waits() {
				waiting++
			} else if _, bound := podutil.GetPodCondition(&p.Status, corev1.PodScheduled); bound != nil {
				slowest = max(slowest, bound.LastTransitionTime.Sub(p.CreationTimestamp.Time))
			}
		}
		parts = append(parts, fmt.Sprintf("%s: %d of %d displaced replicas wait, the certificate said %d", s.Name, waiting, displaced, said))
		// The certificate has the worst of several orders, so fewer may wait in this one.
		if waiting > said || said > 0 && waiting == 0 {
			c.violation("%s: %d of %d displaced replicas wait, not %d of %d", s.Name, waiting, displaced, said, s.Losses[at].Displaced)
		}
	}
	c.setEvidence("%s; the slowest was bound %s after it was created", strings.Join(parts, "; "), slowest)
}

// checkFirstAttempts: the replicas that replace those of the lost zone went into held room at once.
func checkFirstAttempts(e *Evidence, c *Check) {
	displaced, first := 0, 0
	for _, p := range e.replacements() {
		if p.Labels[workload.AppLabel] != e.Plan.Shared().App || p.Labels[workload.RoleLabel] != e.Plan.Shared().Role {
			continue
		}
		displaced++
		if note := e.Refused[p.UID]; note != "" {
			c.violation("%s was refused first: %s", p.Key(), note)
		} else {
			first++
		}
	}
	c.setEvidence("%d of %d have no event FailedScheduling", first, displaced)
	if displaced == 0 {
		c.violation("no replica was displaced")
	}
}

// replacements are the replicas that were created since the loss. The API server's times are in whole seconds.
func (e *Evidence) replacements() []*census.Pod {
	return slices.DeleteFunc(slices.Clone(e.Census.PodsIn(workload.ServiceNamespace)), func(p *census.Pod) bool {
		return p.CreationTimestamp.Time.Before(e.LostAt.Truncate(time.Second))
	})
}

// hasDefaultPolicy reports whether a replica is of the service with the default nodeTaintsPolicy.
func hasDefaultPolicy(p *census.Pod) bool {
	return p.Labels[workload.AppLabel] == workload.DefaultPolicyApp
}

// checkBatchWork: batch work fills the rest, but not the held room.
func checkBatchWork(e *Evidence, c *Check) {
	held := e.certificate(e.Plan.Hold())
	if len(held.Reservations) == 0 {
		c.violation("%s names no reservation", held.Name)
		return
	}
	bound, waiting, kept := 0, 0, 0
	for _, p := range e.Census.PodsIn(workload.BatchNamespace) {
		if !p.Waits() {
			bound++
			continue
		}
		waiting++
		message := census.Refusal(p.Pod).Message
		if slices.ContainsFunc(held.Reservations, func(r v1alpha1.SurvivalReservation) bool { return strings.Contains(message, r.Name) }) {
			kept++
		}
	}
	c.setEvidence("%d workers run, %d wait, %d of them for held room", bound, waiting, kept)
	if bound == 0 || bound+waiting != e.Plan.Workers {
		c.violation("%d workers run and %d wait, of %d", bound, waiting, e.Plan.Workers)
	}
	if e.Moment == Before && kept == 0 {
		c.violation("no worker waits for held room")
	}
}

// checkGangs: all or nothing.
func checkGangs(e *Evidence, c *Check) {
	whole, waits := 0, 0
	for _, planned := range e.Plan.Gangs {
		switch g := e.Census.Gang(planned.Key()); {
		case g == nil:
			c.violation("gang %s does not exist", planned.Name)
		case planned.Fits && g.Missing() == 0:
			whole++
		case planned.Fits:
			c.violation("gang %s: %d of %d bound", planned.Name, g.Bound, g.MinMember())
		case g.Bound > 0:
			c.violation("gang %s cannot be whole and has %d of %d bound", planned.Name, g.Bound, g.MinMember())
		default:
			waits++
		}
	}
	for _, p := range e.Census.PodsIn(workload.GangNamespace) {
		if p.Waits() && p.Status.NominatedNodeName != "" {
			c.violation("%s waits and has the node %s nominated", p.Key(), p.Status.NominatedNodeName)
		}
	}
	c.setEvidence("%d whole, %d waits", whole, waits)
}

// checkAllocated: no node has more pods or more requests than it can hold.
func checkAllocated(e *Evidence, c *Check) {
	for _, n := range e.Census.Nodes {
		for name, amount := range n.Requested {
			if have := n.Allocatable[name]; amount > have {
				c.violation("%s: %d of %s allocated, %d allocatable", n.Name, amount, name, have)
			}
		}
	}
	slices.Sort(c.Violations)
	c.setEvidence("%s, all their resources", show.Plural(len(e.Census.Nodes), "node"))
}

// checkNothingPreempted: no pod was preempted.
func checkNothingPreempted(e *Evidence, c *Check) {
	victims := e.Metrics.PreemptionVictims()
	c.setEvidence("scheduler_preemption_victims %v", victims)
	if victims != 0 { // also if it is not exported
		c.violation("%v pods were", victims)
	}
}

// checkMoves: each move succeeded, and no pod is too many.
func checkMoves(e *Evidence, c *Check) {
	r := e.Rebalanced
	if r == nil {
		c.violation("there is no ZoneRebalance")
		return
	}
	moved := 0
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		if m.State == v1alpha1.MoveMoved {
			moved++
		} else {
			c.violation("%s/%s, from %s to %v, is %s: %s", m.Namespace, m.Name, m.From, m.To, m.State, m.Why)
		}
	}
	c.setEvidence("%s", show.Plural(moved, "move"))
	if balanced := meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionBalanced); !balanced || moved == 0 {
		c.violation("%d moves, balanced: %t", moved, balanced)
	}
}
