package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/census"
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
	Back
)

// Title is the moment in words.
func (m Moment) Title(zone string) string {
	return [...]string{"before the loss", "while " + zone + " is lost", "after the return of " + zone}[m]
}

// Evidence is the input of the checks.
type Evidence struct {
	Moment  Moment
	Plan    *workload.Plan
	Census  *census.Census
	Status  *status.Report
	Metrics Metrics
	// Displaced are the replicas of the reserved service that replace those of the lost zone.
	Displaced []Displaced
}

// Displaced is a pod that replaces one of the lost zone.
type Displaced struct {
	Name string
	// Refused has the scheduler's reasons for failed attempts to place the pod.
	Refused []string
	// Bound is true if it has a node, and Took is how long it had none.
	Bound bool
	Took  time.Duration
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

// All returns the checks of the moment.
func All(e *Evidence) []Check {
	checks := []Check{services(e), spread(e), weights(e), held(e)}
	if e.Moment == Lost {
		checks = append(checks, firstTry(e))
	}
	return append(checks, batch(e), gangs(e), allocated(e), preempted(e), books(e))
}

// Broken returns those that are not true.
func Broken(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), Check.OK)
}

// services: every replica is bound, since the nodes are chosen to have room for all, also while a zone is lost.
func services(e *Evidence) Check {
	c := Check{Name: "every replica of every service is bound"}
	bound := 0
	for _, p := range e.Census.In(workload.ServiceNamespace) {
		if p.Waits() {
			c.violation("%s waits: %s", p.Key(), said(p.Pod))
		} else {
			bound++
		}
	}
	c.Evidence = fmt.Sprintf("%d of %d", bound, e.Plan.Replicas())
	if bound < e.Plan.Replicas() && c.OK() {
		c.violation("%d replicas do not exist", e.Plan.Replicas()-bound)
	}
	return c
}

// said returns what the scheduler said about a waiting pod.
func said(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return "no attempt is known"
}

// allWorkloads is a limit that the demo never reaches.
const allWorkloads = math.MaxInt

// spread: native constraints hold. As the constraints say, zones whose nodes are all tainted do not count.
func spread(e *Evidence) Check {
	c := Check{Name: "native constraints over zones hold"}
	spreads, _ := e.Census.Spreads(workload.ServiceNamespace, allWorkloads)
	worst := 0
	for i := range spreads {
		s := &spreads[i]
		worst = max(worst, s.Skew())
		if s.Hard && s.Skew() > int(s.MaxSkew) {
			c.violation("%s: skew %d above maxSkew %d", s.Workload, s.Skew(), s.MaxSkew)
		}
	}
	c.Evidence = fmt.Sprintf("%s, largest skew %d of 1", show.Plural(len(spreads), "Deployment"), worst)
	if len(spreads) == 0 {
		c.violation("no workload has one")
	}
	return c
}

// weights: the policy is satisfied, and its status knows whether a zone is lost.
func weights(e *Evidence) Check {
	service := e.Plan.The(workload.Weighted)
	c := Check{Name: "each zone has its share of " + service.Name()}
	i := slices.IndexFunc(e.Status.Policies, func(p status.Policy) bool { return p.Name == service.Name() })
	if i < 0 {
		c.violation("there is no ZoneSpreadPolicy %s", service.Name())
		return c
	}
	p := &e.Status.Policies[i]
	var parts []string
	for _, z := range p.Zones {
		text := fmt.Sprintf("%s %d", z.Name, z.Pods)
		out := z.Name == e.Plan.LostZone() && e.Moment == Lost
		if z.State != "" && z.State != "Available" {
			text += " (" + z.State + ")"
		}
		parts = append(parts, text)
		if out && (z.Pods > 0 || z.State == "" || z.State == "Available") {
			c.violation("%s is lost and has %d pods, state %q", z.Name, z.Pods, z.State)
		}
		if !out && e.Moment != Lost && z.Pods == 0 {
			c.violation("%s has no pod of it", z.Name)
		}
	}
	c.Evidence = fmt.Sprintf("%s; skew %d of %d", strings.Join(parts, ", "), p.Skew, p.MaxSkew)
	if p.State != status.OK {
		c.violation("the policy is %s: %s", p.State, p.Message)
	}
	if p.Pods != int64(service.Replicas) || p.Skew > int64(p.MaxSkew) {
		c.violation("%d pods of %d, skew %d of %d", p.Pods, service.Replicas, p.Skew, p.MaxSkew)
	}
	return c
}

// held: the slots are held, and every replica of the service is in one.
func held(e *Evidence) Check {
	service := e.Plan.The(workload.Reserved)
	c := Check{Name: "room is held for " + service.Name()}
	i := slices.IndexFunc(e.Status.Reservations, func(r status.Reservation) bool { return r.Name == workload.ReservationName })
	if i < 0 {
		c.violation("there is no ZoneReservation %s", workload.ReservationName)
		return c
	}
	r := &e.Status.Reservations[i]
	var parts []string
	for _, z := range r.Zones {
		parts = append(parts, fmt.Sprintf("%s %d/%d", z.Name, z.Used, z.Held))
		want := int64(e.Plan.SlotsPerZone)
		if z.Name == e.Plan.LostZone() && e.Moment == Lost {
			want = 0
		}
		if z.Held != want {
			c.violation("%s holds %d slots of %d", z.Name, z.Held, want)
		}
	}
	c.Evidence = "slots used/held: " + strings.Join(parts, ", ")
	if r.Used != int64(service.Replicas) {
		c.violation("%d slots are used by %d replicas", r.Used, service.Replicas)
	}
	if e.Moment != Lost && r.State != status.OK {
		c.violation("the reservation is %s: %s", r.State, r.Message)
	}
	return c
}

// firstTry: the displaced replicas went into held room at once.
func firstTry(e *Evidence) Check {
	c := Check{Name: "displaced replicas of " + e.Plan.The(workload.Reserved).Name() + " were bound at the first attempt"}
	first := 0
	var longest time.Duration
	for _, d := range e.Displaced {
		longest = max(longest, d.Took)
		switch {
		case len(d.Refused) > 0:
			c.violation("%s was refused first: %s", d.Name, d.Refused[0])
		case !d.Bound:
			c.violation("%s is not bound", d.Name)
		default:
			first++
		}
	}
	c.Evidence = fmt.Sprintf("%d of %d, no event FailedScheduling, within %.1fs", first, len(e.Displaced), longest.Seconds())
	if len(e.Displaced) == 0 {
		c.violation("no replica was displaced")
	}
	return c
}

// batch: batch work fills the rest, but not the held room.
func batch(e *Evidence) Check {
	c := Check{Name: "batch work fills what is not held"}
	bound, waiting, kept := 0, 0, 0
	for _, p := range e.Census.In(workload.BatchNamespace) {
		switch {
		case !p.Waits():
			bound++
		case strings.Contains(said(p.Pod), workload.ReservationName):
			kept++
			fallthrough
		default:
			waiting++
		}
	}
	c.Evidence = fmt.Sprintf("%d workers run, %d wait, %d of them for held room", bound, waiting, kept)
	if bound == 0 || bound+waiting != e.Plan.Workers {
		c.violation("%d workers run and %d wait, of %d", bound, waiting, e.Plan.Workers)
	}
	if e.Moment != Back && waiting == 0 {
		c.violation("no worker waits: nothing shows that room is held")
	}
	return c
}

// gangs: all or nothing.
func gangs(e *Evidence) Check {
	c := Check{Name: "gangs are whole, or wait and hold nothing"}
	whole, waits := 0, 0
	for i := range e.Status.Gangs {
		g := &e.Status.Gangs[i]
		fits := slices.ContainsFunc(e.Plan.Gangs, func(p workload.Gang) bool { return p.Name == g.Name && p.Fits })
		switch {
		case fits && g.Bound >= g.MinMember:
			whole++
		case fits:
			c.violation("gang %s: %d of %d bound", g.Name, g.Bound, g.MinMember)
		case g.Bound > 0:
			c.violation("gang %s cannot be whole and has %d of %d bound", g.Name, g.Bound, g.MinMember)
		default:
			waits++
		}
	}
	for _, p := range e.Census.In(workload.GangNamespace) {
		if p.Waits() && p.Status.NominatedNodeName != "" {
			c.violation("%s waits and has the node %s nominated", p.Key(), p.Status.NominatedNodeName)
		}
	}
	c.Evidence = fmt.Sprintf("%d whole, %d waits", whole, waits)
	if whole+waits != len(e.Plan.Gangs) && c.OK() {
		c.violation("%d gangs of %d exist", whole+waits, len(e.Plan.Gangs))
	}
	return c
}

// allocated: no node has more pods or more requests than it can hold.
func allocated(e *Evidence) Check {
	c := Check{Name: "allocated never exceeds allocatable"}
	for _, n := range e.Census.Nodes {
		for name, amount := range n.Requested {
			if have := n.Allocatable[name]; amount > have {
				c.violation("%s: %d of %s allocated, %d allocatable", n.Name, amount, name, have)
			}
		}
	}
	slices.Sort(c.Violations)
	c.Evidence = fmt.Sprintf("%s, all their resources", show.Plural(len(e.Census.Nodes), "node"))
	return c
}

// preempted: no pod was preempted.
func preempted(e *Evidence) Check {
	c := Check{Name: "nothing was preempted", Evidence: fmt.Sprintf("scheduler_preemption_victims %s", number(e.Metrics.Victims))}
	if e.Metrics.Victims > 0 {
		c.violation("%s pods were", number(e.Metrics.Victims))
	}
	return c
}

// books: the scheduler's ledger and cache agree with the API server.
func books(e *Evidence) Check {
	m := e.Metrics
	c := Check{Name: "ledger, scheduler snapshot and API server agree"}
	bound := 0
	for _, p := range e.Census.Pods {
		if p.On != nil {
			bound++
		}
	}
	c.Evidence = fmt.Sprintf("%s pods on %s nodes, %s assumed, drift %s in %s comparisons",
		number(m.Pods), number(m.Nodes), number(m.Assumed), number(m.Drift), number(m.Comparisons))
	for _, v := range []struct {
		what      string
		got, want float64
	}{
		{"pods in the ledger", m.Pods, float64(bound)},
		{"nodes in the ledger", m.Nodes, float64(len(e.Census.Nodes))},
		{"assumed pods in the ledger", m.Assumed, 0},
		{"assumed pods in kube-scheduler's cache", m.CacheAssumed, 0},
		{"nodes with drift", m.Drift, 0},
		{"nodes that differ from the snapshot", m.Unsettled, 0},
	} {
		if v.got != v.want { // also if it is not exported
			c.violation("%s: %s, want %s", v.what, number(v.got), number(v.want))
		}
	}
	if !(m.Comparisons > 0) {
		c.violation("ledger and snapshot were not compared")
	}
	return c
}

func number(v float64) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", v)
}
