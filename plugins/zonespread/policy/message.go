package policy

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Message says why the zone is refused, for the reasons of a pod's FailedScheduling event: policy, zone,
// count, share, and the rule with its numbers. It is empty when the zone is allowed.
func (t *Table) Message(zone string) string {
	row := *t.lookup(zone)
	row.name = zone
	return t.describe(&row)
}

// MessageFor is Message for a node by its labels.
func (t *Table) MessageFor(nodeLabels map[string]string) string {
	zone, ok := nodeLabels[t.policy.topologyKey]
	if !ok {
		return "policy " + t.policy.Key() + ": node has no label " + t.policy.topologyKey
	}
	return t.Message(zone)
}

// Refused reports whether the last thing that a scheduler said about a waiting pod, its condition PodScheduled, is that
// the policy refuses it a zone.
func (p *Policy) Refused(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled {
			return c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable && strings.Contains(c.Message, "policy "+p.Key()+": zone ")
		}
	}
	return false
}

func (t *Table) describe(z *zoneRow) string {
	if z.rule == Pass {
		return ""
	}
	if z.rule == OwnerUnknown {
		return "policy " + t.policy.Key() + ": the pod's controller is not known yet"
	}
	prefix := "policy " + t.policy.Key() + ": zone " + z.name
	if z.rule == Forbidden {
		return prefix + " has weight 0"
	}
	held := z.pods
	if z.rule.capped() {
		held = z.held
	}
	if t.replicas == UnknownReplicas {
		prefix += fmt.Sprintf(" holds %d, ", held)
	} else {
		prefix += fmt.Sprintf(" holds %d of %d, share %s, ", held, t.replicas, t.share(z))
	}
	switch z.rule {
	case MaxPods, QuorumSafe:
		return prefix + fmt.Sprintf("cap %d (%s)", z.cap, z.rule.field())
	case MaxPerZone:
		return prefix + fmt.Sprintf("cap %d (maxPerZone %s)", z.cap, t.policy.perZone)
	case MinZones:
		return prefix +
			fmt.Sprintf("maxSkew %d with %d of minZones %d", t.policy.maxSkew, t.there, t.policy.minZones)
	}
	least := &t.zones[t.smallest]
	return prefix + fmt.Sprintf("maxSkew %d over zone %s with %d of weight %d", t.policy.maxSkew, least.name,
		least.pods, least.weight)
}

// share is the part of the replicas that the zone's weight stands for, among the zones that are available.
func (t *Table) share(z *zoneRow) string {
	weights := t.weights
	if !z.counts || z.availability.unavailable() {
		weights += z.weight
	}
	return strconv.FormatFloat(float64(t.replicas)*float64(z.weight)/float64(weights), 'f', 1, 64)
}
