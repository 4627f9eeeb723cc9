package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// noon is a moment with a fraction of a second, as real ones have.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 250_000_000, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

func readyZones(names ...string) []policy.ZoneNodes {
	zones := make([]policy.ZoneNodes, len(names))
	for i, name := range names {
		zones[i] = policy.ZoneNodes{Name: name, Nodes: 2, Ready: 2}
	}
	return zones
}

// infeasible is the reason of the condition Infeasible with n ready zones, empty when it is False.
func infeasible(t *testing.T, p *policy.Policy, n int, owners ...policy.Owner) string {
	t.Helper()
	m := policy.NewMachine(p, nil)
	m.ObserveNodes(noon, readyZones(zoneNames(n)...))
	status := p.Status(m, policy.Observation{Demand: policy.Demand{Owners: owners}}, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionInfeasible)
	require.NotNil(t, c)
	require.NotEmpty(t, c.Message)
	if c.Status != metav1.ConditionTrue {
		require.Equal(t, metav1.ConditionFalse, c.Status)
		return ""
	}
	return c.Reason
}
