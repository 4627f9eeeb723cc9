package survival

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
)

// TestBudgetsAreApart: what a full round uses does not keep the answers between rounds waiting, and neither does what
// the process uses while it waits. Both count towards the next full round. Nothing is answered while both budgets are
// used up.
func TestBudgetsAreApart(t *testing.T) {
	used := time.Duration(0)
	c := New(parts.Shared{CPUFraction: 0.2}, Options{})
	c.fullBudget.CPU = func() time.Duration { return used }
	c.followBudget.CPU = c.fullBudget.CPU
	start := time.Now()
	require.Negative(t, c.untilBudget(start), "nothing has been answered")
	c.followBudget.Begin(start)
	c.fullBudget.Begin(start)
	c.followBudget.End()
	used += 10 * time.Minute // the steps of the round
	end := c.followBudget.Next()
	require.Equal(t, start, end)
	c.followBudget.Begin(end)
	used += time.Second
	c.followBudget.End()
	require.Equal(t, end.Add(10*time.Second), c.followBudget.Next())
	require.Equal(t, 10*time.Second, c.untilBudget(end))
	require.Equal(t, 50*time.Minute+5*time.Second, c.fullBudget.Next().Sub(start))
}

// TestMetrics: a certificate that is True or False has a figure, one that is Unknown has none, and one without an
// answer has no series. Losses of nodes have one together.
func TestMetrics(t *testing.T) {
	status := func(survives metav1.ConditionStatus) v1alpha1.ZoneSurvivalStatus {
		return v1alpha1.ZoneSurvivalStatus{
			ComputedAt: metav1.Unix(1000, 0), Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: survives}},
			Losses: []v1alpha1.SurvivalLoss{{Zone: "a", Waiting: 2, Margin: []v1alpha1.SurvivalMargin{{
				Zone: "b", Free: v1.ResourceList{"cpu": resource.MustParse("500m")}, Allocatable: v1.ResourceList{"cpu": resource.MustParse("2")},
			}}}},
		}
	}
	c := &Controller{answers: map[types.UID]*answer{
		"1": {name: "yes", shown: status(metav1.ConditionTrue)}, "2": {name: "no", shown: status(metav1.ConditionFalse)},
		"3": {name: "open", shown: status(metav1.ConditionUnknown)}, "4": {name: "new"},
	}}
	holds := status(metav1.ConditionUnknown)
	holds.Conditions = append(holds.Conditions, metav1.Condition{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse})
	holds.Held = v1.ResourceList{"cpu": resource.MustParse("2500m"), "memory": resource.MustParse("1Ki")}
	holds.Missing = []v1alpha1.SurvivalMissing{{Zone: "b", Pods: 1}, {Zone: "b", Pods: 2}}
	holds.Losses = append(holds.Losses, v1alpha1.SurvivalLoss{Node: "n1", Waiting: 1}, v1alpha1.SurvivalLoss{Node: "n2", Waiting: 3})
	c.answers["5"] = &answer{name: "holds", shown: holds}
	collector.Export(t.Context(), c)
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP zonewise_survival_survives [ALPHA] Whether the protected pods of a ZoneSurvival would all run again after each loss: 1 when True, 0 when False; absent when Unknown.
# TYPE zonewise_survival_survives gauge
zonewise_survival_survives{zonesurvival="no"} 0
zonewise_survival_survives{zonesurvival="yes"} 1
# HELP zonewise_survival_computed_timestamp_seconds [ALPHA] When the cluster was read from which the answer about a ZoneSurvival was computed, in seconds since 1970.
# TYPE zonewise_survival_computed_timestamp_seconds gauge
zonewise_survival_computed_timestamp_seconds{zonesurvival="holds"} 1000
zonewise_survival_computed_timestamp_seconds{zonesurvival="no"} 1000
zonewise_survival_computed_timestamp_seconds{zonesurvival="open"} 1000
zonewise_survival_computed_timestamp_seconds{zonesurvival="yes"} 1000
# HELP zonewise_survival_held [ALPHA] What the reservation of a ZoneSurvival holds and no pod uses, by resource: CPUs, bytes, or places for pods; absent without spec.hold.
# TYPE zonewise_survival_held gauge
zonewise_survival_held{resource="cpu",zonesurvival="holds"} 2.5
zonewise_survival_held{resource="memory",zonesurvival="holds"} 1024
# HELP zonewise_survival_missing_pods [ALPHA] Protected pods of a ZoneSurvival for which no room is held or free in some loss, by the zone where they would be; absent without spec.hold.
# TYPE zonewise_survival_missing_pods gauge
zonewise_survival_missing_pods{zone="a",zonesurvival="holds"} 0
zonewise_survival_missing_pods{zone="b",zonesurvival="holds"} 3
# HELP zonewise_survival_waiting_pods [ALPHA] Protected pods of a ZoneSurvival that would wait after the loss of a zone; an empty zone stands for the worst loss of nodes.
# TYPE zonewise_survival_waiting_pods gauge
zonewise_survival_waiting_pods{lost_zone="",zonesurvival="holds"} 3
zonewise_survival_waiting_pods{lost_zone="a",zonesurvival="holds"} 2
zonewise_survival_waiting_pods{lost_zone="a",zonesurvival="no"} 2
zonewise_survival_waiting_pods{lost_zone="a",zonesurvival="open"} 2
zonewise_survival_waiting_pods{lost_zone="a",zonesurvival="yes"} 2
`), "zonewise_survival_survives", "zonewise_survival_computed_timestamp_seconds", "zonewise_survival_held", "zonewise_survival_missing_pods", "zonewise_survival_waiting_pods"))
}
