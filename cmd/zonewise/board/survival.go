package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/amount"
)

// addSurvivals shows the certificates, with a card for each loss.
func (b *builder) addSurvivals(all []status.Survival) {
	p := b.page
	for i := range all {
		p.Survivals = append(p.Survivals, survivalOf(&all[i]))
	}
	slices.SortStableFunc(p.Survivals, func(a, b Survival) int { return compareTones(a.State, b.State) })
	p.Survivals, p.SurvivalsHidden = firstRows(p.Survivals, mostSurvivals)
}

func survivalOf(s *status.Survival) Survival {
	out := Survival{Name: s.Name, State: stateBadge(s.State), Message: clipText(messageOf(s.Message, s.Answers))}
	if s.State == status.OK {
		out.State.Text = "Survives"
	}
	if len(s.Losses) > 0 {
		out.Figures = fmt.Sprintf("%s protected, computed %s ago", countOf(int(s.Pods), "pod"), s.Age())
	}
	if s.Holds {
		out.Figures += "; held: " + s.Room()
	}
	missing, more := firstRows(s.Missing, mostNext)
	for i := range missing {
		m := &missing[i]
		out.Missing = append(out.Missing, fmt.Sprintf("%s of %s in %s", countOf(int(m.Pods), "pod"),
			strings.Join(status.Quantities(m.Requests), ", "), cmp.Or(m.Zone, "no zone")))
	}
	if more > 0 {
		out.Missing = append(out.Missing, fmt.Sprintf("and %d more", more))
	}
	losses := slices.Clone(s.Losses)
	slices.SortStableFunc(losses, func(a, b v1alpha1.SurvivalLoss) int { return cmp.Compare(b.Waiting, a.Waiting) })
	losses, out.Hidden = firstRows(losses, mostColumns)
	for i := range losses {
		out.Losses = append(out.Losses, lossOf(&losses[i]))
	}
	return out
}

func lossOf(loss *v1alpha1.SurvivalLoss) Loss {
	out := Loss{
		Zone: loss.What(), State: Badge{Text: "all run again", Tone: Good}, Margin: marginShares(loss.Margin),
		Facts: []string{countOf(int(loss.Nodes), "node"), countOf(int(loss.Displaced), "pod") + " displaced"},
	}
	if loss.Waiting > 0 {
		out.State = Badge{Text: fmt.Sprintf("%d would wait", loss.Waiting), Tone: Bad}
	}
	if len(loss.Witnesses) > 0 {
		first := &loss.Witnesses[0]
		out.Witness, out.Said = first.Namespace+"/"+first.Name, clipText(first.Why)
	}
	return out
}

// marginShares returns, for each resource, what is free in the zone that has the smallest part of it free.
func marginShares(zones []v1alpha1.SurvivalMargin) []Share {
	least := map[corev1.ResourceName]Share{}
	for i := range zones {
		for name, all := range zones[i].Allocatable {
			free := percent(amount.Of(name, zones[i].Free[name]), amount.Of(name, all))
			if known, ok := least[name]; !ok || free < known.Percent {
				least[name] = Share{Label: string(name), Text: fmt.Sprintf("%d%% free in %s", free, status.ZoneText(zones[i].Zone)), Percent: free, Tone: Good}
			}
		}
	}
	var out []Share
	for _, name := range slices.Sorted(maps.Keys(least)) {
		out = append(out, least[name])
	}
	out, _ = firstRows(out, mostResources)
	return out
}
