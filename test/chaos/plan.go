package chaos

import (
	"math/rand/v2"
	"strings"
	"time"
)

// zones and nodesPerZone are the cluster: nodes of 8 CPUs.
var zones = []string{"a", "b", "c"}

const (
	nodesPerZone = 3
	nodeMilliCPU = 8000
	nodeMemory   = "32Gi"
	nodePods     = 60
)

// plan is what a run does, and when. It follows from the seed alone.
type plan struct {
	steps  []step
	lanes  [][]fault
	length time.Duration
}

// step is a change of what is asked for. a and b choose among what there is then.
type step struct {
	at   time.Duration
	kind string
	a, b int
}

// fault is something that is done to the cluster, and undone after a while.
type fault struct {
	at, lasts time.Duration
	kind      string
	a, b      int
}

// warmUp is without faults; the last step and the end of the last fault come before the end of a plan.
const warmUp = 5 * time.Second

// The faults that schedulers lose sight of the cluster by.
const (
	apiServerRestarted = "API server restarted"
	etcdKilled         = "etcd killed"
)

// kind is one of the faults, and for how long it lasts.
type kind struct {
	name        string
	least, most time.Duration
}

// kinds are the faults, in lanes: within one, a fault ends before the next one begins.
var kinds = [][]kind{
	{
		{"leader killed", 0, 0},
		{"leader asked to end", 0, 0},
		{"leader stopped", 6 * time.Second, 9 * time.Second},
	},
	{
		{apiServerRestarted, 0, 10 * time.Second},
		{etcdKilled, 0, 2 * time.Second},
		{"binds refused", 2 * time.Second, 6 * time.Second},
		{"webhook times out", 2 * time.Second, 6 * time.Second},
		{"custom resources deleted", time.Second, 4 * time.Second},
	},
	{
		{"node cordoned", 2 * time.Second, 8 * time.Second},
		{"node not ready", 2 * time.Second, 8 * time.Second},
		{"node deleted", 2 * time.Second, 8 * time.Second},
		{"node moved to another zone", 2 * time.Second, 8 * time.Second},
	},
}

// newPlan draws one, with faults whose names contain a text.
func newPlan(seed uint64, length time.Duration, only string) *plan {
	p := &plan{length: length}
	dice := rand.New(rand.NewPCG(seed, 1))
	weights := []struct {
		kind string
		of   int
	}{
		{"scale", 6},
		{"roll", 6},
		{"finish", 2},
		{"gang", 6},
		{"delete gang", 2},
		{"halve gang", 2},
		{"restore gang", 3},
		{"minMember", 2},
		{"demand", 3},
		{"reservation", 2},
		{"policy", 1},
	}
	total := 0
	for _, w := range weights {
		total += w.of
	}
	for at := time.Duration(0); at < length; at += time.Duration(100+dice.IntN(700)) * time.Millisecond {
		n, i := dice.IntN(total), 0
		for n >= weights[i].of {
			n -= weights[i].of
			i++
		}
		p.steps = append(p.steps, step{at: at, kind: weights[i].kind, a: dice.IntN(1 << 16), b: dice.IntN(1 << 16)})
	}
	p.steps = append(p.steps, step{at: length, kind: "demand", a: dice.IntN(1 << 16)})
	for lane, all := range kinds {
		var choices []kind
		for _, k := range all {
			if strings.Contains(k.name, only) {
				choices = append(choices, k)
			}
		}
		if len(choices) == 0 {
			continue
		}
		dice := rand.New(rand.NewPCG(seed, uint64(lane)+2))
		var faults []fault
		// Each kind once in an order of its own, and then again.
		var order []int
		for at := warmUp + time.Duration(dice.IntN(4000))*time.Millisecond; ; {
			if len(order) == 0 {
				order = dice.Perm(len(choices))
			}
			kind := choices[order[0]]
			order = order[1:]
			lasts := kind.least
			if kind.most > kind.least {
				lasts += time.Duration(dice.Int64N(int64(kind.most - kind.least)))
			}
			if at+lasts >= length {
				break
			}
			faults = append(faults, fault{at: at, lasts: lasts, kind: kind.name, a: dice.IntN(1 << 16), b: dice.IntN(1 << 16)})
			at += lasts + time.Duration(5000+dice.IntN(15000))*time.Millisecond
		}
		p.lanes = append(p.lanes, faults)
	}
	return p
}
