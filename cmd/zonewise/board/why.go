package board

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/status"
)

// gangs shows the gangs, and why they wait.
func (b *builder) gangs(ctx context.Context, all []status.Gang) error {
	var whole []Row
	var waiting []Card
	for i := range all {
		s := &all[i]
		name, state, zones := s.Namespace+"/"+s.Name, badge(s.State), status.Zones(s.Zones)
		if s.State == status.OK {
			state.Text = "Whole"
			whole = append(whole, Row{Name: name, Figures: []Badge{state, {Text: fmt.Sprint(s.Bound)}, {Text: fmt.Sprint(s.MinMember)}, {Text: zones}}})
			continue
		}
		card := Card{Name: name, State: state, Needs: clip(s.Message), Figures: fmt.Sprintf("%d of %d bound, %d exist", s.Bound, s.MinMember, s.Members)}
		if zones != "" {
			card.Figures += "; " + zones
		}
		waiting = append(waiting, card)
	}
	g := &b.page.Gangs
	*g = List{
		Empty: "No PodGroup, and no pod that names one.", Lead: fmt.Sprintf("%d of %d whole.", len(whole), len(all)),
		Caption: "Gangs that are whole", Heads: []string{"Gang", "State", "Bound", "Needed", "Zones"},
	}
	g.fill(whole)
	slices.SortStableFunc(waiting, func(a, b Card) int { return worst(a.State, b.State) })
	var hidden int
	g.Cards, hidden = keep(waiting, mostWaiting)
	g.All, g.Hidden = len(all), g.Hidden+hidden
	for i := range g.Cards {
		card := &g.Cards[i]
		// Whether all members fit takes a run of the scheduler, which is left to the command.
		card.Command = b.explain("podgroup/", card.Name)
		gang := b.Gang(card.Name)
		if gang.Missing() == 0 || len(gang.Waiting) == 0 {
			continue
		}
		card.Needs = clip(fmt.Sprintf("%d more to be bound at once. %s", gang.Missing(), card.Needs))
		var err error
		if card.Zones, err = b.zones(ctx, gang.Waiting[0]); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) explain(kind, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return fmt.Sprintf("%s explain %s%s -n %s", cmp.Or(b.opts.Command, "zonewise"), kind, name, namespace)
}

// zones asks the scheduler what each zone offers a pod.
func (b *builder) zones(ctx context.Context, p *census.Pod) ([]explain.Zone, error) {
	zones, err := explain.Zones(ctx, b.Census, b.sim, p)
	zones, _ = keep(zones, mostColumns)
	return zones, err
}

// waiting shows the waiting pods that are in no gang.
func (b *builder) waiting(ctx context.Context) error {
	groups := map[string][]*census.Pod{}
	pods := 0
	for _, p := range b.In(b.opts.Namespace) {
		if p.Waits() && census.GangOf(p.Pod) == "" {
			name := b.Workload(p.Pod)
			groups[name] = append(groups[name], p)
			pods++
		}
	}
	w := &b.page.Waiting
	*w = List{Empty: "No pod waits outside of gangs.", Lead: fmt.Sprintf("%d outside of gangs, by workload.", pods), All: len(groups), Order: "the worst", Elsewhere: "zonewise status"}
	names := slices.SortedFunc(maps.Keys(groups), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(groups[y]), len(groups[x])), strings.Compare(x, y))
	})
	names, w.Hidden = keep(names, mostWaiting)
	for _, name := range names {
		oldest := slices.MinFunc(groups[name], func(x, y *census.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
		card := Card{Name: name, Figures: fmt.Sprintf("%d waiting", len(groups[name]))}
		if !oldest.CreationTimestamp.IsZero() {
			card.Figures += ", the oldest for " + duration.HumanDuration(b.Now.Sub(oldest.CreationTimestamp.Time))
		}
		if err := b.why(ctx, oldest, &card); err != nil {
			return err
		}
		w.Cards = append(w.Cards, card)
	}
	return nil
}

// mostTried is the largest number of nodes at which changes are tried for each waiting pod.
const mostTried = 300

// why has the scheduler say why a pod waits.
func (b *builder) why(ctx context.Context, p *census.Pod, card *Card) (err error) {
	card.Said = clip(census.Said(p.Pod).Message)
	if len(b.Nodes) > mostTried {
		card.Command = b.explain("pod/", p.Key())
		card.Zones, err = b.zones(ctx, p)
		return err
	}
	report, err := explain.Explain(ctx, b.Census, b.sim, p, nil)
	if err != nil {
		return err
	}
	card.Zones, _ = keep(report.Zone, mostColumns)
	next, more := keep(report.Next, mostNext)
	for _, step := range next {
		card.Next = append(card.Next, clip(step))
	}
	if more > 0 {
		card.Next = append(card.Next, fmt.Sprintf("and %d more", more))
	}
	return nil
}
