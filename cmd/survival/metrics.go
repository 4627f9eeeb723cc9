package survival

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/internal/metrics"
)

const subsystem = "survival"

var (
	survives = metrics.NewGaugeDesc(subsystem, "survives", "Whether the protected pods of a ZoneSurvival would all run again after each loss: 1 when True, 0 when False; absent when Unknown.",
		[]string{"zonesurvival"}, compbasemetrics.ALPHA)
	computed = metrics.NewGaugeDesc(subsystem, "computed_timestamp_seconds", "When the cluster was read from which the answer about a ZoneSurvival was computed, in seconds since 1970.",
		[]string{"zonesurvival"}, compbasemetrics.ALPHA)
	waiting = metrics.NewGaugeDesc(subsystem, "waiting_pods", "Protected pods of a ZoneSurvival that would wait after the loss of a zone; an empty zone stands for the worst loss of nodes.",
		[]string{"zonesurvival", "lost_zone"}, compbasemetrics.ALPHA)
	margin = metrics.NewGaugeDesc(subsystem, "margin_ratio", "What is free in a zone after the loss of another one, or of nodes if that is empty, as a fraction of what its usable nodes have, by resource.",
		[]string{"zonesurvival", "lost_zone", "zone", "resource"}, compbasemetrics.ALPHA)
	heldRoom = metrics.NewGaugeDesc(subsystem, "held", "What the reservation of a ZoneSurvival holds and no pod uses, by resource: CPUs, bytes, or places for pods; absent without spec.hold.",
		[]string{"zonesurvival", "resource"}, compbasemetrics.ALPHA)
	missingPods = metrics.NewGaugeDesc(subsystem, "missing_pods", "Protected pods of a ZoneSurvival for which no room is held or free in some loss, by the zone where they would be; absent without spec.hold.",
		[]string{"zonesurvival", "zone"}, compbasemetrics.ALPHA)

	roundDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "round_duration_seconds",
		Help: "Time to replay all losses that ZoneSurvivals ask for.", Buckets: compbasemetrics.ExponentialBuckets(1, 2, 12), StabilityLevel: compbasemetrics.ALPHA,
	})

	collector = metrics.NewCollector((*Controller).collect, survives, computed, waiting, margin, heldRoom, missingPods)
)

// collect sends the last answers.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, status := range c.answers {
		if status.ComputedAt.IsZero() {
			continue // there is none yet
		}
		send(computed, float64(status.ComputedAt.Unix()), name)
		if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSurvives) {
			send(survives, 1, name)
		}
		if meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSurvives) {
			send(survives, 0, name)
		}
		for resource, quantity := range status.Held {
			send(heldRoom, quantity.AsApproximateFloat64(), name, string(resource))
		}
		short := map[string]int64{}
		for i := range status.Losses {
			if status.Losses[i].Zone != "" && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld) != nil {
				short[status.Losses[i].Zone] = 0
			}
		}
		for i := range status.Missing {
			short[status.Missing[i].Zone] += status.Missing[i].Pods
		}
		for zone, pods := range short {
			send(missingPods, float64(pods), name, zone)
		}
		for lost, of := range worstByZone(status.Losses) {
			send(waiting, float64(of.waiting), name, lost)
			for in, ratio := range of.margins {
				send(margin, ratio, name, lost, in.zone, string(in.resource))
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
		is := out[loss.Zone]
		if is == nil {
			is = &worstLoss{margins: map[zoneResource]float64{}}
			out[loss.Zone] = is
		}
		is.waiting = max(is.waiting, loss.Waiting)
		for _, m := range loss.Margin {
			for resource, all := range m.Allocatable {
				in, ratio := zoneResource{m.Zone, resource}, float64(amount.Of(resource, m.Free[resource]))/float64(amount.Of(resource, all))
				if least, known := is.margins[in]; !known || ratio < least {
					is.margins[in] = ratio
				}
			}
		}
	}
	return out
}

// served are the prefixes of the metrics that the program serves. Those of the scheduler and of its plugins are not about the
// cluster here, but about copies of it.
var served = []string{metrics.Namespace + "_" + subsystem + "_", "go_", "process_", "rest_client_", "leader_election_", "kubernetes_build_info"}

func metricsHandler() http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := legacyregistry.DefaultGatherer.Gather()
		var out []*dto.MetricFamily
		for _, family := range all {
			for _, prefix := range served {
				if strings.HasPrefix(family.GetName(), prefix) {
					out = append(out, family)
				}
			}
		}
		return out, err
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{})
}
