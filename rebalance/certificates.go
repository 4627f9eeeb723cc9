package rebalance

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
)

// brokenCertificates returns the names of the ZoneSurvivals that hold in one copy and not in another.
func brokenCertificates(ctx context.Context, before, after *sim.Sim) ([]string, error) {
	asked := sim.List[*v1alpha1.ZoneSurvival](before)
	if len(asked) == 0 {
		return nil, nil
	}
	holds := func(s *sim.Sim) ([]bool, error) {
		options := survival.Options{Sim: before.Options()}
		options.Sim.Now, options.Sim.Pods, options.Sim.Progress = s.Now(), nil, nil
		statuses, err := survival.Certify(ctx, s.Objects(), asked, options)
		out := make([]bool, len(statuses))
		for i := range statuses {
			out[i] = meta.IsStatusConditionTrue(statuses[i].Conditions, v1alpha1.ConditionSurvives)
		}
		return out, err
	}
	without, err := holds(before)
	if err != nil {
		return nil, err
	}
	with, err := holds(after)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, s := range asked {
		if without[i] && !with[i] {
			out = append(out, s.Name)
		}
	}
	return out, nil
}
