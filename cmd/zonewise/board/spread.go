package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/plugins/zonespread/policy"
)

// zonesRow makes a row with one cell for each column, and lists the zones that have no column.
func (b *builder) zonesRow(name, message string, of map[string]Share, figures ...Badge) Row {
	row := Row{Name: name, Message: clipText(message), Figures: figures}
	for _, zone := range b.page.Columns {
		share, ok := of[zone]
		share.None = !ok
		row.Cells = append(row.Cells, share)
	}
	var rest []string
	for _, zone := range slices.Sorted(maps.Keys(of)) {
		if !slices.Contains(b.page.Columns, zone) {
			rest = append(rest, strings.TrimSpace(zone+" "+of[zone].Text+" "+of[zone].State))
		}
	}
	kept, hidden := firstRows(rest, mostColumns)
	row.Others = strings.Join(kept, ", ")
	if hidden > 0 {
		row.Others += fmt.Sprintf(" and %d more", hidden)
	}
	return row
}

// messageOf joins what a state says with what the controller's answers say that are not True.
func messageOf(message string, answers []status.Answer) string {
	return strings.Join(status.Messages(message, answers), "; ")
}

// setRows gives a list the rows of objects, the worst states first, and limits them.
func (l *List) setRows(rows []Row) {
	for i := range rows {
		rows[i].Key = rows[i].Name
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return compareTones(a.Figures[0], b.Figures[0]) })
	l.All, l.Order, l.Elsewhere = len(rows), "the worst", "zonewise status"
	l.Rows, l.Hidden = firstRows(rows, mostRows)
}

func (b *builder) addPolicies(all []status.Policy) {
	caps := map[string]func(zone string, replicas int64) (int64, bool){}
	for _, object := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](b.Snapshot) {
		if compiled, errs := policy.Compile(object); len(errs) == 0 {
			caps[object.Namespace+"/"+object.Name] = compiled.Cap
		}
	}
	rows := make([]Row, 0, len(all))
	for i := range all {
		s := &all[i]
		name := s.Namespace + "/" + s.Name
		shares := map[string]Share{}
		for _, z := range s.Zones {
			share := Share{Text: fmt.Sprintf("%d/%d", z.Pods, z.Desired), Tone: Good, Percent: percent(z.Pods, max(z.Desired, z.Pods))}
			share.State = status.Unavailable(z.State)
			if share.State != "" || z.Pods < z.Desired {
				share.Tone = Mild
			}
			if limitOf := caps[name]; limitOf != nil {
				if limit, ok := limitOf(z.Name, s.Replicas); ok {
					share.Cap, share.Percent = fmt.Sprintf("cap %d", limit), percent(z.Pods, limit)
					if z.Pods >= limit {
						share.Cap += ", reached"
					}
				}
			}
			shares[status.ZoneText(z.Name)] = share
		}
		figures := []Badge{stateBadge(s.State), {Text: fmt.Sprintf("%d of %d", s.Pods, s.Replicas)}, skewBadge(s.Skew, s.MaxSkew, Bad)}
		rows = append(rows, b.zonesRow(name, messageOf(s.Message, s.Answers), shares, figures...))
	}
	b.page.Policies = List{
		Empty: "No ZoneSpreadPolicy.", Heads: append([]string{"Policy", "State", "Pods", "Skew"}, b.page.Columns...),
		Caption: "ZoneSpreadPolicies: pods / desired pods in each zone, and the cap where there is one",
	}
	b.page.Policies.setRows(rows)
}

// skewBadge is a figure, or a badge if it exceeds most.
func skewBadge(n int64, most int32, exceeded Tone) Badge {
	b := Badge{Text: fmt.Sprintf("%d of %d", n, most)}
	if n > int64(most) {
		b.Tone = exceeded
	}
	return b
}

// addWorkloads shows those with topologySpreadConstraints over zones, the most uneven first.
func (b *builder) addWorkloads() {
	spreads := b.Spreads(b.opts.Namespace)
	slices.SortStableFunc(spreads, func(x, y census.Spread) int {
		return cmp.Or(cmp.Compare(excessSkew(y), excessSkew(x)), cmp.Compare(y.Skew(), x.Skew()), cmp.Compare(y.Pods, x.Pods))
	})
	bySkew := map[int]int{}
	l := &b.page.Workloads
	*l = List{
		Empty: "No pod has a topologySpreadConstraint over zones.", All: len(spreads), Order: "the most uneven",
		Heads:   append([]string{"Workload", "Skew", "Rule"}, b.page.Columns...),
		Caption: "topologySpreadConstraints over zones: pods in each zone, the most uneven first",
	}
	for i := range spreads {
		s := &spreads[i]
		bySkew[s.Skew()]++
		if len(l.Rows) == mostRows {
			l.Hidden++
			continue
		}
		rule, exceeded := "should", Mild // only a preference
		if s.Hard {
			rule, exceeded = "must", Bad
		}
		shares := map[string]Share{}
		for zone, n := range s.Zones {
			shares[status.ZoneText(zone)] = Share{Text: fmt.Sprint(n), Percent: percent(int64(n), int64(s.Most)), Tone: Good}
		}
		l.Rows = append(l.Rows, b.zonesRow(s.Workload, "", shares, skewBadge(int64(s.Skew()), s.MaxSkew, exceeded), Badge{Text: rule}))
	}
	var lead []string
	lowest, _ := firstRows(slices.Sorted(maps.Keys(bySkew)), 6)
	for _, n := range lowest {
		lead = append(lead, fmt.Sprintf("%d with skew %d", bySkew[n], n))
	}
	l.Lead = strings.Join(lead, ", ") + "."
}

// excessSkew returns by how much a constraint is exceeded.
func excessSkew(s census.Spread) int {
	if !s.Hard {
		return 0
	}
	return max(0, s.Skew()-int(s.MaxSkew))
}

func (b *builder) addReservations(all []status.Reservation) {
	rows := make([]Row, 0, len(all))
	for i := range all {
		s := &all[i]
		figures := []Badge{stateBadge(s.State), {Text: s.Mode}}
		for _, n := range []int64{s.Used, s.Held, s.Desired} {
			figures = append(figures, Badge{Text: fmt.Sprint(n)})
		}
		shares := map[string]Share{}
		for _, z := range s.Zones {
			held, missing := status.HeldShare(z.SlotCounts)
			share := Share{Text: status.SharesText(z.SlotCounts), Percent: percent(held, 100), Tone: Good}
			if missing != "" {
				share.Tone, share.State = Mild, missing+" missing"
			}
			shares[status.ZoneText(z.Name)] = share
		}
		rows = append(rows, b.zonesRow(s.Name, messageOf(s.Message, s.Answers), shares, figures...))
	}
	b.page.Reservations = List{
		Empty: "No ZoneReservation: no capacity is held.", Caption: "ZoneReservations: slots used / held / desired",
		Heads: append([]string{"Reservation", "State", "Mode", "Used", "Held", "Desired"}, b.page.Columns...),
	}
	b.page.Reservations.setRows(rows)
}

// mostMoves bounds how many moves of a plan are shown.
const mostMoves = 30

// rebalances shows how the moves of ZoneRebalances stand, and those of their plans.
func (b *builder) rebalances(all []status.Rebalance) {
	rows := make([]Row, 0, len(all))
	for i := range all {
		s := &all[i]
		figures := []Badge{stateBadge(s.State), {Text: s.Mode}}
		for _, n := range []int64{s.Excess, s.Planned, s.UnderWay} {
			figures = append(figures, Badge{Text: fmt.Sprint(n)})
		}
		rows = append(rows, Row{Name: s.Name, Message: clipText(s.Message), Figures: figures})
		for _, m := range s.Moves[:min(len(s.Moves), mostMoves)] {
			message := fmt.Sprintf("batch %d: from %s to %s, %s", m.Batch, m.From, strings.Join(m.To, " or "), m.Rules)
			ofMove := make([]Badge, len(figures))
			ofMove[0] = figures[0] // by which rows are sorted
			rows = append(rows, Row{Name: m.Pod, Message: clipText(message), Figures: ofMove})
		}
	}
	b.page.Rebalances = List{
		Empty: "No ZoneRebalance: no moves are planned.", Caption: "ZoneRebalances: pods that are too many in their zones, and moves",
		Heads: []string{"Rebalance", "State", "Mode", "Too many", "Planned", "Under way"},
	}
	b.page.Rebalances.setRows(rows)
}
