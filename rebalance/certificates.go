package rebalance

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
)

// brokenCertificates returns the names of the ZoneSurvivals that hold in one copy and not in another.
func brokenCertificates(ctx context.Context, before, after *sim.Sim, replays int) ([]string, error) {
	asked := sim.List[*v1alpha1.ZoneSurvival](before)
	if len(asked) == 0 {
		return nil, nil
	}
	broken := func(s *sim.Sim, asked []*v1alpha1.ZoneSurvival) ([]*v1alpha1.ZoneSurvival, error) {
		options := survival.Options{Sim: before.Options(), Replays: replays}
		options.Sim.Now, options.Sim.Pods, options.Sim.Progress, options.Sim.EndWithin = s.Now(), nil, nil, 0
		statuses, err := survival.Certify(ctx, s.Objects(), asked, options)
		var out []*v1alpha1.ZoneSurvival
		for i := range statuses {
			if !meta.IsStatusConditionTrue(statuses[i].Conditions, v1alpha1.ConditionSurvives) {
				out = append(out, asked[i])
			}
		}
		return out, err
	}
	with, err := broken(after, asked)
	if err != nil || len(with) == 0 {
		return nil, err
	}
	without, err := broken(before, with)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range with {
		if !slices.Contains(without, s) {
			out = append(out, s.Name)
		}
	}
	return out, nil
}
