package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/chaos/judge"
)

// mostFound is how many findings of a judge a summary shows.
const mostFound = 10

// Summarize prints what a record shows.
func Summarize(w io.Writer, r *history.Record, verdicts []judge.Verdict) {
	x := history.NewIndex(r)
	faults, binds := map[string]int{}, 0
	for _, f := range r.Faults {
		faults[f.Kind]++
	}
	for _, l := range x.Lives {
		if l.Bound != history.Never {
			binds++
		}
	}
	fmt.Fprintf(w, "seed %d: %d pods, %d binds, %d changes, %d faults:", r.Seed, len(x.Lives), binds, len(r.Changes), len(r.Faults))
	for i, kind := range slices.Sorted(maps.Keys(faults)) {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, " %s %d", kind, faults[kind])
	}
	fmt.Fprintln(w)
	if r.Settled.IsZero() {
		fmt.Fprintln(w, "not all that fits was bound")
	} else {
		fmt.Fprintf(w, "all that fits was bound %s after the last fault, %s after the last change\n",
			r.Settled.Sub(lastFault(r)).Round(100*time.Millisecond), r.Settled.Sub(r.Quiet).Round(100*time.Millisecond))
	}
	fmt.Fprintf(w, "goroutines of the leader: %v before the first pod, %v at the end\n", r.Goroutines[0], r.Goroutines[1])
	backAfter(w, r, x)
	writes(w, r, x)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range verdicts {
		fmt.Fprintf(table, "  %s\t%d judged\t%d found\n", v.Judge, v.Judged, len(v.Found))
	}
	_ = table.Flush()
	for _, v := range verdicts {
		for i, found := range v.Found {
			if i == mostFound {
				fmt.Fprintf(w, "%s: and %d more\n", v.Judge, len(v.Found)-mostFound)
				break
			}
			fmt.Fprintf(w, "%s: %s\n", v.Judge, found)
		}
	}
}

func lastFault(r *history.Record) (last time.Time) {
	for _, f := range r.Faults {
		if f.Ended.After(last) {
			last = f.Ended
		}
	}
	return last
}

// backAfter prints how long it took from the end of each fault of the control plane until a pod was bound that was
// created since: then a scheduler sees the cluster as it is.
func backAfter(w io.Writer, r *history.Record, x *history.Index) {
	for _, f := range r.Faults {
		if f.Kind != apiServerRestarted && f.Kind != etcdKilled {
			continue
		}
		first := history.Never
		for _, l := range x.Lives {
			if l.Created.Time.After(f.Ended) && l.Bound.Revision < first.Revision {
				first = l.Bound
			}
		}
		if first != history.Never {
			fmt.Fprintf(w, "%s for %s: the first pod that was created since was bound after %s\n",
				f.Kind, f.Ended.Sub(f.Began).Round(100*time.Millisecond), first.Time.Sub(f.Ended).Round(100*time.Millisecond))
		}
	}
}

// writes prints what schedulers have written.
func writes(w io.Writer, r *history.Record, x *history.Index) {
	counts := map[string]int{}
	for i := range r.Requests {
		q := &r.Requests[i]
		what := q.Verb + " " + strings.TrimSuffix(q.Resource+"/"+q.Subresource, "/")
		switch {
		case q.DryRun:
			what += ", dry run"
		case !q.Accepted():
			what += ", refused"
		}
		counts[what]++
	}
	objects := map[string]int{
		"pods": len(x.Lives), "podgroups": len(x.Groups), "zonespreadpolicies": len(x.Policies), "zonereservations": len(x.Reservations),
	}
	fmt.Fprintln(w, "requests of schedulers:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, what := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) }) {
		fmt.Fprintf(table, "  %s\t%d", what, counts[what])
		for kind, n := range objects {
			if n > 0 && strings.Contains(what, " "+kind) {
				fmt.Fprintf(table, "\t%.2f for each of %d", float64(counts[what])/float64(n), n)
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
}
