package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

func TestCompileDefaults(t *testing.T) {
	p := compile(t)
	require.Equal(t, "topology.kubernetes.io/zone", p.TopologyKey())
	require.Equal(t, "shop/web", p.Key())
	require.Equal(t, "shop", p.Namespace())
	require.EqualValues(t, "uid-web", p.UID())
	require.Empty(t, p.GroupBy())
	require.True(t, p.ByOwner())
	require.True(t, p.Hard())
	require.True(t, p.HonorsAffinity())
	require.True(t, p.HonorsTaints())
	require.Equal(t, "app=web,pod-template-hash=1",
		p.SelectorFor(labels.Set{"app": "web", "pod-template-hash": "1"}).String())
	require.Equal(t, "app=web", p.SelectorFor(labels.Set{"app": "web", "controller-revision-hash": "1"}).String(),
		"the pods of a StatefulSet lack the key and count over all revisions")
	require.True(t, p.Selects(labels.Set{"app": "web", "x": "y"}))
	require.False(t, p.Selects(labels.Set{"app": "api"}))

	p = compile(t, allRevisions, scheduleAnyway, func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.NodeAffinityPolicy, s.NodeTaintsPolicy = v1alpha1.Ignore, v1alpha1.Ignore
	})
	require.Equal(t, "app=web", p.SelectorFor(labels.Set{"app": "web", "pod-template-hash": "1"}).String())
	require.False(t, p.Hard())
	require.False(t, p.HonorsAffinity())
	require.False(t, p.HonorsTaints())
}

func TestRevision(t *testing.T) {
	p := compile(t,
		func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MatchLabelKeys = []string{"track", "pod-template-hash"} })
	require.Equal(t, "track=a,pod-template-hash=1",
		p.Revision(labels.Set{"track": "a", "app": "web", "pod-template-hash": "1"}))
	require.Equal(t, "track=a", p.Revision(labels.Set{"track": "a", "app": "web"}))
	require.Empty(t, compile(t, allRevisions).Revision(labels.Set{"pod-template-hash": "1"}))
}

// TestCompileRefuses: what no schema can find is refused, with the field.
func TestCompileRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		selector metav1.LabelSelector
		want     string
	}{
		"empty": {metav1.LabelSelector{}, "spec.podSelector: Required value"},
		"malformed": {
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key:      "app",
				Operator: metav1.LabelSelectorOpIn,
			}}},
			"spec.podSelector: Invalid value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := policy.Compile(object(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector = c.selector }))
			require.Nil(t, p)
			require.Len(t, errs, 1)
			require.Contains(t, errs[0].Error(), c.want)
		})
	}
}

func TestReplicas(t *testing.T) {
	web, unknown := &policy.Workload{UID: "web", Replicas: 10, Known: true}, &policy.Workload{UID: "rollout"}
	owner, matching, number := compile(t), compile(t, replicas("Matching")), compile(t, replicas("6"))
	require.EqualValues(t, 10, owner.Replicas(web, 25), "only its own workload counts")
	require.EqualValues(t, 1, owner.Replicas(&policy.Workload{Known: true}, 25), "the pod itself is wanted")
	require.Equal(t, policy.UnknownReplicas, owner.Replicas(unknown, 25))
	require.EqualValues(t, 25, matching.Replicas(unknown, 25))
	require.EqualValues(t, 1, matching.Replicas(web, 0))
	require.Equal(t, policy.UnknownReplicas, matching.Replicas(web, -1), "not counted yet")
	require.EqualValues(t, 6, number.Replicas(unknown, -1))
	gangs := compile(t, countGangs)
	require.True(t, gangs.Matching(), "the default where gangs count")
	require.Equal(t, "scheduling.x-k8s.io/pod-group", gangs.GroupBy())
	require.EqualValues(t, 4, gangs.Replicas(web, 4))
}
