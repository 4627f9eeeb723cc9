package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/cmd/zonewise/world"
)

// mostWork bounds what explanations look at, in nodes and pods: a second or two of one core.
const mostWork = 3_000_000

// spend tells whether there is work left for something that costs so much. The first is always paid.
func (b *builder) spend(cost int) bool {
	if b.work < cost && b.work < mostWork {
		return false
	}
	b.work -= cost
	return true
}

// gangs shows the gangs, those that wait with the reason.
func (b *builder) gangs(all []status.Gang) {
	g := &b.page.Gangs
	g.All = len(all)
	var whole, waiting []Gang
	for i := range all {
		s := &all[i]
		row := Gang{
			Name: s.Namespace + "/" + s.Name, State: badge(s.State), Bound: s.Bound, MinMember: s.MinMember, Members: s.Members,
			Percent: percent(int64(s.Bound), int64(s.MinMember)), Why: Why{Needs: clip(s.Message)},
		}
		var zones []string
		for _, zone := range slices.Sorted(maps.Keys(s.Zones)) {
			zones = append(zones, fmt.Sprintf("%s %d", status.Name(zone), s.Zones[zone]))
		}
		row.Zones = strings.Join(zones, ", ")
		if s.State == status.OK {
			g.Whole++
			row.State.Text = "Whole"
			whole = append(whole, row)
		} else {
			waiting = append(waiting, row)
		}
	}
	slices.SortStableFunc(waiting, func(a, b Gang) int { return worst(a.State, b.State) })
	var hidden [2]int
	g.Waiting, hidden[0] = keep(waiting, mostWaiting)
	g.Rows, hidden[1] = keep(whole, mostRows)
	g.Hidden = hidden[0] + hidden[1]
	for i := range g.Waiting {
		row := &g.Waiting[i]
		namespace, _, _ := strings.Cut(row.Name, "/")
		if !b.spend(len(b.In(namespace)) + len(b.Nodes)*(row.Members-row.Bound+1)) {
			row.Why.Command = b.explain("podgroup/", row.Name)
			continue
		}
		if report := explain.Gang(b.World, row.Name, nil); report != nil {
			row.Why = whyOf(report)
			if n := report.Gang.Missing; n > 0 {
				row.Why.Needs = fmt.Sprintf("%s to be bound at once; of those that wait %d would fit now.", needs(n), report.Gang.Fit)
			}
		}
	}
}

func needs(n int) string {
	if n == 1 {
		return "1 more has"
	}
	return fmt.Sprintf("%d more have", n)
}

func (b *builder) explain(kind, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return fmt.Sprintf("%s explain %s%s -n %s", cmp.Or(b.opts.Command, "zonewise"), kind, name, namespace)
}

// waiting shows the pods that wait and are in no gang.
func (b *builder) waiting() {
	type group struct {
		row   WaitingOf
		first *world.Pod
		since time.Time
	}
	groups := map[string]*group{}
	w := &b.page.Waiting
	for _, p := range b.In(b.opts.Namespace) {
		if p.Node != nil || p.Object.Spec.NodeName != "" || p.Gang() != "" {
			continue
		}
		w.Pods++
		name := b.Workload(p.Object)
		g := groups[name]
		if g == nil {
			g = &group{row: WaitingOf{Workload: name}, first: p, since: p.Object.CreationTimestamp.Time}
			groups[name] = g
		}
		g.row.Count++
		if t := p.Object.CreationTimestamp.Time; t.Before(g.since) {
			g.since, g.first = t, p
		}
	}
	order := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.row.Count, a.row.Count), strings.Compare(a.row.Workload, b.row.Workload))
	})
	w.All = len(order)
	order, w.Hidden = keep(order, mostWaiting)
	for _, g := range order {
		if !g.since.IsZero() {
			g.row.Oldest = age(b.Now.Sub(g.since))
		}
		pod := g.first.Object
		if !b.spend(2 * len(b.Nodes)) {
			g.row.Why.Said = clip(saidOf(pod))
			g.row.Why.Command = b.explain("pod/", g.first.Key())
		} else {
			g.row.Why = whyOf(explain.Explain(b.World, g.first, nil))
		}
		w.Rows = append(w.Rows, g.row)
	}
}

// saidOf is what the scheduler wrote on a pod.
func saidOf(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// whyOf shortens an explanation to what a page has room for.
func whyOf(r *explain.Report) Why {
	var y Why
	if len(r.Said) > 0 {
		y.Said = clip(r.Said[0].Words)
	}
	next, more := keep(r.Next, mostNext)
	for _, step := range next {
		y.Next = append(y.Next, clip(step))
	}
	if more > 0 {
		y.Next = append(y.Next, fmt.Sprintf("and %d more", more))
	}
	zones, _ := keep(r.Zone, mostColumns)
	for i := range zones {
		z := &zones[i]
		row := WhyZone{Zone: status.Name(z.Zone), Fit: fmt.Sprintf("%s of %s", number(z.Fit), nodeCount(z.Nodes))}
		obstacles, more := keep(z.Obstacles, mostObstacles)
		for _, o := range obstacles {
			row.Obstacles = append(row.Obstacles, clip(fmt.Sprintf("%s: %s (%s)", nodeCount(o.Nodes), o.Words, o.Plugin)))
		}
		if more > 0 {
			row.Obstacles = append(row.Obstacles, "and "+show.Plural(more, "other obstacle"))
		}
		y.Zones = append(y.Zones, row)
	}
	return y
}
