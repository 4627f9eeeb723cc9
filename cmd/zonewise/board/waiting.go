package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/status"
)

// addGangs shows the gangs, and what the scheduler says of those that wait.
func (b *builder) addGangs(all []status.Gang) {
	var whole []Row
	var waiting []Card
	for i := range all {
		s := &all[i]
		name, state, zones := s.Title(), stateBadge(s.State), status.ZonesText(s.Zones)
		if s.State == status.OK {
			state.Text = "Whole"
			whole = append(whole, Row{Name: name, Figures: []Badge{state, {Text: fmt.Sprint(s.Bound)}, {Text: fmt.Sprint(s.MinMember)}, {Text: zones}}})
			continue
		}
		card := Card{
			Name: name, State: state, Figures: fmt.Sprintf("%d of %d bound, %d exist", s.Bound, s.MinMember, s.Members),
			Needs: s.Message, Command: b.explainCommand(s.Argument(), s.Namespace),
		}
		if missing := b.Gang(name).Missing(); missing > 0 {
			card.Needs = fmt.Sprintf("%d more to be bound at once. %s", missing, s.Message)
		}
		card.Needs = clipText(card.Needs)
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
	g.setRows(whole)
	slices.SortStableFunc(waiting, func(a, b Card) int { return compareTones(a.State, b.State) })
	var hidden int
	g.Cards, hidden = firstRows(waiting, mostWaiting)
	g.All, g.Hidden = len(all), g.Hidden+hidden
}

// explainCommand is the command that says why a pod or a gang waits.
func (b *builder) explainCommand(subject, namespace string) string {
	return fmt.Sprintf("%s explain %s -n %s", cmp.Or(b.opts.Command, "zonewise"), subject, namespace)
}

// addWaiting shows the waiting pods that are in no gang, and what the scheduler has said of the oldest of each
// workload.
func (b *builder) addWaiting() {
	groups := map[string][]*census.Pod{}
	pods := 0
	for _, p := range b.PodsIn(b.opts.Namespace) {
		if p.Waits() && b.GangOf(p.Pod) == "" {
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
	names, w.Hidden = firstRows(names, mostWaiting)
	for _, name := range names {
		oldest := slices.MinFunc(groups[name], func(x, y *census.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
		card := Card{
			Name: name, Figures: fmt.Sprintf("%d waiting", len(groups[name])),
			Said: clipText(census.Refusal(oldest.Pod).Message), Command: b.explainCommand("pod/"+oldest.Name, oldest.Namespace),
		}
		if !oldest.CreationTimestamp.IsZero() {
			card.Figures += ", the oldest for " + duration.HumanDuration(b.Now.Sub(oldest.CreationTimestamp.Time))
		}
		w.Cards = append(w.Cards, card)
	}
}
