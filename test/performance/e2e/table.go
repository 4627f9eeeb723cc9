package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// writeTables writes the selected tables over all results, in Markdown.
func writeTables(w io.Writer, results []result, sel selection) {
	bySeries := map[series][]result{}
	for _, r := range results {
		bySeries[r.series] = append(bySeries[r.series], r)
	}
	shown := map[series]bool{}
	for _, g := range sel.groups() {
		writeGroup(w, g, sel.ceiling(), bySeries, shown)
	}
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool { return !shown[r.series] })
	if len(results) == 0 {
		fmt.Fprintln(w, "no results to compare yet")
		return
	}
	fmt.Fprintf(w, "%s\n", describe(results))
}

// writeGroup writes one table, if there is anything to compare, and notes the series in it.
func writeGroup(w io.Writer, g group, ceiling series, bySeries map[series][]result, shown map[series]bool) {
	var rows []string
	for _, c := range g.Comparisons {
		if len(bySeries[c.Ours]) == 0 || len(bySeries[c.Baseline]) == 0 {
			continue
		}
		rows = append(rows, c.row(bySeries, ceiling))
		shown[c.Ours], shown[c.Baseline] = true, true
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "%s: pods/s, median (least-most)\n\n", g.Title)
	fmt.Fprintf(w, "| case | baseline | pods/s | ours | pods/s | ours/baseline | ours/%s | CPU ms per pod | the scheduler's | our functions | runs |\n", ceiling.Case)
	fmt.Fprintf(w, "|---|---|---|---|---|---|---|---|---|---|---|\n%s\n\n", strings.Join(rows, "\n"))
	writeMembers(w, g, bySeries)
}

// writeMembers writes the table about the members of gangs, if any were seen.
func writeMembers(w io.Writer, g group, bySeries map[series][]result) {
	if table := memberTable(g.Comparisons, bySeries); len(table) > 0 {
		fmt.Fprintf(w, "The members: from the last one's creation to the last one's bind, and the API server's writes, medians of the runs\n\n")
		fmt.Fprintf(w, "%s\n\n", strings.Join(table, "\n"))
	}
}

// row returns a line of the table.
func (c comparison) row(bySeries map[series][]result, ceiling series) string {
	ours, baseline := bySeries[c.Ours], bySeries[c.Baseline]
	name := c.Ours.Case
	if c.Baseline.Case != name {
		name += " against " + c.Baseline.Case
	}
	name += ", " + c.Ours.Workload
	toCeiling := "-"
	if c.CeilingGoal > 0 && len(bySeries[ceiling]) > 0 {
		toCeiling = judged(median(rates(ours))/median(rates(bySeries[ceiling])), c.CeilingGoal)
	}
	runs := fmt.Sprint(len(ours))
	if len(baseline) != len(ours) {
		runs = fmt.Sprintf("%d and %d", len(baseline), len(ours))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f%% | %s |",
		name, c.Baseline.Variant, spread(rates(baseline)), c.Ours.Variant, spread(rates(ours)),
		judged(median(rates(ours))/median(rates(baseline)), c.Goal), toCeiling,
		change(baseline, ours, func(r result) float64 { return r.CPUMillis }),
		change(baseline, ours, schedulerCPU)+c.judgedCPU(baseline, ours),
		median(collect(ours, packShare)), runs)
}

func schedulerCPU(r result) float64 { return r.SchedulerCPUMillis }

// packShare is the share of the pack's functions in the CPU time of the process, in percent.
func packShare(r result) float64 { return 100 * r.PackCPUMillis / r.CPUMillis }

// judgedCPU prints whether the scheduler's CPU time reaches its goal, nothing when there is none.
func (c comparison) judgedCPU(baseline, ours []result) string {
	switch {
	case c.CPUGoal <= 0:
		return ""
	case median(collect(ours, schedulerCPU)) > c.CPUGoal*median(collect(baseline, schedulerCPU)):
		return fmt.Sprintf(" above (%.2f)", c.CPUGoal)
	}
	return fmt.Sprintf(" ok (%.2f)", c.CPUGoal)
}

// judged prints a ratio and whether it reaches its goal, if it has one.
func judged(ratio, goal float64) string {
	if goal <= 0 {
		return fmt.Sprintf("%.2f", ratio)
	}
	word := "ok"
	if ratio < goal {
		word = "below"
	}
	return fmt.Sprintf("%.2f %s (%.2f)", ratio, word, goal)
}

// spread prints a median with the range of the values.
func spread(values []float64) string {
	return fmt.Sprintf("%.0f (%.0f-%.0f)", median(values), slices.Min(values), slices.Max(values))
}

func rates(results []result) []float64 {
	return collect(results, func(r result) float64 { return r.PodsPerSecond })
}

// change prints the median of a value in the baseline, that in ours, and their ratio.
func change(baseline, ours []result, value func(result) float64) string {
	from, to := median(collect(baseline, value)), median(collect(ours, value))
	return fmt.Sprintf("%.2f, %.2f: %.2f", from, to, to/from)
}

func collect(results []result, value func(result) float64) []float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = value(r)
	}
	return values
}

// median returns the middle of at least one value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// describe says on which machine, in which state, the results were taken.
func describe(results []result) string {
	var commits []string
	for _, r := range results {
		if !slices.Contains(commits, r.Commit) {
			commits = append(commits, r.Commit)
		}
	}
	loads := collect(results, func(r result) float64 { return r.Machine.Load })
	others := collect(results, func(r result) float64 { return 100 * r.Machine.Others })
	return fmt.Sprintf("%d runs from %s to %s at %s, on %d cores; load average before a run %.1f (%.1f-%.1f), "+
		"share of the cores that other processes took during it %s %%.",
		len(results), results[0].Time.Format("2006-01-02 15:04"), results[len(results)-1].Time.Format("15:04"),
		strings.Join(commits, ", "), results[0].Machine.Cores,
		median(loads), slices.Min(loads), slices.Max(loads), spread(others))
}
