package main

import (
	"fmt"
	"slices"
)

// The variants: which scheduler configuration a case runs with.
const (
	inTree       = "in-tree"          // the scheduler's defaults
	unspread     = "unspread"         // the same without PodTopologySpread: no plugin keeps spread constraints
	zoneSpread   = "zonespread"       // ZoneSpread instead of PodTopologySpread
	reserveCache = "reservecache"     // ReserveCache beside the defaults
	permitGate   = "permitgate"       // PermitGate beside the defaults
	neverGate    = "permitgate-never" // the same, with bindRehearsal Never
)

// schedulerConfigs has the files with the variants' configurations, where there are any the ones that users read.
var schedulerConfigs = map[string]string{
	inTree:       "",
	unspread:     "unspread.yaml",
	zoneSpread:   "../../../config/zonespread.yaml",
	reserveCache: "../../../config/reservecache.yaml",
	permitGate:   "../../../config/permitgate.yaml",
	neverGate:    "../../../config/permitgate.yaml", // see configOf
}

// series is a case with a variant.
type series struct{ name, variant string }

// set is what is measured in turns with one another. The first series is what the others are compared with.
type set struct {
	name, workload string
	series         []series
}

// plan returns everything that is measured.
func plan() []set {
	const large = "5000Nodes"
	var sets []set
	for _, name := range []string{
		"TopologySpreading", "PreferredTopologySpreading", "DefaultTopologySpreading", "SchedulingWithNodeInclusionPolicy", "SpreadPodsBefore",
	} {
		// Pods with constraints cost the API server more than those of SchedulingBasic, which unspread has, too.
		sets = append(sets, set{name, large, []series{{name, inTree}, {name, zoneSpread}, {name, unspread}, {"SchedulingBasic", inTree}}})
	}
	// The framework batches pods that are alike, but neither plugin lets it batch pods that it spreads.
	for _, name := range []string{"AlikeSpreadPods", "AlikePodsWithNodeInclusionPolicy"} {
		sets = append(sets, set{name, large, []series{{name, inTree}, {name, zoneSpread}}})
	}
	sets = append(sets,
		set{"SchedulingBasic", large, []series{{"SchedulingBasic", inTree}, {"SchedulingBasic", zoneSpread}, {"SchedulingBasic", reserveCache}}},
		set{"SchedulingBesideHolds", large, []series{{"SchedulingBesideHolds", inTree}, {"SchedulingBesideHolds", reserveCache}}})
	for _, workload := range []string{"1000Nodes_600GangsOf3", "1000Nodes_100GangsOf20", "5000Nodes_20GangsOf500"} {
		sets = append(sets,
			set{"Gangs", workload, []series{{"SameWithoutGangs", inTree}, {"Gangs", permitGate}, {"Gangs", neverGate}, {"NativeGangs", inTree}}},
			set{"NativeGangs", workload, []series{{"NativeGangs", inTree}, {"NativeGangs", permitGate}}})
	}
	for _, workload := range []string{"5000Nodes_750GangsOf4", "5000Nodes_3GangsOf1000"} {
		sets = append(sets, set{"GangsInARack", workload, []series{{"NativeGangsInARack", inTree}, {"GangsInARack", permitGate}}})
	}
	return sets
}

// selected returns the sets of some cases, all without names, with one workload instead of the plan's if it is not
// empty.
func selected(names []string, workload string) ([]set, error) {
	var sets []set
	for _, s := range plan() {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if workload != "" {
			s.workload = workload
		}
		if !slices.ContainsFunc(sets, func(other set) bool { return other.name == s.name && other.workload == s.workload }) {
			sets = append(sets, s)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(sets, func(s set) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is nothing to compare in a case %q", name)
		}
	}
	return sets, nil
}
