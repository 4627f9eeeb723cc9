package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// noon is a moment with a fraction of a second, as real ones have.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 250_000_000, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

func readyZones(names ...string) map[string]policy.ZoneNodes {
	zones := map[string]policy.ZoneNodes{}
	for _, name := range names {
		zones[name] = policy.ZoneNodes{Nodes: 2, Open: 2}
	}
	return zones
}

// workload is Deployment web, for the pods with app=web.
func workload(replicas int64) policy.Workload {
	return policy.Workload{
		UID: "web", Name: "Deployment web", Replicas: replicas, Known: true,
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
	}
}

// counts are the pods of a revision by zone.
type counts = map[string]int64

// observed tallies placed pods of the workloads: revisions are by workload, in turn when there is one workload. One
// without placed pods has a pod that waits.
func observed(p *policy.Policy, workloads []policy.Workload, revisions ...counts) policy.Observation {
	o := policy.Observation{Tally: p.NewTally()}
	waits := slices.Repeat([]bool{true}, len(workloads))
	for i, zones := range revisions {
		of := min(i, len(workloads)-1)
		for zone, n := range zones {
			for range n {
				o.Tally.Add(&workloads[of], labels.Set{"pod-template-hash": string(rune('1' + i))}, zone, nil)
				waits[of] = false
			}
		}
	}
	for i := range workloads {
		if waits[i] {
			o.Tally.Add(&workloads[i], nil, "", nil)
		}
	}
	return o
}

// infeasible is the reason of the condition Infeasible with n ready zones, empty when it is False.
func infeasible(t *testing.T, p *policy.Policy, n int, workloads ...policy.Workload) string {
	t.Helper()
	zs := policy.NewZones(p, nil)
	zs.ObserveNodes(noon, readyZones(zoneNames(n)...))
	status := p.Status(zs, observed(p, workloads), v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionInfeasible)
	require.NotNil(t, c)
	require.NotEmpty(t, c.Message)
	if c.Status != metav1.ConditionTrue {
		require.Equal(t, metav1.ConditionFalse, c.Status)
		return ""
	}
	return c.Reason
}
