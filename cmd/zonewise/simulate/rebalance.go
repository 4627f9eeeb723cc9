package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/rebalance"
)

// mostMoves bounds how many moves the text lists.
const mostMoves = 30

// rebalance plans moves on the copy as the scenario has left it.
func (p *scenarioRun) rebalance() error {
	plan, err := rebalance.Make(p.ctx, p.sim, rebalance.Options{})
	p.result.Rebalance = plan
	return err
}

// ruleChange is a rule with the pods before the moves and after them.
type ruleChange struct{ before, after rebalance.RuleStanding }

// changesOf pairs the rules of a plan that are broken, before or after, and those that moves have changed. Those with
// most to do come first.
func changesOf(plan *rebalance.Plan) []ruleChange {
	var out []ruleChange
	key := func(r rebalance.RuleStanding) string { return r.Rule + " " + strings.Join(r.Workloads, ",") }
	after := map[string][]rebalance.RuleStanding{}
	for _, r := range plan.After.Rules {
		after[key(r)] = append(after[key(r)], r)
	}
	for _, r := range plan.Before.Rules {
		left := after[key(r)]
		if len(left) == 0 {
			continue // no pod is left that carries it
		}
		c := ruleChange{before: r, after: left[0]}
		after[key(r)] = left[1:]
		if c.before.Excess > 0 || c.after.Excess > 0 || !maps.Equal(c.before.Pods, c.after.Pods) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b ruleChange) int {
		return cmp.Or(cmp.Compare(b.before.Excess, a.before.Excess), strings.Compare(key(a.before), key(b.before)))
	})
	return out
}

func rebalanceText(p *show.Page, plan *rebalance.Plan) {
	p.Title("Rebalance")
	switch moves := show.Plural(len(plan.Moves), "move"); {
	case len(plan.Moves) == 0 && plan.Before.Excess == 0:
		p.Para(2, show.Green, "no move: the pods are spread as their rules say")
	case len(plan.Moves) == 0:
		p.Para(2, show.Yellow, "no move can be made")
	case plan.Batches == 1:
		p.Para(2, show.Plain, "%s at once", moves)
	default:
		p.Para(2, show.Plain, "%s in %d batches, of a workload one pod at a time", moves, plan.Batches)
	}
	if plan.Before.Excess > 0 {
		p.Para(2, show.Plain, "pods too many in their zones: %d -> %d", plan.Before.Excess, plan.After.Excess)
	}
	if plan.Complete && len(plan.Moves) > 0 {
		p.Para(2, show.Faint, "with these moves made no further one would help")
	}
	for _, name := range plan.BrokenCertificates {
		p.Para(2, show.Red, "ZoneSurvival %s holds now and would not with these moves: do not make them", name)
	}
	if !plan.Complete {
		p.Para(2, show.Yellow, "the search has not come to an end")
	}
	moves := plan.Moves[:min(mostMoves, len(plan.Moves))]
	show.Section(p, "Moves", []string{"BATCH", "POD", "FROM", "TO", "RULE"}, moves, func(m *rebalance.Move) []show.Cell {
		return show.Row(m.Batch, m.Namespace+"/"+m.Name, status.ZoneText(m.From), strings.Join(m.To, " or "), strings.Join(m.Rules, ", "))
	})
	if more := len(plan.Moves) - mostMoves; more > 0 {
		p.Para(2, show.Faint, "and %d more", more)
	}
	changes := changesOf(plan)
	first := changes[:min(maxRows, len(changes))]
	show.Section(p, "Spread", []string{"WORKLOAD", "RULE", "BEFORE", "AFTER", "TOO MANY"}, first, func(c *ruleChange) []show.Cell {
		left := show.C("%d -> %d", c.before.Excess, c.after.Excess).ColorIf(c.after.Excess > 0, show.Yellow)
		return show.Row(strings.Join(c.before.Workloads, ", "), c.before.Rule, status.ZonesText(c.before.Pods), status.ZonesText(c.after.Pods), left)
	})
	if more := len(changes) - maxRows; more > 0 {
		p.Para(2, show.Faint, "and %d more", more)
	}
	for _, r := range plan.Refused[:min(maxReasons, len(plan.Refused))] {
		p.Item(2, show.Yellow, "%s stays in %s: %s", r.Workload, status.ZoneText(r.From), r.Why)
	}
	for _, reason := range slices.Sorted(maps.Keys(plan.After.Stay)) {
		p.Item(2, show.Faint, "%s may not be moved: each %s", show.Plural(plan.After.Stay[reason], "pod"), reason)
	}
}
