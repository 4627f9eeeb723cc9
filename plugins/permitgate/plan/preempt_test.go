package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/plan"
)

const gangPriority = 100

// rank gives a pod a priority, and takes it out of what the gang's selectors match.
func rank(priority int32) func(p *v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Priority = ptr.To(priority)
		p.Labels = map[string]string{"app": "other"}
	}
}

// inCompany makes a pod a member of another gang.
func inCompany(name string) func(p *v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"gang": name} }
}

// preemption asks for a plan of all the pods for which those of lower priority may go. quorum is the minMember of the
// other gangs.
func preemption(c *cluster, quorum map[string]int, gang ...*v1.Pod) *plan.Preemption {
	present, removable := map[string]int{}, map[string]int{}
	for _, n := range c.nodes {
		for _, p := range c.pods[n.Name] {
			if p.DeletionTimestamp == nil {
				present[p.Labels["gang"]]++
				if *p.Spec.Priority < gangPriority {
					removable[p.Labels["gang"]]++
				}
			}
		}
	}
	companies := map[string]*plan.Company{}
	for name, minMember := range quorum {
		companies[name] = &plan.Company{
			Name: name, Spare: min(removable[name], max(0, present[name]-minMember)), Whole: removable[name] == present[name],
		}
	}
	return &plan.Preemption{
		Request: request(c, gang...),
		Candidates: func(i int, names []v1.ResourceName) (found []plan.Candidate) {
			for _, p := range c.pods[c.nodes[i].Name] {
				if p.DeletionTimestamp == nil && *p.Spec.Priority >= gangPriority {
					continue
				}
				one := plan.Candidate{Pod: p, Leaving: p.DeletionTimestamp != nil, Company: companies[p.Labels["gang"]]}
				for _, name := range names {
					one.Gain = append(one.Gain, requestOf(p, name))
				}
				found = append(found, one)
			}
			return found
		},
		Without: func(gone []plan.Removal) plan.Cluster { return c.without(gone) },
	}
}

func (c *cluster) without(gone []plan.Removal) *cluster {
	left := newCluster(c.nodes...)
	for name, pods := range c.pods {
		left.pods[name] = slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
			return slices.ContainsFunc(gone, func(g plan.Removal) bool { return g.Pod.UID == p.UID })
		})
	}
	return left
}

func victims(e plan.Eviction) []string {
	names := []string{}
	for _, v := range e.Victims {
		names = append(names, v.Pod.Name)
	}
	return names
}

func leaving(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func budget(name string, allowed int32, matching map[string]string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: matching}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func TestWhoHasToGo(t *testing.T) {
	low, mid, high := rank(1), rank(50), rank(gangPriority)
	app := func(name string) func(p *v1.Pod) {
		return func(p *v1.Pod) { p.Labels = map[string]string{"app": name} }
	}
	for name, test := range map[string]struct {
		cluster *cluster
		quorum  map[string]int
		gang    []*v1.Pod
		need    int
		budgets []*policyv1.PodDisruptionBudget
		want    []string // the victims; nil when there is no plan
		against int
	}{
		"nobody where there is room": {
			cluster: newCluster(node("a1", 4), node("a2", 1)).run("a1", pod("low", 2, low)), gang: pods(3, "m", 1), want: []string{},
		},
		"the lowest priority, wherever it is": {
			cluster: newCluster(node("a1", 2), node("a2", 2)).run("a1", pods(2, "mid", 1, mid)...).run("a2", pods(2, "low", 1, low)...),
			gang:    pods(2, "m", 1), want: []string{"low-0", "low-1"},
		},
		"the fewest": {
			cluster: newCluster(node("a1", 4), node("a2", 4)).run("a1", pods(4, "small", 1, low)...).run("a2", pod("large", 4, low)),
			gang:    pods(2, "m", 2), want: []string{"large"},
		},
		"one that makes room for several, rather than one for each": {
			cluster: newCluster(node("a1", 3), node("a2", 1), node("a3", 1), node("a4", 1)).run("a1", pod("large", 3, low)).
				run("a2", pod("s2", 1, low)).run("a3", pod("s3", 1, low)).run("a4", pod("s4", 1, low)),
			gang: pods(3, "m", 1), want: []string{"large"},
		},
		"the smaller ones stay": {
			cluster: newCluster(node("a1", 6)).run("a1", pod("large", 4, low), pod("small", 1, low), pod("other", 1, low)),
			gang:    pods(2, "m", 2), want: []string{"large"},
		},
		"only beside what is free": {
			cluster: newCluster(node("a1", 4)).run("a1", pods(3, "low", 1, low)...), gang: pods(2, "m", 1), want: []string{"low-2"},
		},
		"equals and betters stay": {
			cluster: newCluster(node("a1", 2)).run("a1", pod("high", 1, high), pod("low", 1, low)), gang: pods(2, "m", 1), want: nil,
		},
		"nobody when even that would not do": {
			cluster: newCluster(node("a1", 2)).run("a1", pods(2, "low", 1, low)...), gang: pods(3, "m", 1), want: nil,
		},
		"nobody for members beyond the quorum": {
			cluster: newCluster(node("a1", 3)).run("a1", pods(3, "low", 1, low)...), gang: pods(3, "m", 1), need: 2, want: []string{"low-1", "low-2"},
		},
		"nobody when the terminating ones make room": {
			cluster: newCluster(node("a1", 2), node("a2", 2)).run("a1", pods(2, "low", 1, low)...).run("a2", pods(2, "gone", 1, low, leaving)...),
			gang:    pods(2, "m", 1), want: []string{},
		},
		"only what the terminating ones do not give": {
			cluster: newCluster(node("a1", 2)).run("a1", pod("low", 1, low), pod("gone", 1, high, leaving)), gang: pods(2, "m", 1), want: []string{"low"},
		},
		"one that is not protected, though it is more": {
			cluster: newCluster(node("a1", 2), node("a2", 2)).run("a1", pod("kept", 2, low, app("kept"))).run("a2", pods(2, "mid", 1, mid)...),
			gang:    pods(1, "m", 2), budgets: []*policyv1.PodDisruptionBudget{budget("b", 0, map[string]string{"app": "kept"})},
			want: []string{"mid-0", "mid-1"},
		},
		"a budget is used up first": {
			cluster: newCluster(node("a1", 1), node("a2", 1), node("a3", 1)).run("a1", pod("k1", 1, low, app("kept"))).
				run("a2", pod("k2", 1, low, app("kept"))).run("a3", pod("mid", 1, mid)),
			gang: pods(2, "m", 1), budgets: []*policyv1.PodDisruptionBudget{budget("b", 1, map[string]string{"app": "kept"})},
			want: []string{"k1", "mid"},
		},
		"protected ones where nothing else does": {
			cluster: newCluster(node("a1", 2)).run("a1", pods(2, "kept", 1, low, app("kept"))...),
			gang:    pods(2, "m", 1), budgets: []*policyv1.PodDisruptionBudget{budget("b", 1, map[string]string{"app": "kept"})},
			want: []string{"kept-0", "kept-1"}, against: 1,
		},
		"a gang as a whole": {
			cluster: newCluster(node("a1", 1), node("a2", 2)).run("a1", pod("g0", 1, low, inCompany("g"))).
				run("a2", pod("g1", 1, low, inCompany("g")), pod("high", 1, high)),
			quorum: map[string]int{"g": 2}, gang: pods(1, "m", 1), want: []string{"g0", "g1"},
		},
		"another pod rather than a gang": {
			cluster: newCluster(node("a1", 1), node("a2", 2)).run("a1", pod("g0", 1, low, inCompany("g"))).
				run("a2", pod("g1", 1, low, inCompany("g")), pod("low", 1, low)),
			quorum: map[string]int{"g": 2}, gang: pods(1, "m", 1), want: []string{"low"},
		},
		"a gang's members beyond its quorum go singly": {
			cluster: newCluster(node("a1", 3)).run("a1", pods(3, "g", 1, low, inCompany("g"))...),
			quorum:  map[string]int{"g": 2}, gang: pods(1, "m", 1), want: []string{"g-2"},
		},
		"and beyond these all of it": {
			cluster: newCluster(node("a1", 3), node("a2", 1)).run("a1", pods(3, "g", 1, low, inCompany("g"))...).run("a2", pod("g-3", 1, low, inCompany("g"))),
			quorum:  map[string]int{"g": 3}, gang: pods(2, "m", 1), want: []string{"g-0", "g-1", "g-2", "g-3"},
		},
		"not a gang with a member that has to stay": {
			cluster: newCluster(node("a1", 1), node("a2", 1)).run("a1", pod("g0", 1, low, inCompany("g"))).run("a2", pod("g1", 1, high, inCompany("g"))),
			quorum:  map[string]int{"g": 2}, gang: pods(1, "m", 1), want: nil,
		},
		"spread over the zones": {
			cluster: newCluster(node("a1", 2), node("b1", 2)).run("a1", pods(2, "low", 1, low)...).run("b1", pods(2, "mid", 1, mid)...),
			gang:    pods(2, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule)), want: []string{"low-1", "mid-1"},
		},
		"together in the zone where least goes": {
			cluster: newCluster(node("a1", 2), node("b1", 2)).run("a1", pods(2, "mid", 1, mid)...).run("b1", pods(2, "low", 1, low)...),
			gang:    pods(2, "m", 1, together(v1.LabelTopologyZone)), want: []string{"low-0", "low-1"},
		},
		"in the way of a spread of its own kind": {
			// The victim counts for the constraint until it is gone.
			cluster: newCluster(node("a1", 2), node("b1", 1)).run("a1", pod("old", 2, func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](1) })).
				run("b1", pod("low", 1, low)),
			gang: pods(3, "m", 1, spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule)), want: []string{"old", "low"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := preemption(test.cluster, test.quorum, test.gang...)
			r.Budgets = test.budgets
			if test.need > 0 {
				r.Need = test.need
			}
			for _, pods := range test.cluster.pods {
				for _, p := range pods {
					if p.Spec.Priority == nil {
						p.Spec.Priority = ptr.To[int32](0)
					}
				}
			}
			got := plan.Preempt(r)
			if test.want == nil {
				require.NotNil(t, got.Refusal)
				require.Empty(t, got.Victims)
				require.Empty(t, got.Slots)
				return
			}
			require.Nil(t, got.Refusal)
			require.Equal(t, test.want, victims(got))
			require.Equal(t, test.against, got.Violations)
			require.GreaterOrEqual(t, len(got.Slots), r.Need)
			// It is what Make will find.
			request := r.Request
			request.Cluster = test.cluster.without(append(slices.Clone(got.Victims), got.Leaving...))
			require.Nil(t, plan.Make(request).Refusal)
		})
	}
}

func TestLeavingPodsOfThePlan(t *testing.T) {
	c := newCluster(node("a1", 1), node("a2", 1), node("a3", 2)).run("a1", pod("gone", 1, rank(1), leaving)).
		run("a2", pod("elsewhere", 1, rank(1), leaving, func(p *v1.Pod) { p.Spec.Tolerations = nil })).run("a3", pods(2, "high", 1, rank(gangPriority))...)
	c.nodes[1].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	got := plan.Preempt(preemption(c, nil, pods(1, "m", 1)...))
	require.Nil(t, got.Refusal)
	require.Empty(t, got.Victims)
	require.Equal(t, []plan.Removal{{Pod: c.pods["a1"][0], Node: 0}}, got.Leaving)
}

// TestRulesForgetVictims: a rule counts those that go until they are gone; the plan does not.
func TestRulesForgetVictims(t *testing.T) {
	c := newCluster(node("a1", 2)).run("a1", pods(2, "low", 1, rank(1))...)
	r := preemption(c, nil, pods(2, "m", 1)...)
	r.RulesKey = func(*v1.Pod) string { return "capped" }
	r.Rules = func(*v1.Pod) plan.Rules { return &zoneCap{most: 2, count: map[string]int{"a": 2}} }
	got := plan.Preempt(r)
	require.Nil(t, got.Refusal)
	require.Len(t, got.Victims, 2)
}

// TestBudgetsAreReadAsUpstream: an empty selector is about nobody, as is one of another namespace; a disruption that
// has been noted counts no more.
func TestBudgetsAreReadAsUpstream(t *testing.T) {
	kept := map[string]string{"app": "other"}
	foreign := budget("foreign", 0, kept)
	foreign.Namespace = "elsewhere"
	noted := budget("noted", 0, kept)
	noted.Status.DisruptedPods = map[string]metav1.Time{"low": {}}
	expressions := budget("expressions", 0, nil)
	expressions.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	broken := budget("broken", 0, nil)
	broken.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
	for against, budgets := range [][]*policyv1.PodDisruptionBudget{
		{budget("empty", 0, nil), foreign, noted, broken, budget("roomy", 1, kept)},
		{expressions},
	} {
		t.Run(fmt.Sprint(against), func(t *testing.T) {
			r := preemption(newCluster(node("a1", 1)).run("a1", pod("low", 1, rank(1))), nil, pods(1, "m", 1)...)
			r.Budgets = budgets
			got := plan.Preempt(r)
			require.Nil(t, got.Refusal)
			require.Equal(t, against, got.Violations)
		})
	}
}
