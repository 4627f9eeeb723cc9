package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestPolicyEventsAndMetrics: what becomes of a policy is seen in its Events and in the scheduler's metrics.
func TestPolicyEventsAndMetrics(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.UnavailableZones = failover(time.Second, time.Hour)
		s.Replicas = ptr.To(intstr.FromInt32(9))
		s.MaxPerZone = ptr.To(intstr.FromInt32(4))
	})
	w.startScheduler()
	w.waitPolicyEvent(p, corev1.EventTypeWarning, "Infeasible", "CapsBelowReplicas: the caps of 2 zones add up to 8 pods, fewer than the 9 replicas (maxPerZone 4)")
	w.strike("b1")
	w.waitPolicyEvent(p, corev1.EventTypeWarning, "ZoneClosed", "zone zone-b is closed")
	w.waitGauge(p, map[string]float64{"zone-b Closed": 1}, "zonewise_zonespread_policy_zone_unavailable", "zone", "state")
	require.InDelta(t, 1, w.gauge(t, "zonewise_zonespread_policy_condition", p.Name, "condition")["Infeasible"], 0)
	w.heal("b1")
	w.waitPolicyEvent(p, corev1.EventTypeNormal, "ZoneBack", "zone zone-b is back")
	w.waitGauge(p, map[string]float64{}, "zonewise_zonespread_policy_zone_unavailable", "zone", "state")
}

// waitGauge waits for the values of a policy's metric: an Event may come before the watch shows the status that the
// metric is of.
func (w *world) waitGauge(p *v1alpha1.ZoneSpreadPolicy, want map[string]float64, name string, by ...string) {
	w.t.Helper()
	w.eventually("metric "+name, func() (bool, string) {
		is := w.gauge(w.t, name, p.Name, by...)
		return maps.Equal(is, want), fmt.Sprint(is)
	})
}

// waitPolicyEvent waits for an Event of a policy whose note begins with the text.
func (w *world) waitPolicyEvent(p *v1alpha1.ZoneSpreadPolicy, kind, reason, note string) {
	w.t.Helper()
	w.eventually("an Event "+reason, func() (bool, string) {
		events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
		require.NoError(w.t, err)
		var others []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.Regarding.Kind != "ZoneSpreadPolicy" || e.Regarding.UID != p.UID {
				continue
			}
			if e.Type == kind && e.Reason == reason && strings.HasPrefix(e.Note, note) {
				return true, ""
			}
			others = append(others, e.Reason+": "+e.Note)
		}
		return false, fmt.Sprint(others)
	})
}

// gauge gathers the values of a policy's metric by the values of some labels.
func (w *world) gauge(t *testing.T, name, policy string, by ...string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["namespace"] != w.namespace || labels["policy"] != policy {
				continue
			}
			key := ""
			for i, label := range by {
				if i > 0 {
					key += " "
				}
				key += labels[label]
			}
			values[key] = metric.GetGauge().GetValue()
		}
	}
	return values
}
