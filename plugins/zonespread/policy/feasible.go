package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// zoneFacts is what the check of a whole placement needs to know about a zone.
type zoneFacts struct {
	name    string
	weight  int64
	maxPods int64
	empty   bool // declared, and never had an open node; for a demand also one that its pods may not use
	pods    int64

	availability Availability // for the workload in question, or for the one that it is worst for
}

// demand is a number of replicas that share caps.
type demand struct {
	uid      types.UID // of the workload; empty for that of all pods together
	name     string    // of the workload; empty when it is the only one
	replicas int64     // UnknownReplicas for no scaled caps
	live     int64     // what there is of pods, for what is not known
	barred   zoneSet   // zones that none of the pods may use
}

// feasible reports whether some placement of all replicas over the existing zones obeys the policy. It claims what is
// certain, whichever zones the pods may use: closed and full zones count as available, since they come back.
func (p *Policy) feasible(d *demand, zones []zoneFacts) (reason, message string) {
	allowed, capSum, skewSum := int64(0), int64(0), int64(0)
	var empty []string
	for i := range zones {
		z := &zones[i]
		if z.weight == 0 {
			continue
		}
		allowed++
		if z.empty {
			empty = append(empty, z.name)
			continue
		}
		limit, _ := p.capOf(z.maxPods, d.replicas)
		capSum = addUp(capSum, limit)
		skewSum = addUp(skewSum, min(limit, p.maxSkew))
	}
	existing := allowed - int64(len(empty))
	replicas := d.wanted()
	switch {
	case allowed == 0:
		return v1alpha1.ReasonNoZones, "no node has the label " + p.topologyKey +
			" with a zone that spec.zones and spec.defaultWeight allow"
	case p.minZones > allowed && skewSum < replicas:
		return v1alpha1.ReasonMinZonesAboveZones, d.prefix() +
			fmt.Sprintf("spec.minZones is %d, but there are %d zones, and each takes at most maxSkew (%d) pods: %d of %d "+
				"replicas. A zone that is to count without nodes has to be in spec.zones", p.minZones, allowed, p.maxSkew,
				skewSum, replicas)
	case p.quorumSafe && (d.replicas == 1 || d.replicas == 2):
		return v1alpha1.ReasonQuorumNeedsReplicas, d.prefix() +
			fmt.Sprintf("spec.quorumSafe needs 3 replicas or more, not %d: no majority is left when a zone is lost",
				replicas)
	case capSum < replicas:
		return v1alpha1.ReasonCapsBelowReplicas, d.prefix() +
			fmt.Sprintf("the caps of %d zones add up to %d pods, fewer than the %d replicas (%s)", existing, capSum,
				replicas, p.capNames(zones))
	case len(empty) > 0 && skewSum < replicas:
		return v1alpha1.ReasonSkewBelowReplicas, fmt.Sprintf("spec.zones: %s never had an open node and counts as 0, "+
			"so that the other zones take %d of %d replicas: remove it, set its weight to 0, or add nodes",
			quoted(empty), skewSum, replicas)
	}
	return "", ""
}

// wanted is how many pods must be placed: the existing ones, if no more is known.
func (d *demand) wanted() int64 {
	if d.replicas == UnknownReplicas {
		return d.live
	}
	return d.replicas
}

func (d *demand) prefix() string {
	if d.name == "" {
		return ""
	}
	return d.name + ": "
}

// capNames names the rules behind the caps, for a message.
func (p *Policy) capNames(zones []zoneFacts) string {
	var names []string
	if p.perZone != (limit{down: p.perZone.down}) {
		names = append(names, "maxPerZone "+p.perZone.String())
	}
	if p.quorumSafe {
		names = append(names, "quorumSafe")
	}
	if slices.ContainsFunc(zones, func(z zoneFacts) bool { return z.maxPods != Unlimited }) {
		names = append(names, "maxPods")
	}
	if len(names) == 0 {
		return "no zone has nodes"
	}
	return strings.Join(names, ", ")
}

// addUp adds caps, of which some are Unlimited.
func addUp(a, b int64) int64 {
	if a == Unlimited || b == Unlimited {
		return Unlimited
	}
	return a + b
}

func quoted(names []string) string {
	return `zone "` + strings.Join(names, `", "`) + `"`
}

// desired adds to want how many pods of a demand each zone should hold: the replicas by weight within the caps, over
// the zones that are available. A zone that is full keeps what it holds of them, up to its share; a zone that is closed
// has none. What is left over when all caps are reached is in no zone. want is parallel to zones.
//
// Shares are handed out by the largest share first (the smallest (c + 1) / w is next), which is where the scores
// lead.
func (p *Policy) desired(d *demand, zones []zoneFacts, held map[string]int64, want []int64) {
	caps := make([]int64, len(zones))
	for i := range zones {
		caps[i], _ = p.capOf(zones[i].maxPods, d.replicas)
	}
	mine := make([]int64, len(zones))
	share := func(open func(*zoneFacts) bool, left int64) {
		var active []int
		for i := range zones {
			if zones[i].weight > 0 && !zones[i].empty && open(&zones[i]) {
				active = append(active, i)
			}
		}
		handOut(left, zones, caps, active, mine)
	}
	// What a full zone keeps is decided as if it were available.
	share(func(*zoneFacts) bool { return true }, d.wanted())
	left := d.wanted()
	for i := range zones {
		if zones[i].availability != Full {
			mine[i] = 0
			continue
		}
		mine[i] = min(mine[i], held[zones[i].name])
		left -= mine[i]
	}
	share(func(z *zoneFacts) bool { return !z.availability.unavailable() }, left)
	for i := range want {
		want[i] += mine[i]
	}
}

// handOut hands out pods to the active zones.
func handOut(left int64, zones []zoneFacts, caps []int64, active []int, want []int64) {
	for left > 0 && len(active) > 0 {
		weights := int64(0)
		for _, i := range active {
			weights += zones[i].weight
		}
		// Whole parts first; a zone that reaches its cap leaves, and its rest is handed out again.
		rest, given := active[:0:0], int64(0)
		for _, i := range active {
			give := min(left*zones[i].weight/weights, caps[i]-want[i])
			want[i] += give
			given += give
			if want[i] < caps[i] {
				rest = append(rest, i)
			}
		}
		left -= given
		active = rest
		if given > 0 {
			continue
		}
		for ; left > 0 && len(active) > 0; left-- {
			best := 0
			for k, i := range active {
				b := active[best]
				if (want[i]+1)*zones[b].weight < (want[b]+1)*zones[i].weight {
					best = k
				}
			}
			i := active[best]
			want[i]++
			if want[i] == caps[i] {
				active = append(active[:best:best], active[best+1:]...)
			}
		}
	}
}
