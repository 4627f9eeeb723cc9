package board

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
)

// gangs shows the gangs, and why they wait.
func (b *builder) gangs(ctx context.Context, all []status.Gang) error {
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
		// Whether all members fit takes a run of the scheduler, which is left to the command.
		row.Why.Command = b.explain("podgroup/", row.Name)
		gang := b.Gang(row.Name)
		if gang.Missing() == 0 || len(gang.Waiting) == 0 {
			continue
		}
		row.Why.Needs = clip(fmt.Sprintf("%d more to be bound at once. %s", gang.Missing(), row.Why.Needs))
		zones, err := explain.Zones(ctx, b.Census, b.sim, gang.Waiting[0])
		if err != nil {
			return err
		}
		row.Why.Zones = whyZones(zones)
	}
	return nil
}

func (b *builder) explain(kind, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return fmt.Sprintf("%s explain %s%s -n %s", cmp.Or(b.opts.Command, "zonewise"), kind, name, namespace)
}

// waiting shows the waiting pods that are in no gang.
func (b *builder) waiting(ctx context.Context) error {
	type group struct {
		row   WaitingOf
		first *census.Pod
		since time.Time
	}
	groups := map[string]*group{}
	w := &b.page.Waiting
	for _, p := range b.In(b.opts.Namespace) {
		if !p.Waits() || census.GangOf(p.Pod) != "" {
			continue
		}
		w.Pods++
		name := b.Workload(p.Pod)
		g := groups[name]
		if g == nil {
			g = &group{row: WaitingOf{Workload: name}, first: p, since: p.CreationTimestamp.Time}
			groups[name] = g
		}
		g.row.Count++
		if t := p.CreationTimestamp.Time; t.Before(g.since) {
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
		if err := b.why(ctx, g.first, &g.row.Why); err != nil {
			return err
		}
		w.Rows = append(w.Rows, g.row)
	}
	return nil
}

// saidOf returns what the scheduler wrote into a pod's condition.
func saidOf(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// mostTried is the largest number of nodes at which changes are tried for each waiting pod.
const mostTried = 300

// why has the scheduler say why a pod waits.
func (b *builder) why(ctx context.Context, p *census.Pod, y *Why) error {
	y.Said = clip(saidOf(p.Pod))
	if len(b.Nodes) > mostTried {
		y.Command = b.explain("pod/", p.Key())
		zones, err := explain.Zones(ctx, b.Census, b.sim, p)
		y.Zones = whyZones(zones)
		return err
	}
	report, err := explain.Explain(ctx, b.Census, b.sim, p, nil)
	if err != nil {
		return err
	}
	y.Zones = whyZones(report.Zone)
	next, more := keep(report.Next, mostNext)
	for _, step := range next {
		y.Next = append(y.Next, clip(step))
	}
	if more > 0 {
		y.Next = append(y.Next, fmt.Sprintf("and %d more", more))
	}
	return nil
}

// whyZones shortens an answer to fit on a page.
func whyZones(answer []explain.Zone) []WhyZone {
	var out []WhyZone
	zones, _ := keep(answer, mostColumns)
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
		out = append(out, row)
	}
	return out
}
