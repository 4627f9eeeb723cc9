package board

import "time"

// Board is the state of the demo's cluster at its end. It marshals to JSON.
type Board struct {
	Kubernetes string     `json:"kubernetes"`
	Zones      []Zone     `json:"zones"`
	Services   []Service  `json:"services"`
	Spread     Spread     `json:"spread"`
	Gangs      []Gang     `json:"gangs"`
	Ledger     Ledger     `json:"ledger"`
	Throughput Throughput `json:"throughput"`
	Phases     []Timing   `json:"phases"`
	Checks     []Check    `json:"checks"`
	// WhileLost are the checks as they were while a zone was lost.
	WhileLost []Check `json:"checksWhileLost,omitempty"`
}

// Zone is one zone.
type Zone struct {
	Name string `json:"name"`
	// State is Serving when every node takes pods, Drained when none does
	// and no pod is left, Cordoned when none does, Mixed otherwise.
	State       string `json:"state"`
	Nodes       int    `json:"nodes"`
	Pods        int    `json:"pods"`
	ServicePods int    `json:"servicePods"`
	GangPods    int    `json:"gangPods"`
	// The shares of allocatable that are allocated, 0 to 1; nil when the
	// zone has none of it.
	CPU    *float64 `json:"cpu,omitempty"`
	Memory *float64 `json:"memory,omitempty"`
	GPU    *float64 `json:"gpu,omitempty"`
}

// States of a zone.
const (
	Serving  = "serving"
	Cordoned = "cordoned"
	Drained  = "drained"
	Mixed    = "mixed"
)

// Service is all Deployments that carry the same application label.
type Service struct {
	Name    string         `json:"name"`
	Desired int            `json:"desired"`
	Bound   int            `json:"bound"`
	Waiting int            `json:"waiting"`
	Zones   map[string]int `json:"zones"`
	// Skew is the largest of its Deployments' zone skews, MaxSkew what
	// that one allows.
	Skew    int `json:"skew"`
	MaxSkew int `json:"maxSkew"`
	// Reason is what the scheduler says about a replica that waits.
	Reason string `json:"reason,omitempty"`
}

// Spread sums the zone constraints of all Deployments up.
type Spread struct {
	Deployments int `json:"deployments"`
	// BySkew is how many Deployments have a zone skew of exactly the index.
	BySkew []int `json:"bySkew"`
	Worst  int   `json:"worst"`
}

// Gang is one PodGroup.
type Gang struct {
	Name      string         `json:"name"`
	MinMember int            `json:"minMember"`
	Members   int            `json:"members"`
	Bound     int            `json:"bound"`
	State     string         `json:"state"`
	Zones     map[string]int `json:"zones"`
	// Reason is what the scheduler says about a member that waits.
	Reason string `json:"reason,omitempty"`
}

// States of a gang.
const (
	Whole   = "whole"   // at least minMember members are bound
	Waits   = "waiting" // none is
	Partial = "partial" // some are and it never was whole: this must not be
	// Reduced gangs were whole, lost members to an eviction, and have no
	// room for their replacements.
	Reduced = "reduced"
)

// Ledger is what the scheduler says about its own books, see Metrics. A nil
// value was not exported.
type Ledger struct {
	Assumed      *float64 `json:"assumed"`
	CacheAssumed *float64 `json:"cacheAssumed"`
	Pods         *float64 `json:"pods"`
	Nodes        *float64 `json:"nodes"`
	Ghosts       *float64 `json:"ghosts"`
	Checks       *float64 `json:"checks"`
	Drift        *float64 `json:"drift"`
	Unsettled    *float64 `json:"unsettled"`
}

// Throughput is over all bindings of the run.
type Throughput struct {
	Bound int `json:"bound"`
	// Median and P99 are from the moment that a pod was first seen to the
	// moment that it was seen bound.
	Median time.Duration `json:"medianNanoseconds"`
	P99    time.Duration `json:"p99Nanoseconds"`
}

// Timing is one phase.
type Timing struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Bound is the number of pods bound in it, PerSecond the rate up to the
	// last of them, Peak the most in one second.
	Bound     int     `json:"bound"`
	PerSecond float64 `json:"perSecond"`
	Peak      int     `json:"peak"`
}

// Check is one thing that must be true.
type Check struct {
	// Name is the invariant.
	Name string `json:"name"`
	// Scope says what was looked at.
	Scope string `json:"scope"`
	// Violations are empty when it holds.
	Violations []string `json:"violations,omitempty"`
}

// OK reports whether the invariant holds.
func (c Check) OK() bool { return len(c.Violations) == 0 }

// Broken returns the checks that failed, at the end or while a zone was lost.
func (b *Board) Broken() []Check {
	var broken []Check
	for _, c := range b.Checks {
		if !c.OK() {
			broken = append(broken, c)
		}
	}
	for _, c := range b.WhileLost {
		if !c.OK() {
			c.Name += ", while the zone was lost"
			broken = append(broken, c)
		}
	}
	return broken
}
