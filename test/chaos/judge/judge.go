// Package judge says of a recorded run whether it kept what the design promises. Each judge is a function of the record
// alone.
//
// A scheduler can only keep to what it knows. What the API server has stored reaches it later, and a scheduler that has
// just taken over does not know what the one before it had in its hands. So the judges leave out what is younger than a
// bound, which each of them names; where it is not clear what a scheduler could know, they take the view that excuses
// it.
package judge

import (
	"fmt"
	"slices"
	"time"

	"zonewise.dev/test/chaos/history"
)

// Known is by when a scheduler knows of a change that another one has made. It is generous, for loaded machines: most
// are known within milliseconds.
const Known = 15 * time.Second

// Verdict is what a judge says.
type Verdict struct {
	Judge string
	// Judged is how many cases it has looked at. None proves nothing.
	Judged int
	Found  []string
}

func (v *Verdict) findf(at history.Moment, format string, args ...any) {
	v.Found = append(v.Found, fmt.Sprintf("%s (revision %d): ", at.Time.Format("15:04:05.000"), at.Revision)+fmt.Sprintf(format, args...))
}

// judges are all of them.
var judges = []struct {
	name  string
	judge func(*history.Index, *Verdict)
}{
	{"Overcommitted", overcommitted},
	{"BoundTwice", boundTwice},
	{"PartialGangs", partialGangs},
	{"Caps", caps},
	{"MaxSkews", maxSkews},
	{"StaleWrites", staleWrites},
	{"ForeignSlots", foreignSlots},
	{"Evictions", evictions},
	{"RepeatedWrites", repeatedWrites},
	{"Unbound", unbound},
	{"Leftovers", leftovers},
}

// All has every judge look at a record.
func All(r *history.Record) []Verdict {
	x := history.NewIndex(r)
	var out []Verdict
	for _, j := range judges {
		v := Verdict{Judge: j.name}
		j.judge(x, &v)
		out = append(out, v)
	}
	return out
}

// Failed reports whether a judge has found something.
func Failed(verdicts []Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return len(v.Found) > 0 })
}
