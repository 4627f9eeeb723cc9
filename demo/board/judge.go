package board

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// mostViolations bounds what one check lists.
const mostViolations = 5

// judge checks what must be true.
func judge(r *recount, e Evidence, spreads []measured, services []Service, gangs []Gang) []Check {
	checks := []Check{
		checkCapacity(r),
		checkSpread(spreads),
		checkPartial(gangs),
		checkHolds(r, gangs),
		checkWhole(e, gangs),
		checkReplicas(services),
		checkWaiting(r),
		checkReadings("no assumed pod is left over", "ledger and scheduler cache",
			reading{assumedMetric, e.Metrics.Assumed, 0}, reading{cacheMetric + `{type="assumed_pods"}`, e.Metrics.CacheAssumed, 0}),
		checkDrift(e.Metrics),
		checkAccount(r, e.Metrics),
	}
	for i, c := range checks {
		if extra := len(c.Violations) - mostViolations; extra > 0 {
			checks[i].Violations = append(c.Violations[:mostViolations:mostViolations], fmt.Sprintf("and %d more", extra))
		}
	}
	return checks
}

func checkCapacity(r *recount) Check {
	c := Check{Name: "allocated never exceeds allocatable"}
	bound := 0
	for _, n := range r.order {
		bound += len(n.pods)
		for _, name := range n.allocated.names() {
			if n.allocated[name] > n.allocatable[name] {
				c.Violations = append(c.Violations, fmt.Sprintf("node %s: %s allocated %d, allocatable %d", n.node.Name, name, n.allocated[name], n.allocatable[name]))
			}
		}
	}
	for _, pod := range r.lost {
		c.Violations = append(c.Violations, fmt.Sprintf("pod %s/%s is bound to node %s, which does not exist", pod.Namespace, pod.Name, pod.Spec.NodeName))
	}
	c.Scope = fmt.Sprintf("%d nodes, %d pods", len(r.order), bound)
	return c
}

func checkSpread(spreads []measured) Check {
	c := Check{Name: "skew is within maxSkew", Scope: fmt.Sprintf("%d hard constraints", len(spreads))}
	for _, m := range spreads {
		if m.skew > int(m.constraint.MaxSkew) {
			c.Violations = append(c.Violations, fmt.Sprintf("%s/%s over %s: skew %d, allowed %d (%s)",
				m.deployment.Namespace, m.deployment.Name, m.constraint.TopologyKey, m.skew, m.constraint.MaxSkew, fullest(m.counts)))
		}
	}
	return c
}

// fullest lists the domains of a spread, the first few of them.
func fullest(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names[:min(3, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

func checkPartial(gangs []Gang) Check {
	c := Check{Name: "no gang is partly bound", Scope: fmt.Sprintf("%d gangs", len(gangs))}
	for _, g := range gangs {
		if g.State == Partial {
			c.Violations = append(c.Violations, fmt.Sprintf("gang %s: %d bound, minMember %d", g.Name, g.Bound, g.MinMember))
		}
	}
	return c
}

func checkHolds(r *recount, gangs []Gang) Check {
	c := Check{Name: "a gang that waits holds nothing"}
	waiting := map[string]bool{}
	for _, g := range gangs {
		if g.State == Waits {
			waiting[g.Name] = true
		}
	}
	members := 0
	for _, pod := range r.pending {
		if !waiting[pod.Labels[schedv1alpha1.PodGroupLabel]] {
			continue
		}
		members++
		if node := pod.Status.NominatedNodeName; node != "" {
			c.Violations = append(c.Violations, fmt.Sprintf("pod %s/%s is nominated to node %s", pod.Namespace, pod.Name, node))
		}
	}
	c.Scope = fmt.Sprintf("%d members of %d gangs", members, len(waiting))
	return c
}

func checkWhole(e Evidence, gangs []Gang) Check {
	c := Check{Name: "every gang that fits is whole"}
	fits := 0
	for i := range e.PodGroups {
		if e.PodGroups[i].Annotations[e.FitsAnnotation] != "true" {
			continue
		}
		fits++
		for _, g := range gangs {
			if g.Name == e.PodGroups[i].Name && g.State != Whole {
				c.Violations = append(c.Violations, fmt.Sprintf("gang %s: %d of %d bound", g.Name, g.Bound, g.MinMember))
			}
		}
	}
	c.Scope = fmt.Sprintf("%d gangs", fits)
	return c
}

func checkReplicas(services []Service) Check {
	c := Check{Name: "every replica exists"}
	desired := 0
	for _, s := range services {
		desired += s.Desired
		if n := s.Bound + s.Waiting; n != s.Desired {
			c.Violations = append(c.Violations, fmt.Sprintf("service %s: %d pods, %d replicas", s.Name, n, s.Desired))
		}
	}
	c.Scope = fmt.Sprintf("%d replicas", desired)
	return c
}

func checkWaiting(r *recount) Check {
	w := findWaiting(r, len(r.pending))
	c := Check{Name: "no pod waits that some node could take", Scope: fmt.Sprintf("%d waiting pods", w.Pods)}
	for _, name := range w.Placeable {
		c.Violations = append(c.Violations, "pod "+name)
	}
	return c
}

func checkDrift(m Metrics) Check {
	c := checkReadings("the ledger equals the scheduler's snapshot", fmt.Sprintf("%.0f comparisons", m.Checks),
		reading{driftMetric, m.Drift, 0}, reading{unsettledMetric, m.Unsettled, 0})
	if !(m.Checks > 0) { // NaN too
		c.Scope = "never compared"
		c.Violations = append(c.Violations, "the scheduler has not compared them: "+checksMetric)
	}
	return c
}

func checkAccount(r *recount, m Metrics) Check {
	bound := len(r.lost)
	for _, n := range r.order {
		bound += len(n.pods)
	}
	return checkReadings("the ledger has what the API server has", fmt.Sprintf("%d pods, %d nodes", bound, len(r.order)),
		reading{podsMetric, m.Pods, float64(bound)}, reading{nodesMetric, m.Nodes, float64(len(r.order))}, reading{ghostsMetric, m.Ghosts, 0})
}

// reading is a metric and what it must be.
type reading struct {
	metric string
	value  float64
	want   float64
}

func checkReadings(name, scope string, readings ...reading) Check {
	c := Check{Name: name, Scope: scope}
	for _, r := range readings {
		switch {
		case math.IsNaN(r.value):
			c.Violations = append(c.Violations, "the scheduler does not export "+r.metric)
		case r.value != r.want:
			c.Violations = append(c.Violations, fmt.Sprintf("%s is %v, must be %v", r.metric, r.value, r.want))
		}
	}
	return c
}
