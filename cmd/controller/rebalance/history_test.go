package rebalance

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

var withDescheduler = flag.Bool("descheduler", false, "repeat the histories of docs/rebalance.md with the descheduler")

// account is what came of a history: a row of docs/rebalance.md.
type account struct {
	// moves are evictions, and steady those of them in hours in which nothing had drifted. least is how few moves bring
	// all services within maxSkew.
	moves, steady, least int
	// together is how many pods of one service were evicted at a time, and waiting how many pods of services had no
	// node when the cluster had come to rest after that, at most.
	together, waiting int
	// Of the services those whose constraint, and those whose policy, held in the end, or at the worst of several ends.
	constraints, policies held
}

// held is how many rules of a kind there are, and how many of them held.
type held struct{ within, all int }

func (h *held) add(other held) { h.within, h.all = h.within+other.within, h.all+other.all }

func (h held) String() string { return fmt.Sprintf("%d of %d", h.within, h.all) }

func (a *account) within() int { return a.constraints.within + a.policies.within }

func (a *account) services() int { return a.constraints.all + a.policies.all }

func (a *account) add(b account) {
	a.moves, a.steady, a.least = a.moves+b.moves, a.steady+b.steady, a.least+b.least
	a.together, a.waiting = max(a.together, b.together), max(a.waiting, b.waiting)
	a.constraints.add(b.constraints)
	a.policies.add(b.policies)
}

func (a *account) log(t *testing.T, history, mover string) {
	t.Helper()
	t.Logf("| %s | %s | %d | %d | %d | %d | %s | %s |", history, mover, a.moves, a.steady, a.together, a.waiting, a.constraints, a.policies)
}

// compare has a ZoneRebalance live through a history, checks what came of it, and has the descheduler live through the
// same one, if that is asked for.
func compare(
	t *testing.T, name string, start func(*testing.T) *day, happen func(*day), check func(*testing.T, *day),
) (by, beside account) {
	t.Helper()
	d := start(t)
	happen(d)
	if name != "" {
		d.log(t, name, "ZoneRebalance")
	}
	check(t, d)
	if *withDescheduler {
		other := start(t)
		other.addDescheduler()
		happen(other)
		if name != "" {
			other.log(t, name, "descheduler")
		}
		beside = other.account
	}
	return d.account, beside
}

// watchEvictions counts what the Eviction API has accepted.
func (d *day) watchEvictions() { d.server.evict = d.evict }

func (d *day) evict(pod *v1.Pod) error {
	now, ok := sim.Get[*v1.Pod](d.sim, pod.Namespace, pod.Name)
	if err := d.sim.Evict(pod); err != nil || !ok || now.DeletionTimestamp != nil {
		return err
	}
	service := now.Namespace + "/" + now.Labels["app"]
	d.evictedTogether[service]++
	d.moves, d.together = d.moves+1, max(d.together, d.evictedTogether[service])
	return nil
}

// live lets time pass, with what disturbs the cluster. The controller has a turn soon after it has written something,
// as it sees that change like any other.
func (d *day) live(length time.Duration) {
	d.t.Helper()
	const settle = 5 * time.Second
	next := d.sim.Now()
	for end := d.sim.Now().Add(length); d.sim.Now().Before(end); {
		if !d.sim.Now().Before(next) {
			d.disturb()
			next = d.sim.Now().Add(d.every)
		}
		d.evictedTogether = map[string]int{}
		wait := d.move(settle)
		d.schedule()
		d.countWaiting()
		d.pass(max(time.Second, min(wait, max(settle, next.Sub(d.sim.Now())))))
	}
}

// move gives the ZoneRebalance, or the descheduler, its turn, and returns after how long it has the next one.
func (d *day) move(settle time.Duration) time.Duration {
	d.t.Helper()
	if d.descheduler != nil {
		if now := d.sim.Now(); !now.Before(d.nextRun) {
			require.NoError(d.t, d.descheduler.Run(d.t.Context()))
			d.nextRun = now.Add(descheduleEvery)
		}
		return d.nextRun.Sub(d.sim.Now())
	}
	version := d.stored.ResourceVersion
	wait := d.turn()
	if d.stored.ResourceVersion != version {
		return settle
	}
	return wait
}

// countWaiting counts the pods of services without a node.
func (d *day) countWaiting() {
	waiting := 0
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Spec.NodeName == "" && pod.Labels["app"] != "batch" {
			waiting++
		}
	}
	d.waiting = max(d.waiting, waiting)
}

// addLeast adds what has to be moved now.
func (d *day) addLeast() {
	standing := rebalance.StandingOf(d.sim, rebalance.Options{})
	for _, r := range standing.Rules {
		d.least += clitest.LeastMoves(r.Pods, 3)
	}
}

// judge counts the services whose rules hold. Each service has one.
func (d *day) judge() {
	d.t.Helper()
	now := account{}
	standing := rebalance.StandingOf(d.sim, rebalance.Options{})
	for _, rule := range standing.Rules {
		kind := &now.policies
		if rule.Rule == "topologySpreadConstraint" {
			kind = &now.constraints
		}
		kind.all++
		if rule.Excess == 0 {
			kind.within++
		}
	}
	if d.services() == 0 || now.within() < d.within() {
		d.constraints, d.policies = now.constraints, now.policies
	}
	require.Positive(d.t, d.services())
}
