package survival

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"zonewise.dev/apis/v1alpha1"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/internal/amount"
	"zonewise.dev/internal/metrics"
)

var collector = metrics.NewCollector(
	(*Controller).collect, declared.Survives, declared.Computed, declared.Waiting, declared.Margin, declared.Held,
	declared.MissingPods, declared.Serving,
)

// collect sends the last answers.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		name, status := a.name, &a.shown
		if status.ComputedAt.IsZero() {
			continue // there is none yet
		}
		send(declared.Computed, float64(status.ComputedAt.Unix()), name)
		if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSurvives) {
			send(declared.Survives, 1, name)
		}
		if meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSurvives) {
			send(declared.Survives, 0, name)
		}
		for _, left := range status.Impaired {
			send(declared.Serving, float64(left.Ready)/float64(left.Replicas), name, left.Zone)
		}
		for resource, quantity := range status.Held {
			send(declared.Held, quantity.AsApproximateFloat64(), name, string(resource))
		}
		missing := map[string]int64{}
		for i := range status.Losses {
			if status.Losses[i].Zone != "" && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld) != nil {
				missing[status.Losses[i].Zone] = 0
			}
		}
		for i := range status.Missing {
			missing[status.Missing[i].Zone] += status.Missing[i].Pods
		}
		for zone, pods := range missing {
			send(declared.MissingPods, float64(pods), name, zone)
		}
		for lost, worst := range worstByZone(status.Losses) {
			send(declared.Waiting, float64(worst.waiting), name, lost)
			for key, ratio := range worst.margins {
				send(declared.Margin, ratio, name, lost, key.zone, string(key.resource))
			}
		}
	}
}

// worstLoss is the worst of what some losses would do.
type worstLoss struct {
	waiting int64
	margins map[zoneResource]float64
}

type zoneResource struct {
	zone     string
	resource v1.ResourceName
}

// worstByZone puts the losses of nodes together, under the empty zone: their names would make ever more series.
func worstByZone(losses []v1alpha1.SurvivalLoss) map[string]*worstLoss {
	out := map[string]*worstLoss{}
	for i := range losses {
		loss := &losses[i]
		worst := out[loss.Zone]
		if worst == nil {
			worst = &worstLoss{margins: map[zoneResource]float64{}}
			out[loss.Zone] = worst
		}
		worst.waiting = max(worst.waiting, loss.Waiting)
		for _, m := range loss.Margin {
			for resource, all := range m.Allocatable {
				key := zoneResource{m.Zone, resource}
				ratio := float64(amount.Of(resource, m.Free[resource])) / float64(amount.Of(resource, all))
				if least, known := worst.margins[key]; !known || ratio < least {
					worst.margins[key] = ratio
				}
			}
		}
	}
	return out
}
