package worlds

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// World is a cluster and what happens to it. It is a value: the same World gives the same objects and the same steps,
// and it prints as Go source.
type World struct {
	// Native turns kube-scheduler's own pod groups on (feature gate GenericWorkload).
	Native bool
	// Steps are carried out one after the other. Objects come by steps as well.
	Steps []Step
	// AtRest are carried out once the world has come to rest, and the scheduler has been restarted.
	AtRest []Step
}

// Step is something that happens. A step that names an object which is not there does nothing, so that any part of a
// history is one.
type Step interface {
	apply(p *player)
}

// Node is a node that comes, or comes back, ready.
type Node struct {
	Name, Zone string
	// Pool is a label that workloads may select, and the value of a taint that they then tolerate; "" for neither.
	Pool string
	CPU  int
	// Devices is how many devices its driver publishes.
	Devices int
}

// Kind is the kind of a workload.
type Kind string

// Kinds of workloads. A Gang is a PodGroup of scheduling.x-k8s.io, a NativeGang one of scheduling.k8s.io; their pods
// are replaced one by one, as by the controller of a Job.
const (
	Deployment  Kind = "Deployment"
	StatefulSet Kind = "StatefulSet"
	Job         Kind = "Job"
	Gang        Kind = "Gang"
	NativeGang  Kind = "NativeGang"
)

// Spread is how the pods of a workload are kept apart by their own spec.
type Spread string

// Ways of being spread. Over zones with maxSkew 1; apart by anti-affinity for hosts.
const (
	OverZones       Spread = "zones"
	OverZonesIfFree Spread = "zones if free"
	OnePerNode      Spread = "one per node"
)

// Unprovisioned is the Volume of a claim that is never provisioned.
const Unprovisioned = "unprovisioned"

// Packing says whether a gang is to be in one zone.
type Packing string

// Packings.
const (
	RequiredZone  Packing = "required"
	PreferredZone Packing = "preferred"
)

// Workload is a controller with pods that are alike. Its pods have the label app with its App, or its Name if that is
// empty.
type Workload struct {
	Name, App string
	Kind      Kind
	Replicas  int
	CPU       int
	Priority  int32
	Pool      string
	Spread    Spread
	// NeverPreempts is preemptionPolicy Never.
	NeverPreempts bool
	// Volume is where the volume of the pods' claim is, a zone or a node; Unprovisioned if there will be none, "" for
	// no claim.
	Volume string
	// Device is how the pods ask for a device; "" for none.
	Device Device
	// Runs is after which time the pods of a Job or a gang succeed; 0 for never.
	Runs time.Duration

	// Of gangs. MinMember is Replicas if it is 0.
	MinMember    int
	Packing      Packing
	MinResources bool
	Timeout      time.Duration
}

// Reservation is a ZoneReservation with slots of so many CPUs for the pods of an app. With Zones it has Slots in each
// of these, otherwise in all.
type Reservation struct {
	Name, App    string
	Slots        int
	Zones        []string
	CPU          int
	SlotsPerNode int
	Priority     int32
	Guarantee    bool
	Required     bool
}

// Policy is a ZoneSpreadPolicy for the pods of an app.
type Policy struct {
	Name, App  string
	MaxSkew    int
	MinZones   int
	MaxPerZone string
	Weights    map[string]int
	QuorumSafe bool
	Soft       bool
	Gangs      bool // counts whole gangs
}

// String returns the world as a Go expression that a test may have as it stands.
func (w World) String() string {
	var b strings.Builder
	b.WriteString("World{")
	if w.Native {
		b.WriteString("Native: true, ")
	}
	b.WriteString("Steps: []Step{\n")
	for _, step := range w.Steps {
		fmt.Fprintf(&b, "\t%s,\n", source(reflect.ValueOf(step)))
	}
	if len(w.AtRest) > 0 {
		b.WriteString("}, AtRest: []Step{\n")
	}
	for _, step := range w.AtRest {
		fmt.Fprintf(&b, "\t%s,\n", source(reflect.ValueOf(step)))
	}
	b.WriteString("}}")
	return b.String()
}

// source prints a value as Go source without the fields that are zero.
func source(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				text := source(f)
				fields = append(fields, v.Type().Field(i).Name+": "+text)
			}
		}
		return v.Type().Name() + "{" + strings.Join(fields, ", ") + "}"
	case reflect.Int64:
		if d, ok := reflect.TypeAssert[time.Duration](v); ok {
			return durationSource(d)
		}
		return fmt.Sprint(v.Int())
	default:
		return strings.ReplaceAll(fmt.Sprintf("%#v", v.Interface()), "worlds.", "")
	}
}

func durationSource(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "Hour"}, {time.Minute, "Minute"}, {time.Second, "Second"}, {time.Millisecond, "Millisecond"}} {
		if d%unit.d == 0 {
			if d == unit.d {
				return "time." + unit.name
			}
			return fmt.Sprintf("%d * time.%s", d/unit.d, unit.name)
		}
	}
	return fmt.Sprintf("time.Duration(%d)", d)
}
