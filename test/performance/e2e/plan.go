package main

import "slices"

// The variants: which scheduler configuration a case runs with.
const (
	inTree       = "in-tree"          // the scheduler's defaults
	unspread     = "unspread"         // the same without PodTopologySpread: nobody keeps spread constraints
	zoneSpread   = "zonespread"       // ZoneSpread in the place of PodTopologySpread
	reserveCache = "reservecache"     // ReserveCache beside the defaults
	permitGate   = "permitgate"       // PermitGate beside the defaults
	neverGate    = "permitgate-never" // the same, with bindRehearsal Never
	zonewise     = "zonewise"         // all three plugins, as shipped
)

// variants lists all of them.
var variants = []string{inTree, unspread, zoneSpread, reserveCache, permitGate, neverGate, zonewise}

// The workloads of cases.yaml that the plan names.
const (
	large   = "5000Nodes"
	gangs3  = "1000Nodes_600GangsOf3"
	gangs20 = "1000Nodes_100GangsOf20"
	gangs5k = "5000Nodes_20GangsOf500"
	racks4  = "5000Nodes_750GangsOf4"
	racks1k = "5000Nodes_3GangsOf1000"
)

// ceiling is what the rates of other cases are held against: pods without constraints under the defaults.
var ceiling = series{Case: "SchedulingBasic", Workload: large, Variant: inTree}

// series names the measurements that are repetitions of one another.
type series struct {
	Case     string `json:"case"`
	Workload string `json:"workload"`
	Variant  string `json:"variant"`
}

func (s series) String() string { return s.Case + "/" + s.Workload + ", " + s.Variant }

// comparison is a row of a table: two series, and how near the first should come to the second.
type comparison struct {
	Ours, Baseline series
	// Goal is the ratio of the throughputs, ours to the baseline's, that we want at least; 0 means that there is none.
	Goal float64
	// CeilingGoal is the same for the ratio to the ceiling; 0 leaves that column empty.
	CeilingGoal float64
	// CPUGoal is the ratio of the scheduler's CPU times per pod that we want at most; 0 means that there is none.
	CPUGoal float64
}

// group is a table.
type group struct {
	Title       string
	Comparisons []comparison
}

// groups is everything that is measured.
var groups = []group{
	{
		Title: "ZoneSpread in the place of PodTopologySpread",
		Comparisons: []comparison{
			against("SchedulingBasic", large, zoneSpread, 0.97, 0),
			against("TopologySpreading", large, zoneSpread, 0.97, 0.90),
			against("PreferredTopologySpreading", large, zoneSpread, 0.97, 0.90),
			against("DefaultTopologySpreading", large, zoneSpread, 0.97, 0.90),
			against("SchedulingWithNodeInclusionPolicy", large, zoneSpread, 0.97, 0.90),
			against("SpreadPodsBefore", large, zoneSpread, 0.97, 0.90),
		},
	},
	{
		// Pods with constraints cost the API server more than those of SchedulingBasic, which is in this baseline.
		Title: "ZoneSpread against the same pods when nobody spreads them",
		Comparisons: []comparison{
			againstNobody("TopologySpreading"),
			againstNobody("PreferredTopologySpreading"),
			againstNobody("DefaultTopologySpreading"),
			againstNobody("SchedulingWithNodeInclusionPolicy"),
			againstNobody("SpreadPodsBefore"),
			// What such pods cost whoever schedules them.
			nobodyAgainstCeiling("TopologySpreading"),
			nobodyAgainstCeiling("PreferredTopologySpreading"),
			nobodyAgainstCeiling("DefaultTopologySpreading"),
			nobodyAgainstCeiling("SchedulingWithNodeInclusionPolicy"),
		},
	},
	{
		// The framework batches pods that are alike, but neither plugin lets it batch pods that it spreads.
		Title: "ZoneSpread with pods that are alike",
		Comparisons: []comparison{
			against("AlikeSpreadPods", large, zoneSpread, 2, 0),
			against("AlikePodsWithNodeInclusionPolicy", large, zoneSpread, 2, 0),
		},
	},
	{
		Title: "ReserveCache beside the default plugins",
		Comparisons: []comparison{
			against("SchedulingBasic", large, reserveCache, 0.95, 0),
			against("SchedulingBesideHolds", large, reserveCache, 0.95, 0),
		},
	},
	{
		Title: "Gangs with PermitGate",
		Comparisons: []comparison{
			withCPU(gangs(gangs3, "SameWithoutGangs", 0.90), 1.30),
			gangs(gangs3, "NativeGangs", 1.20),
			unrehearsed(gangs3),
			withCPU(gangs(gangs20, "SameWithoutGangs", 0.90), 1.30),
			gangs(gangs20, "NativeGangs", 1.20),
			unrehearsed(gangs20),
			withCPU(gangs(gangs5k, "SameWithoutGangs", 0.90), 1.30),
			gangs(gangs5k, "NativeGangs", 1.00),
			unrehearsed(gangs5k),
		},
	},
	{
		Title: "Native gangs with PermitGate beside GangScheduling",
		Comparisons: []comparison{
			against("NativeGangs", gangs3, permitGate, 0.95, 0),
			against("NativeGangs", gangs20, permitGate, 0.95, 0),
			against("NativeGangs", gangs5k, permitGate, 0.95, 0),
		},
	},
	{
		Title:       "Gangs in one rack each",
		Comparisons: []comparison{inARack(racks4), inARack(racks1k)},
	},
}

// against compares a variant of ours with the in-tree one in the same case.
func against(name, workload, variant string, goal, ceilingGoal float64) comparison {
	return comparison{
		Ours:        series{Case: name, Workload: workload, Variant: variant},
		Baseline:    series{Case: name, Workload: workload, Variant: inTree},
		Goal:        goal,
		CeilingGoal: ceilingGoal,
	}
}

// againstNobody compares ZoneSpread with a scheduler that does not look at spread constraints.
func againstNobody(name string) comparison {
	c := against(name, large, zoneSpread, 0.90, 0)
	c.Baseline.Variant = unspread
	return c
}

// nobodyAgainstCeiling compares pods with constraints that nobody keeps with pods that have none.
func nobodyAgainstCeiling(name string) comparison {
	return comparison{Ours: series{Case: name, Workload: large, Variant: unspread}, Baseline: ceiling}
}

// gangs compares gangs of the PodGroup API with another case under the in-tree plugins.
func gangs(workload, baseline string, goal float64) comparison {
	return comparison{
		Ours:     series{Case: "Gangs", Workload: workload, Variant: permitGate},
		Baseline: series{Case: baseline, Workload: workload, Variant: inTree},
		Goal:     goal,
	}
}

// inARack compares gangs with a required topology with those of the scheduler itself.
func inARack(workload string) comparison {
	return comparison{
		Ours:     series{Case: "GangsInARack", Workload: workload, Variant: permitGate},
		Baseline: series{Case: "NativeGangsInARack", Workload: workload, Variant: inTree},
		Goal:     1.00,
	}
}

// withCPU adds a goal for the scheduler's CPU time to a comparison.
func withCPU(c comparison, goal float64) comparison {
	c.CPUGoal = goal
	return c
}

// unrehearsed shows what it costs to rehearse a bind of each gang, which has no goal.
func unrehearsed(workload string) comparison {
	return comparison{
		Ours:     series{Case: "Gangs", Workload: workload, Variant: neverGate},
		Baseline: series{Case: "Gangs", Workload: workload, Variant: permitGate},
	}
}

// selection says what of the plan to measure or to show.
type selection struct {
	cases    []string // of ours; empty for all
	workload string   // instead of the plan's; empty for the plan's
}

// groups returns the selected part of the plan. Two rows that another workload makes equal are one.
func (sel selection) groups() []group {
	var selected []group
	for _, g := range groups {
		var rows []comparison
		for _, c := range g.Comparisons {
			if len(sel.cases) > 0 && !slices.Contains(sel.cases, c.Ours.Case) {
				continue
			}
			if sel.workload != "" {
				c.Ours.Workload, c.Baseline.Workload = sel.workload, sel.workload
			}
			if !slices.ContainsFunc(rows, func(r comparison) bool { return r.Ours == c.Ours && r.Baseline == c.Baseline }) {
				rows = append(rows, c)
			}
		}
		if len(rows) > 0 {
			selected = append(selected, group{Title: g.Title, Comparisons: rows})
		}
	}
	return selected
}

// ceiling returns the series that the column of the ceiling refers to.
func (sel selection) ceiling() series {
	s := ceiling
	if sel.workload != "" {
		s.Workload = sel.workload
	}
	return s
}

// round returns what is measured in one round, each series once, the two of a comparison next to each
// other. Which of the two is first changes from round to round.
func (sel selection) round(number int) []series {
	var all []series
	for _, g := range sel.groups() {
		for _, c := range g.Comparisons {
			pair := []series{c.Baseline, c.Ours}
			if number%2 == 1 {
				slices.Reverse(pair)
			}
			for _, s := range pair {
				if !slices.Contains(all, s) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// sets returns what is measured in turns with one another: for each case of ours all that it is compared with. What else
// is in a set, as the ceiling, is there for all cases at the same time as they are.
func (sel selection) sets() [][]series {
	var sets [][]series
	byName := map[string]int{}
	possible := turnCases()
	for _, g := range sel.groups() {
		for _, c := range g.Comparisons {
			if !slices.Contains(possible, c.Ours.Case) {
				continue
			}
			name := c.Ours.Case + "/" + c.Ours.Workload
			i, ok := byName[name]
			if !ok {
				i = len(sets)
				byName[name] = i
				sets = append(sets, nil)
			}
			members := []series{c.Baseline, c.Ours}
			if c.CeilingGoal > 0 {
				members = append(members, sel.ceiling())
			}
			for _, s := range members {
				if !slices.Contains(sets[i], s) {
					sets[i] = append(sets[i], s)
				}
			}
		}
	}
	return sets
}

// caseNames returns the names of the cases that can be selected, in the order of the tables.
func caseNames() []string {
	var names []string
	for _, g := range groups {
		for _, c := range g.Comparisons {
			if !slices.Contains(names, c.Ours.Case) {
				names = append(names, c.Ours.Case)
			}
		}
	}
	return names
}

// roundsIn returns how many rounds there are already in results, so that who is first changes also from one call of the
// program to the next.
func (sel selection) roundsIn(results []result) int {
	first := sel.round(0)[0]
	rounds := 0
	for i := range results {
		if results[i].series == first {
			rounds++
		}
	}
	return rounds
}
