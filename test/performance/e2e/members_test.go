package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriteKinds(t *testing.T) {
	for want, all := range map[string][]map[string]string{
		writeBinding:   {{"verb": "POST", "resource": "pods", "subresource": "binding"}},
		writeRehearsal: {{"verb": "POST", "resource": "pods", "subresource": "binding", "dry_run": "All"}},
		writePodStatus: {{"verb": "PATCH", "resource": "pods", "subresource": "status"}, {"verb": "PUT", "resource": "pods", "subresource": "status"}},
		writePodGroup:  {{"verb": "PATCH", "resource": "podgroups", "subresource": "status"}, {"verb": "APPLY", "resource": "podgroups"}},
		writeEvent:     {{"verb": "POST", "resource": "events"}, {"verb": "PATCH", "resource": "events"}},
		writeOther:     {{"verb": "PATCH", "resource": "pods"}, {"verb": "DELETE", "resource": "pods"}, {"verb": "POST", "resource": "pods", "subresource": "eviction"}},
		"": {
			{"verb": "POST", "resource": "pods"},
			{"verb": "POST", "resource": "podgroups"},
			{"verb": "LIST", "resource": "pods"},
			{"verb": "WATCH", "resource": "events"},
			{"verb": "PATCH", "resource": "nodes", "subresource": "status"},
		},
	} {
		for _, labels := range all {
			require.Equal(t, want, writeKind(labels), "%v", labels)
		}
	}
}

func TestSummaryOfGangs(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gangs := map[string]*gang{}
	for i, millis := range []time.Duration{400, 100, 300} {
		gangs[string(rune('a'+i))] = &gang{created: 4, bound: 4, lastCreated: at, lastBound: at.Add(millis * time.Millisecond)}
	}
	m, err := summary(gangs, map[string]float64{writeBinding: 12, writeEvent: 18})
	require.NoError(t, err)
	require.Equal(t, members{
		Gangs: 3, Pods: 12, WholeP50: 300, WholeP99: 400,
		Writes: map[string]float64{writeBinding: 1, writeEvent: 1.5},
	}, m)

	gangs["b"].bound = 3
	_, err = summary(gangs, nil)
	require.EqualError(t, err, "3 of 4 members of b were seen bound")
	_, err = summary(nil, nil)
	require.EqualError(t, err, "no member of a gang was seen")
}

func TestPercentile(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[len(values)-1-i] = float64(i + 1)
	}
	require.InDelta(t, 100, percentile(values, 50), 0)
	require.InDelta(t, 198, percentile(values, 99), 0)
	require.InDelta(t, 7, percentile([]float64{7}, 99), 0)
}
