package board

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/plugins/zonespread/policy"
)

// mostWork limits how many nodes and pods counting looks at: a part of a second of one core.
const mostWork = 3_000_000

// cells makes one cell for each column, and lists the zones that have no column.
func (b *builder) cells(of map[string]Share) (cells []Share, others string) {
	seen := map[string]bool{}
	for _, zone := range b.page.Columns {
		share, ok := of[zone]
		share.None = !ok
		cells = append(cells, share)
		seen[zone] = true
	}
	var rest []string
	for zone, share := range of {
		if !seen[zone] {
			rest = append(rest, strings.TrimSpace(zone+" "+share.Text+" "+share.State))
		}
	}
	slices.Sort(rest)
	kept, hidden := keep(rest, mostColumns)
	others = strings.Join(kept, ", ")
	if hidden > 0 {
		others += fmt.Sprintf(" and %d more", hidden)
	}
	return cells, others
}

func (b *builder) policies(all []status.Policy) {
	caps := map[string]func(zone string, replicas int64) (int64, bool){}
	for _, object := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](b.Snapshot) {
		if compiled, errs := policy.Compile(object); len(errs) == 0 {
			caps[object.Namespace+"/"+object.Name] = compiled.Cap
		}
	}
	rows := make([]Policy, 0, len(all))
	for i := range all {
		s := &all[i]
		row := Policy{
			Name: s.Namespace + "/" + s.Name, State: badge(s.State), Message: clip(s.Message),
			Pods: fmt.Sprintf("%d of %d", s.Pods, s.Replicas), Skew: skew(s.Skew, s.MaxSkew),
		}
		shares := map[string]Share{}
		for _, z := range s.Zones {
			share := Share{Text: fmt.Sprintf("%d/%d", z.Pods, z.Desired), Tone: Good, Percent: percent(z.Pods, max(z.Desired, z.Pods))}
			if z.State != "" && z.State != string(v1alpha1.ZoneAvailable) {
				share.State, share.Tone = z.State, Mild
			}
			if z.Pods < z.Desired {
				share.Tone = Mild
			}
			if limit, ok := capOf(caps[row.Name], z.Name, s.Replicas); ok {
				share.Cap, share.Percent = fmt.Sprintf("cap %d", limit), percent(z.Pods, limit)
				if z.Pods >= limit {
					share.Cap += ", reached"
				}
			}
			shares[status.Name(z.Name)] = share
		}
		row.Cells, row.Others = b.cells(shares)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b Policy) int { return worst(a.State, b.State) })
	b.page.Policies.All = len(rows)
	b.page.Policies.Rows, b.page.Policies.Hidden = keep(rows, mostRows)
}

func capOf(limit func(string, int64) (int64, bool), zone string, replicas int64) (int64, bool) {
	if limit == nil {
		return 0, false
	}
	return limit(zone, replicas)
}

func skew(n int64, most int32) Badge {
	b := Badge{Text: fmt.Sprintf("%d of %d", n, most), Tone: Good}
	if n > int64(most) {
		b.Tone = Bad
	}
	return b
}

// workloads shows those with topologySpreadConstraints over zones, the most uneven first.
func (b *builder) workloads() {
	spreads, left := b.Spreads(b.opts.Namespace, mostWork)
	if left > 0 {
		b.page.note(fmt.Sprintf("the skew of %s is not measured: there are too many kinds of them", countOf(left, "workload")))
	}
	slices.SortStableFunc(spreads, func(x, y census.Spread) int {
		return cmp.Or(cmp.Compare(over(y), over(x)), cmp.Compare(y.Skew(), x.Skew()), cmp.Compare(y.Pods, x.Pods))
	})
	bySkew := map[int]int{}
	top := 0
	rows := make([]Workload, 0, min(len(spreads), mostRows))
	for i := range spreads {
		s := &spreads[i]
		bySkew[s.Skew()]++
		top = max(top, s.Skew())
		if len(rows) == mostRows {
			continue
		}
		row := Workload{Name: s.Workload, Hard: s.Hard, Skew: skew(int64(s.Skew()), s.MaxSkew)}
		if row.Skew.Tone == Bad && !s.Hard {
			row.Skew.Tone = Mild // only a preference
		}
		shares := map[string]Share{}
		for zone, n := range s.Zones {
			shares[status.Name(zone)] = Share{Text: fmt.Sprint(n), Percent: percent(int64(n), int64(s.Most)), Tone: Good}
		}
		row.Cells, _ = b.cells(shares)
		rows = append(rows, row)
	}
	var words []string
	for n := 0; n <= top && len(words) < 6; n++ {
		if bySkew[n] > 0 {
			words = append(words, fmt.Sprintf("%d with skew %d", bySkew[n], n))
		}
	}
	b.page.Workloads = Workloads{Table: Table{All: len(spreads), Hidden: len(spreads) - len(rows)}, Rows: rows, BySkew: strings.Join(words, ", ")}
}

// over returns by how much a constraint is exceeded.
func over(s census.Spread) int {
	if !s.Hard {
		return 0
	}
	return max(0, s.Skew()-int(s.MaxSkew))
}

func (b *builder) reservations(all []status.Reservation) {
	rows := make([]Reservation, 0, len(all))
	for i := range all {
		s := &all[i]
		row := Reservation{
			Name: s.Name, Mode: s.Mode, State: badge(s.State), Used: s.Used, Held: s.Held, Desired: s.Desired, Message: clip(s.Message),
		}
		shares := map[string]Share{}
		for _, z := range s.Zones {
			share := Share{Text: z.Amounts.Shares(z.Used, z.Held, z.Desired), Percent: percent(z.Held, z.Desired), Tone: Good}
			if len(z.Amounts) > 0 {
				share.Percent = z.Amounts.Percent()
				if missing := z.Amounts.Missing(); missing != "" {
					share.Tone, share.State = Mild, missing+" missing"
				}
			} else if z.Held < z.Desired {
				share.Tone, share.State = Mild, show.Plural(int(z.Desired-z.Held), "slot")+" missing"
			}
			shares[status.Name(z.Name)] = share
		}
		row.Cells, _ = b.cells(shares)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b Reservation) int { return worst(a.State, b.State) })
	b.page.Reservations.All = len(rows)
	b.page.Reservations.Rows, b.page.Reservations.Hidden = keep(rows, mostRows)
}
