package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// membersFile is where the benchmark leaves what it saw of the members of gangs, in the directory of a measurement.
const membersFile = "members.json"

// members is what a measurement saw of pods that belong together. Pods of no gang are in batches of the same size, so that
// the two can be compared.
type members struct {
	Gangs int `json:"gangs"`
	Pods  int `json:"pods"`
	// WholeP50 and WholeP99 are of the times, in milliseconds, from the moment that the last member of a gang was created
	// until the last one was bound: when a watch of the API server showed the one and the other. Of fewer than a hundred
	// gangs the 99th percentile is the slowest.
	WholeP50 float64 `json:"wholeP50"`
	WholeP99 float64 `json:"wholeP99"`
	// Writes is how many requests to write the API server answered, per pod and by what they were about: its own
	// apiserver_request_total, without the creation of pods and PodGroups. Refused ones count, they cost as much.
	Writes map[string]float64 `json:"writes"`
}

// What writes are about.
const (
	writeBinding   = "binding"
	writeRehearsal = "rehearsal" // a binding with dryRun
	writePodStatus = "pod status"
	writePodGroup  = "PodGroup"
	writeEvent     = "event"
	writeOther     = "other"
)

// writeKinds lists them in the order of the table.
var writeKinds = []string{writeBinding, writeRehearsal, writePodStatus, writePodGroup, writeEvent, writeOther}

// writeKind classifies a request by the labels of apiserver_request_total; it is empty for one that only reads, and for
// those that have nothing to do with scheduling pods.
func writeKind(labels map[string]string) string {
	verb, resource, subresource := labels["verb"], labels["resource"], labels["subresource"]
	if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb) {
		return ""
	}
	switch {
	case resource == "events":
		return writeEvent
	case resource != "pods" && resource != "podgroups", subresource == "" && verb == "POST":
		return ""
	case resource == "podgroups":
		return writePodGroup
	case subresource == "binding" && labels["dry_run"] != "":
		return writeRehearsal
	case subresource == "binding":
		return writeBinding
	case subresource == "status":
		return writePodStatus
	}
	return writeOther
}

// gang is what was seen of one.
type gang struct {
	created, bound         int
	lastCreated, lastBound time.Time
}

// summary sums up gangs and the requests that were written meanwhile. It fails when a member was not seen bound.
func summary(gangs map[string]*gang, writes map[string]float64) (members, error) {
	m := members{Gangs: len(gangs), Writes: map[string]float64{}}
	whole := make([]float64, 0, len(gangs))
	for name, g := range gangs {
		if g.bound != g.created {
			return m, fmt.Errorf("%d of %d members of %s were seen bound", g.bound, g.created, name)
		}
		m.Pods += g.created
		whole = append(whole, float64(g.lastBound.Sub(g.lastCreated))/float64(time.Millisecond))
	}
	if m.Pods == 0 {
		return m, errors.New("no member of a gang was seen")
	}
	m.WholeP50, m.WholeP99 = percentile(whole, 50), percentile(whole, 99)
	for kind, n := range writes {
		m.Writes[kind] = n / float64(m.Pods)
	}
	return m, nil
}

// percentile returns the smallest of at least one value that p percent of them do not exceed.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// readMembers returns what is in a directory, nil when the case had no gangs.
func readMembers(dir string) (*members, error) {
	path := filepath.Join(dir, membersFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // as most cases
	}
	if err != nil {
		return nil, err
	}
	m := &members{}
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// memberRow returns a line of the table about the members of gangs.
func memberRow(s series, results []result) string {
	of := func(value func(m *members) float64) []float64 {
		return collect(results, func(r result) float64 { return value(r.Members) })
	}
	seconds := func(value func(m *members) float64) string {
		return fmt.Sprintf("%.2f s", median(of(value))/1000)
	}
	cells := []string{
		s.Workload, s.Case + ", " + s.Variant, spread(rates(results)),
		seconds(func(m *members) float64 { return m.WholeP50 }), seconds(func(m *members) float64 { return m.WholeP99 }),
		fmt.Sprintf("%.2f", median(of(func(m *members) float64 {
			total := 0.0
			for _, n := range m.Writes {
				total += n
			}
			return total
		}))),
	}
	for _, kind := range writeKinds {
		cells = append(cells, fmt.Sprintf("%.2f", median(of(func(m *members) float64 { return m.Writes[kind] }))))
	}
	cells = append(cells, fmt.Sprintf("%.2f", median(collect(results, schedulerCPU))), fmt.Sprint(len(results)))
	return "| " + strings.Join(cells, " | ") + " |"
}

// memberTable returns the lines of the table about the members of gangs in these comparisons; none when nothing was seen.
func memberTable(comparisons []comparison, bySeries map[series][]result) []string {
	var rows []string
	seen := map[series]bool{}
	for _, c := range comparisons {
		for _, s := range []series{c.Baseline, c.Ours} {
			results := slices.DeleteFunc(slices.Clone(bySeries[s]), func(r result) bool { return r.Members == nil })
			if seen[s] || len(results) == 0 {
				continue
			}
			seen[s] = true
			rows = append(rows, memberRow(s, results))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	header := []string{"gangs", "case", "pods/s", "whole after, p50", "p99", "writes per member"}
	header = append(header, writeKinds...)
	header = append(header, "scheduler's CPU ms", "runs")
	return append([]string{"| " + strings.Join(header, " | ") + " |", strings.Repeat("|---", len(header)) + "|"}, rows...)
}
