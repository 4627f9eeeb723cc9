package zonespread

import (
	"k8s.io/component-base/metrics"

	zonewisemetrics "zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/zonespread/counts"
)

const subsystem = "zonespread"

var (
	indexSize = zonewisemetrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: zonewisemetrics.Namespace, Subsystem: subsystem, Name: "index_size",
		Help: "What the index of pod counts holds, by kind: nodes, pods, " +
			"label_sets (pods of a namespace with equal labels), selectors, " +
			"cells (pairs of a selector and a node with matching pods, 8 bytes each), topologies, " +
			"classes (sets of eligible nodes).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	nodesRefreshed = newCounter("index_refreshed_nodes_total", "How many changed nodes the index has looked at.")
	selectorsBuilt = newCounter("index_built_selectors_total",
		"How many times a selector was counted for the first time, or again after it had been dropped.")
	selectorsEvicted = newCounter("index_evicted_selectors_total",
		"How many selectors were dropped, because they were not used or to stay within the index's limits.")
	classesBuilt = newCounter("index_built_classes_total",
		"How many times the eligible nodes of a kind of pod were not known, so that every node was looked at.")
	classesEvicted = newCounter("index_evicted_classes_total",
		"How many sets of eligible nodes were dropped to stay within the index's limits.")
	directCounts = newCounter("direct_counts_total",
		"How many times pods were counted without the index, as in the scheduling cycles of pod groups.")
	// preFilterDuration leaves out pods without hard constraints and policies: those cost a look at their labels.
	preFilterDuration = newDuration("prefilter_duration_seconds",
		"Time that PreFilter takes for a pod with hard constraints or policies.")
	evaluationDuration = newDuration("policy_evaluation_duration_seconds",
		"Time to apply all ZoneSpreadPolicies of one pod to all zones, once its pods are counted.")
)

func newCounter(name, help string) *metrics.Counter {
	return zonewisemetrics.NewCounter(&metrics.CounterOpts{
		Namespace: zonewisemetrics.Namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	})
}

func newDuration(name, help string) *metrics.Histogram {
	return zonewisemetrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: zonewisemetrics.Namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(10e-6, 2, 14), // to 82 ms
	})
}

func registerMetrics() {
	zonewisemetrics.MustRegister(indexSize, nodesRefreshed, selectorsBuilt, selectorsEvicted, classesBuilt,
		classesEvicted, directCounts, preFilterDuration, evaluationDuration)
}

// reportStats sets the metrics to what the index holds now; last is what it held at the last report.
func reportStats(last, now counts.Stats) {
	if last == now {
		return
	}
	for _, e := range [...]struct {
		kind      string
		last, now int
	}{
		{"nodes", last.Nodes, now.Nodes},
		{"pods", last.Pods, now.Pods},
		{"label_sets", last.LabelSets, now.LabelSets},
		{"selectors", last.Selectors, now.Selectors},
		{"cells", last.Cells, now.Cells},
		{"topologies", last.Topologies, now.Topologies},
		{"classes", last.Classes, now.Classes},
	} {
		if e.last != e.now {
			indexSize.WithLabelValues(e.kind).Set(float64(e.now))
		}
	}
	nodesRefreshed.Add(float64(now.Refreshed - last.Refreshed))
	selectorsBuilt.Add(float64(now.SelectorsBuilt - last.SelectorsBuilt))
	selectorsEvicted.Add(float64(now.SelectorsEvicted - last.SelectorsEvicted))
	classesBuilt.Add(float64(now.ClassesBuilt - last.ClassesBuilt))
	classesEvicted.Add(float64(now.ClassesEvicted - last.ClassesEvicted))
}
