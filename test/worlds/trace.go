package worlds

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Trace is where Play writes the steps of a world and what changes after each, for reading a failure; nil for nowhere.
var Trace io.Writer

// tracer remembers what it has written of each object.
type tracer map[string]string

// traceStep writes a step that is about to be carried out.
func (p *player) traceStep(step Step) {
	if Trace != nil {
		fmt.Fprintf(Trace, "%12v  %s\n", time.Since(p.began), source(reflect.ValueOf(step)))
	}
}

// traceChanges writes which pods, nodes and statuses are not as they were at the last call.
func (p *player) traceChanges() {
	if Trace == nil {
		return
	}
	now := tracer{}
	for _, pod := range p.listPods() {
		now["pod "+pod.Name] = podState(&pod)
	}
	for _, n := range p.allNodes() {
		now["node "+n.Name] = fmt.Sprintf("zone %s, %d CPUs, cordoned %v, lost %v", n.Zone, n.CPU, n.cordoned, n.lost)
	}
	for name := range p.reservations {
		var text strings.Builder
		for _, zone := range p.status(name).Zones {
			fmt.Fprintf(&text, "%s %d of %d", zone.Name, zone.Held, zone.Desired)
			for _, n := range zone.Nodes {
				fmt.Fprintf(&text, " %s=%d", n.Name, n.Slots)
			}
			text.WriteString("; ")
		}
		now["reservation "+name] = text.String()
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if before, known := p.traced[name]; !known || before != now[name] {
			fmt.Fprintf(Trace, "%12v      %s: %s\n", time.Since(p.began), name, now[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.traced)) {
		if _, there := now[name]; !there {
			fmt.Fprintf(Trace, "%12v      %s: gone\n", time.Since(p.began), name)
		}
	}
	p.traced = now
}

func podState(pod *v1.Pod) string {
	text := fmt.Sprintf("%d CPUs, priority %d", requestOf(pod), priorityOf(pod))
	switch {
	case pod.Spec.NodeName != "":
		text += ", on " + pod.Spec.NodeName
	case pod.Status.NominatedNodeName != "":
		text += ", nominated to " + pod.Status.NominatedNodeName
	}
	scheduled := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse })
	if scheduled >= 0 {
		text += ", " + pod.Status.Conditions[scheduled].Reason + ": " + pod.Status.Conditions[scheduled].Message
	}
	switch {
	case pod.DeletionTimestamp != nil:
		text += ", terminates"
	case finished(pod):
		text += ", finished"
	}
	return text
}
