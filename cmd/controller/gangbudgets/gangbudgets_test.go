package gangbudgets

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/clitest"
)

// gang returns a cluster with a gang of three that asks for a budget, of which so many members are bound.
func gang(bound int) (*clitest.Cluster, *schedulingv1alpha1.PodGroup) {
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	g := c.Gang("train", 3)
	g.Annotations = map[string]string{podgroup.DisruptionBudgetAnnotation: podgroup.BudgetOfMinMember}
	c.Members("train", "1", append(clitest.InTurn(bound, "a"), make([]string, 3-bound)...)...)
	return c, g
}

// budgetFor is the budget that a PodGroup has.
func budgetFor(g *schedulingv1alpha1.PodGroup) *policyv1.PodDisruptionBudget {
	return budgetOf(
		&group{Object: g, apiVersion: schedulingv1alpha1.SchemeGroupVersion.String(), minMember: g.Spec.MinMember},
		map[string]string{schedulingv1alpha1.PodGroupLabel: g.Name},
	)
}

// names are those of budgets.
func names(budgets []*policyv1.PodDisruptionBudget) (out []string) {
	for _, b := range budgets {
		out = append(out, b.Name)
	}
	return out
}

// wanted is what is to become of budgets, by their names, and why there is none.
type wanted struct {
	create, update, remove []string
	refusal                string
}

// requirePlan compares what is planned with what is wanted.
func requirePlan(t *testing.T, want wanted, p *plan) {
	t.Helper()
	require.Equal(t, want.create, names(p.create))
	require.Equal(t, want.update, names(p.update))
	require.Equal(t, want.remove, names(p.remove))
	if want.refusal == "" {
		require.Empty(t, p.refusals)
		return
	}
	require.Len(t, p.refusals, 1)
	require.Equal(t, want.refusal, p.refusals[0].message)
}

// TestPlan: which budgets are written, changed and deleted.
func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bound int
		// has: the gang has a budget already.
		has    bool
		change func(c *clitest.Cluster, g *schedulingv1alpha1.PodGroup)
		want   wanted
	}{
		{name: "a whole gang", bound: 3, want: wanted{create: []string{"train"}}},
		{name: "a gang that is not whole", bound: 2},
		{name: "a gang that has one", bound: 3, has: true},
		{name: "a gang that has lost a member", bound: 2, has: true},
		{name: "a gang that has ended", bound: 0, has: true, want: wanted{remove: []string{"train"}}},
		{
			name: "not asked for", bound: 3,
			change: func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) { g.Annotations = nil },
		},
		{
			name: "not asked for any more", bound: 3, has: true, want: wanted{remove: []string{"train"}},
			change: func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) { g.Annotations = nil },
		},
		{
			name: "another minMember", bound: 3, has: true, want: wanted{update: []string{"train"}},
			change: func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) { g.Spec.MinMember = 2 },
		},
		{
			name: "an unknown value", bound: 3,
			change: func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) {
				g.Annotations[podgroup.DisruptionBudgetAnnotation] = "true"
			},
			want: wanted{refusal: `annotation zonewise.dev/disruption-budget is "true", must be "minMember"`},
		},
		{
			name: "a budget of somebody else selects a member", bound: 3, has: true,
			change: func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) { c.Budget("train", 1).Name = "own" },
			want: wanted{
				remove: []string{"train"}, refusal: "PodDisruptionBudget own selects member train-0: with two budgets no eviction of a pod succeeds",
			},
		},
		{
			name: "a budget of somebody else that selects all pods of the namespace", bound: 3,
			change: func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
				c.Budget("all", 1).Spec.Selector.MatchLabels = nil
			},
			want: wanted{refusal: "PodDisruptionBudget all selects member train-0: with two budgets no eviction of a pod succeeds"},
		},
		{
			name: "a budget of somebody else for other pods", bound: 3, want: wanted{create: []string{"train"}},
			change: func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) { c.Budget("web", 1) },
		},
		{
			name: "a budget of somebody else that has the name", bound: 3,
			change: func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
				c.Budget("train", 1).Spec.Selector.MatchLabels["app"] = "web"
			},
			want: wanted{refusal: "PodDisruptionBudget train exists and is not of this PodGroup"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, g := gang(tc.bound)
			if tc.has {
				c.Add(budgetFor(g))
			}
			if tc.change != nil {
				tc.change(c, g)
			}
			requirePlan(t, tc.want, planFor(c.Snapshot))
		})
	}
}

// server notes what is written. It refuses what it is told to.
type server struct {
	client.Client
	wrote []string
	fails bool
}

func (s *server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if s.fails {
		return errors.New("it fails")
	}
	switch o := obj.(type) {
	case *policyv1.PodDisruptionBudget:
		s.wrote = append(s.wrote, "create "+o.Name)
	case *eventsv1.Event:
		s.wrote = append(s.wrote, o.Regarding.Name+" "+o.Reason)
	}
	return nil
}

func (s *server) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	s.wrote = append(s.wrote, "delete "+obj.GetName())
	return nil
}

// TestTurn: each refusal is told once, a write that fails is tried again soon, and nothing is concluded from what
// cannot be read.
func TestTurn(t *testing.T) {
	to := &server{}
	c := New(parts.Shared{Client: to, CPUFraction: 1000})
	turn := func(cluster *clitest.Cluster) time.Duration {
		c.shared.Read = func() *snapshot.Snapshot { return cluster.Snapshot }
		result, err := c.Reconcile(t.Context(), parts.Look)
		require.NoError(t, err)
		return result.RequeueAfter
	}
	whole, _ := gang(3)
	to.fails = true
	require.Equal(t, retryInterval, turn(whole))
	to.fails = false
	require.Equal(t, idleInterval, turn(whole))
	require.Equal(t, []string{"create train"}, to.wrote)

	refused, g := gang(3)
	b := budgetFor(g)
	b.Spec.MinAvailable = new(intstr.FromInt32(3))
	refused.Add(b)
	refused.Budget("train", 1).Name = "own"
	to.wrote = nil
	turn(refused)
	turn(refused)
	require.Equal(t, []string{"delete train", "train OtherDisruptionBudget", "delete train"}, to.wrote)

	to.wrote = nil
	whole.Missing = []snapshot.Missing{{Resource: "poddisruptionbudgets.policy", Reason: snapshot.Forbidden}}
	require.Equal(t, retryInterval, turn(whole))
	require.Empty(t, to.wrote)
}
