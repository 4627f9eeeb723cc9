package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// turnKey names a turn: what has the same one was measured within seconds.
type turnKey struct {
	set  time.Time
	turn int
}

// writeTurns writes the selected tables over all results of turns, in Markdown. A ratio is the median of the ratios of single
// turns, each of two series that took the same turn; beside it is that of all turns together.
func writeTurns(w io.Writer, results []result, sel selection) {
	byTurn := map[series]map[turnKey]result{}
	sums := map[series][]result{}
	for _, r := range results {
		if r.Turn == 0 {
			sums[r.series] = append(sums[r.series], r)
			continue
		}
		if byTurn[r.series] == nil {
			byTurn[r.series] = map[turnKey]result{}
		}
		byTurn[r.series][turnKey{r.Set, r.Turn}] = r
	}
	used := map[turnKey]bool{}
	for _, g := range sel.groups() {
		var rows []string
		for _, c := range g.Comparisons {
			if row := c.turnRow(byTurn, sel.ceiling(), used); row != "" {
				rows = append(rows, row)
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(w, "%s, in turns: median (least-most)\n\n", g.Title)
			fmt.Fprintf(w, "| case | baseline | pods/s | ours | pods/s | ours/baseline | ours/%s | CPU ms per pod, ours/baseline | the scheduler's | our functions | turns |\n", ceiling.Case)
			fmt.Fprintf(w, "|---|---|---|---|---|---|---|---|---|---|---|\n%s\n\n", strings.Join(rows, "\n"))
			writeMembers(w, g, sums)
		}
	}
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool { return !used[turnKey{r.Set, r.Turn}] })
	if len(results) == 0 {
		fmt.Fprintln(w, "no turns to compare yet")
		return
	}
	fmt.Fprintf(w, "%s\n", describe(results))
}

// turnRow returns a line of the table, nothing when the two did not take the same turns, and notes the turns in it.
func (c comparison) turnRow(byTurn map[series]map[turnKey]result, ceiling series, used map[turnKey]bool) string {
	ours, baseline := pairs(byTurn, c.Ours, c.Baseline)
	if len(ours) == 0 {
		return ""
	}
	for _, r := range ours {
		used[turnKey{r.Set, r.Turn}] = true
	}
	toCeiling := "-"
	if c.CeilingGoal > 0 {
		if ours, highest := pairs(byTurn, c.Ours, ceiling); len(ours) > 0 {
			toCeiling = ratio(ours, highest, rate, c.CeilingGoal) + together(ours, highest)
		}
	}
	name := c.Ours.Case
	if c.Baseline.Case != name {
		name += " against " + c.Baseline.Case
	}
	schedulers := ratio(ours, baseline, schedulerCPU, 0)
	return fmt.Sprintf("| %s, %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f%% | %d |",
		name, c.Ours.Workload, c.Baseline.Variant, spread(rates(baseline)), c.Ours.Variant, spread(rates(ours)),
		ratio(ours, baseline, rate, c.Goal)+together(ours, baseline), toCeiling,
		ratio(ours, baseline, func(r result) float64 { return r.CPUMillis }, 0), schedulers+c.judgedCPU(baseline, ours),
		median(collect(ours, packShare)), len(ours))
}

// together prints the ratio of the rates over all turns as if they were one: a slow turn counts by the time that it took.
func together(ours, baseline []result) string {
	total := func(results []result) (seconds float64) {
		for _, r := range results {
			seconds += r.Seconds
		}
		return seconds
	}
	// Each turn has the same number of pods.
	return fmt.Sprintf(", together %.2f", total(baseline)/total(ours))
}

func rate(r result) float64 { return r.PodsPerSecond }

// pairs returns the results of two series in the turns that both of them took, in order.
func pairs(byTurn map[series]map[turnKey]result, a, b series) (ofA, ofB []result) {
	var keys []turnKey
	for key := range byTurn[a] {
		if _, ok := byTurn[b][key]; ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y turnKey) int {
		if order := x.set.Compare(y.set); order != 0 {
			return order
		}
		return x.turn - y.turn
	})
	for _, key := range keys {
		ofA, ofB = append(ofA, byTurn[a][key]), append(ofB, byTurn[b][key])
	}
	return ofA, ofB
}

// ratio prints the median of a value's ratios, turn by turn, their range, and whether the goal is reached, if there is one.
func ratio(ours, baseline []result, value func(result) float64, goal float64) string {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = value(ours[i]) / value(baseline[i])
	}
	return fmt.Sprintf("%s [%.2f-%.2f]", judged(median(ratios), goal), slices.Min(ratios), slices.Max(ratios))
}
