package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
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

// String is the moment in words.
func (m Moment) String() string {
	return [...]string{"before the loss", "while " + workload.LostZone + " is lost", "after the return of " + workload.LostZone}[m]
}

// Evidence is the input of the checks.
type Evidence struct {
	Moment  Moment
	Plan    *workload.Plan
	Census  *census.Census
	Status  *status.Report
	Metrics Metrics
	// LostAt is when the zone was lost. Refused has the notes of the events FailedScheduling by pod; both are for Lost.
	LostAt  time.Time
	Refused map[types.UID]string
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

func (c *Check) says(format string, args ...any) { c.Evidence = fmt.Sprintf(format, args...) }

// checks are the checks in the order of the board.
var checks = []struct {
	name string // %s is the name of the service that it is about
	of   func(*workload.Plan) workload.Service
	do   func(*Evidence, *Check)
	at   []Moment // empty: always
}{
	{name: "every replica of every service is bound", do: services},
	{name: "native constraints over zones hold", do: spread},
	{name: "each zone has its share of %s", of: (*workload.Plan).Weighted, do: shares},
	{name: "room is held for %s", of: (*workload.Plan).Reserved, do: held},
	{name: "displaced replicas of %s were bound at the first attempt", of: (*workload.Plan).Reserved, do: firstTry, at: []Moment{Lost}},
	{name: "batch work fills what is not held", do: batch},
	{name: "gangs are whole, or wait and hold nothing", do: gangs},
	{name: "allocated never exceeds allocatable", do: allocated},
	{name: "nothing was preempted", do: preempted},
	{name: "ledger, scheduler snapshot and API server agree", do: books},
}

// All returns the checks of the moment.
func All(e *Evidence) []Check {
	var out []Check
	for _, c := range checks {
		if len(c.at) > 0 && !slices.Contains(c.at, e.Moment) {
			continue
		}
		check := Check{Name: c.name}
		if c.of != nil {
			check.Name = fmt.Sprintf(c.name, c.of(e.Plan).Name())
		}
		c.do(e, &check)
		out = append(out, check)
	}
	return out
}

// Broken returns those that are not true.
func Broken(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), Check.OK)
}

// lost reports whether a zone is lost.
func (e *Evidence) lost(zone string) bool { return e.Moment == Lost && zone == workload.LostZone }

// services: every replica is bound, since the nodes are chosen to have room for all, also while a zone is lost.
func services(e *Evidence, c *Check) {
	bound, want := 0, e.Plan.Replicas()
	for _, p := range e.Census.In(workload.ServiceNamespace) {
		if p.Waits() {
			c.violation("%s waits: %s", p.Key(), scheduled(p).Message)
		} else {
			bound++
		}
	}
	c.says("%d of %d", bound, want)
	if bound != want && c.OK() {
		c.violation("%d replicas exist, want %d", bound, want)
	}
}

// scheduled returns a pod's condition PodScheduled.
func scheduled(p *census.Pod) corev1.PodCondition {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition
		}
	}
	return corev1.PodCondition{Message: "no attempt is known"}
}

// allWorkloads is a limit that the demo never reaches.
const allWorkloads = math.MaxInt

// spread: native constraints hold. As the constraints say, zones whose nodes are all tainted do not count.
func spread(e *Evidence, c *Check) {
	spreads, _ := e.Census.Spreads(workload.ServiceNamespace, allWorkloads)
	worst := 0
	for _, s := range spreads {
		worst = max(worst, s.Skew())
		if s.Hard && s.Skew() > int(s.MaxSkew) {
			c.violation("%s: skew %d above maxSkew %d", s.Workload, s.Skew(), s.MaxSkew)
		}
	}
	c.says("%s, largest skew %d of 1", show.Plural(len(spreads), "Deployment"), worst)
	if len(spreads) == 0 {
		c.violation("no workload has one")
	}
}

// shares: the policy is satisfied, and its status knows whether a zone is lost.
func shares(e *Evidence, c *Check) {
	if len(e.Status.Policies) != 1 {
		c.violation("there are %d ZoneSpreadPolicies, want 1", len(e.Status.Policies))
		return
	}
	p, want := e.Status.Policies[0], int64(e.Plan.Weighted().Replicas)
	var parts []string
	for _, z := range p.Zones {
		part := fmt.Sprintf("%s %d", z.Name, z.Pods)
		available := z.State == "" || z.State == string(v1alpha1.ZoneAvailable)
		if !available {
			part += " (" + z.State + ")"
		}
		parts = append(parts, part)
		switch lost := e.lost(z.Name); {
		case lost && (z.Pods > 0 || available):
			c.violation("%s is lost and has %d pods, state %q", z.Name, z.Pods, z.State)
		case !lost && z.Pods == 0:
			c.violation("%s has no pod of it", z.Name)
		}
	}
	c.says("%s; skew %d of %d", strings.Join(parts, ", "), p.Skew, p.MaxSkew)
	if p.State != status.OK {
		c.violation("the policy is %s: %s", p.State, p.Message)
	}
	if p.Pods != want || p.Skew > int64(p.MaxSkew) {
		c.violation("%d pods of %d, skew %d of %d", p.Pods, want, p.Skew, p.MaxSkew)
	}
}

// held: the slots are held, and every replica of the service is in one.
func held(e *Evidence, c *Check) {
	if len(e.Status.Reservations) != 1 {
		c.violation("there are %d ZoneReservations, want 1", len(e.Status.Reservations))
		return
	}
	r, replicas := e.Status.Reservations[0], int64(e.Plan.Reserved().Replicas)
	var parts []string
	for _, z := range r.Zones {
		parts = append(parts, fmt.Sprintf("%s %d/%d", z.Name, z.Used, z.Held))
		want := int64(e.Plan.Slots)
		if e.lost(z.Name) {
			want = 0
		}
		if z.Held != want {
			c.violation("%s holds %d slots of %d", z.Name, z.Held, want)
		}
	}
	c.says("slots used/held: %s", strings.Join(parts, ", "))
	if r.Used != replicas {
		c.violation("%d slots are used by %d replicas", r.Used, replicas)
	}
	if e.Moment != Lost && r.State != status.OK {
		c.violation("the reservation is %s: %s", r.State, r.Message)
	}
}

// firstTry: the replicas that replace those of the lost zone went into held room at once.
func firstTry(e *Evidence, c *Check) {
	service := e.Plan.Reserved()
	displaced, first := 0, 0
	var longest time.Duration
	for _, p := range e.Census.In(workload.ServiceNamespace) {
		// The API server's times are in whole seconds.
		if p.Labels[workload.AppLabel] != service.App || p.Labels[workload.RoleLabel] != service.Role ||
			p.CreationTimestamp.Time.Before(e.LostAt.Truncate(time.Second)) {
			continue
		}
		displaced++
		switch note := e.Refused[p.UID]; {
		case note != "":
			c.violation("%s was refused first: %s", p.Key(), note)
		case p.Waits():
			c.violation("%s is not bound", p.Key())
		default:
			first++
			longest = max(longest, scheduled(p).LastTransitionTime.Sub(p.CreationTimestamp.Time))
		}
	}
	c.says("%d of %d, no event FailedScheduling, within %.0fs", first, displaced, max(1, longest.Seconds()))
	if displaced == 0 {
		c.violation("no replica was displaced")
	}
}

// batch: batch work fills the rest, but not the held room.
func batch(e *Evidence, c *Check) {
	reservation := e.Plan.Reservation().Name
	bound, waiting, kept := 0, 0, 0
	for _, p := range e.Census.In(workload.BatchNamespace) {
		if !p.Waits() {
			bound++
			continue
		}
		waiting++
		if strings.Contains(scheduled(p).Message, reservation) {
			kept++
		}
	}
	c.says("%d workers run, %d wait, %d of them for held room", bound, waiting, kept)
	if bound == 0 || bound+waiting != e.Plan.Workers {
		c.violation("%d workers run and %d wait, of %d", bound, waiting, e.Plan.Workers)
	}
	if e.Moment != Back && waiting == 0 {
		c.violation("no worker waits: nothing shows that room is held")
	}
}

// gangs: all or nothing.
func gangs(e *Evidence, c *Check) {
	whole, waits := 0, 0
	for _, planned := range e.Plan.Gangs {
		i := slices.IndexFunc(e.Status.Gangs, func(g status.Gang) bool { return g.Name == planned.Name })
		if i < 0 {
			c.violation("gang %s does not exist", planned.Name)
			continue
		}
		switch g := e.Status.Gangs[i]; {
		case planned.Fits && g.Bound >= g.MinMember:
			whole++
		case planned.Fits:
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
	c.says("%d whole, %d waits", whole, waits)
}

// allocated: no node has more pods or more requests than it can hold.
func allocated(e *Evidence, c *Check) {
	for _, n := range e.Census.Nodes {
		for name, amount := range n.Requested {
			if have := n.Allocatable[name]; amount > have {
				c.violation("%s: %d of %s allocated, %d allocatable", n.Name, amount, name, have)
			}
		}
	}
	slices.Sort(c.Violations)
	c.says("%s, all their resources", show.Plural(len(e.Census.Nodes), "node"))
}

// preempted: no pod was preempted.
func preempted(e *Evidence, c *Check) {
	victims := e.Metrics.Sum("scheduler_preemption_victims", nil)
	c.says("scheduler_preemption_victims %s", number(victims))
	if victims > 0 {
		c.violation("%s pods were", number(victims))
	}
}

// books: the scheduler's ledger and cache agree with the API server.
func books(e *Evidence, c *Check) {
	bound := 0
	for _, n := range e.Census.Nodes {
		bound += len(n.Pods)
	}
	ledger := func(name string) float64 { return e.Metrics.Sum("zonewise_reservecache_"+name, nil) }
	pods, nodes, assumed, comparisons := ledger("pods"), ledger("nodes"), ledger("assumed_pods"), ledger("drift_checks_total")
	drift := ledger("drift_nodes")
	c.says("%s pods on %s nodes, %s assumed, drift %s in %s comparisons",
		number(pods), number(nodes), number(assumed), number(drift), number(comparisons))
	for _, v := range []struct {
		what      string
		got, want float64
	}{
		{"pods in the ledger", pods, float64(bound)},
		{"nodes in the ledger", nodes, float64(len(e.Census.Nodes))},
		{"assumed pods in the ledger", assumed, 0},
		{"assumed pods in kube-scheduler's cache", e.Metrics.Sum("scheduler_cache_size", map[string]string{"type": "assumed_pods"}), 0},
		{"nodes with drift", drift, 0},
		{"nodes that differ from the snapshot", ledger("unsettled_nodes"), 0},
	} {
		if v.got != v.want { // also if it is not exported
			c.violation("%s: %s, want %s", v.what, number(v.got), number(v.want))
		}
	}
	if !(comparisons > 0) {
		c.violation("ledger and snapshot were not compared")
	}
}

func number(v float64) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", v)
}
