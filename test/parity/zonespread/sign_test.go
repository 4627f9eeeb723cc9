package parity

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"pgregory.net/rapid"
)

// TestSignPod shows that opportunistic batching is on where the in-tree plugin leaves it on, with List defaulting and no
// constraints for the pods that have none of their own, and besides for pods whose constraints are all hard.
func TestSignPod(t *testing.T) {
	settings := map[string]struct {
		options  Options
		unspread bool // pods without constraints are signed
	}{
		"System":     {options: Options{System: true}},
		"List, none": {unspread: true},
		"List, some": {options: Options{Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil)}}},
	}
	hard, preferred := spread(1, "zone", selects("foo")), spread(1, "host", selects("foo"), soft)
	for name, tc := range settings {
		pair, err := NewPair(t.Context(), cache.NewSnapshot(nil, nil), tc.options)
		require.NoError(t, err)
		for _, p := range []struct {
			name        string
			constraints []v1.TopologySpreadConstraint
			inTree      bool
			ours        bool
		}{
			{"none", nil, tc.unspread, tc.unspread},
			{"hard", []v1.TopologySpreadConstraint{hard}, false, true},
			{"soft", []v1.TopologySpreadConstraint{preferred}, false, false},
			{"hard and soft", []v1.TopologySpreadConstraint{hard, preferred}, false, false},
		} {
			pod := incoming("foo", p.constraints...)
			inTreeFragments, status := pair.InTree.SignPod(t.Context(), pod)
			require.Equal(t, p.inTree, status.IsSuccess(), "%s, %s: in-tree", name, p.name)
			fragments, status := pair.Ours.SignPod(t.Context(), pod)
			require.Equal(t, p.ours, status.IsSuccess(), "%s, %s: ours", name, p.name)
			if p.inTree {
				require.Equal(t, inTreeFragments, fragments, "%s, %s", name, p.name)
			}
		}
	}
}

// TestSignPodErrors: a selector that the API server would not let pass is an error, which keeps the pod out of batches.
func TestSignPodErrors(t *testing.T) {
	pair, err := NewPair(t.Context(), cache.NewSnapshot(nil, nil), Options{})
	require.NoError(t, err)
	bad := selects("app")
	bad.MatchExpressions[0].Operator = "near"
	_, status := pair.Ours.SignPod(t.Context(), incoming("foo", spread(1, "zone", bad)))
	require.ErrorContains(t, status.AsError(), `"near" is not a valid label selector operator`)
}

// TestSignature: pods of a StatefulSet have their names as a label, and differ in nothing that matters; all that a verdict
// depends on matters.
func TestSignature(t *testing.T) {
	pair, err := NewPair(t.Context(), cache.NewSnapshot(nil, nil), Options{})
	require.NoError(t, err)
	sign := func(pod *v1.Pod) string {
		fragments, status := pair.Ours.SignPod(t.Context(), pod)
		require.True(t, status.IsSuccess())
		require.Len(t, fragments, 1)
		require.IsType(t, "", fragments[0].Value)
		return fragments[0].Value.(string)
	}
	one := func(words string) *v1.Pod {
		return incoming(words, spread(1, "zone", selects("app=web"), matchKeys("hash")))
	}
	first := one("app=web hash=1 name=web-0")
	require.Equal(t, sign(first), sign(one("app=web hash=1 name=web-1")))
	require.Equal(t, sign(first), sign(withToleration(first, "gpu")), "tolerations, where taints are ignored")

	web := selects("app=web")
	others := map[string]*v1.Pod{
		"revision":       one("app=web hash=2 name=web-0"),
		"does not count": one("app=db hash=1 name=web-0"),
		"namespace":      one("app=web hash=1 ns:other name=web-0"),
		"node selector":  withNodeSelector(first, "disk", "ssd"),
		"affinity":       withNodeAffinity(first, "disk", v1.NodeSelectorOpExists),
		"constraints":    incoming("app=web hash=1", spread(1, "zone", web, matchKeys("hash")), spread(1, "host", web)),
		"key":            incoming("app=web hash=1", spread(1, "host", web, matchKeys("hash"))),
		"maxSkew":        incoming("app=web hash=1", spread(2, "zone", web, matchKeys("hash"))),
		"minDomains":     incoming("app=web hash=1", spread(1, "zone", web, matchKeys("hash"), minDomains(3))),
		"taints":         incoming("app=web hash=1", spread(1, "zone", web, matchKeys("hash"), taints(honor))),
		"selector":       incoming("app=web hash=1", spread(1, "zone", selects("app=web", "app"), matchKeys("hash"))),
		"no keys":        incoming("app=web hash=1", spread(1, "zone", web)),
		"all pods":       incoming("app=web hash=1", spread(1, "zone", selects())),
		"no pods":        incoming("app=web hash=1", spread(1, "zone", nil)),
	}
	others["taints, tolerated"] = withToleration(others["taints"], "gpu")
	signed := map[string]string{sign(first): "first"}
	for name, pod := range others {
		signature := sign(pod)
		require.NotContains(t, signed, signature, name)
		signed[signature] = name
	}
}

// TestPodsSignedAlikeAreFilteredAlike draws pairs of pods that differ in something or in nothing that matters: those with
// one signature get one verdict on every node. That a batch may be offered to a pod rests on it.
func TestPodsSignedAlikeAreFilteredAlike(t *testing.T) {
	alike, telling, different := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := newCluster(ctx)
		profiles := newProfiles(ctx, t, c)
		for range rapid.SampledFrom([]int{4, 8, 16}).Draw(t, "nodes") {
			c.mutateNode(t, "add node")
		}
		for range 3 * len(c.nodes) {
			c.mutate(t)
		}
		c.must(t, c.cache.UpdateSnapshot(c.logger, c.snapshot))
		for range 50 {
			pair := rapid.SampledFrom(profiles).Draw(t, "profile")
			one := c.drawIncoming(t)
			for i := range one.Spec.TopologySpreadConstraints {
				one.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = v1.DoNotSchedule
			}
			other := c.changeIncoming(t, one)
			first, status := pair.Ours.SignPod(ctx, one)
			if !status.IsSuccess() {
				continue
			}
			second, status := pair.Ours.SignPod(ctx, other)
			if !status.IsSuccess() || !cmp.Equal(first, second) {
				different++
				continue
			}
			want, err := Run(ctx, pair.Ours, pair.Lister, one, nil)
			c.must(t, err)
			got, err := Run(ctx, pair.Ours, pair.Lister, other, nil)
			c.must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("both have the signature %v:\n%+v\n%+v\n%s", first, one, other, diff)
			}
			alike++
			for _, verdict := range want.Filter {
				if verdict != "Success" {
					telling++
					break
				}
			}
		}
	})
	t.Logf("%d pairs signed alike, %d of them refused a node; %d signed differently or not at all", alike, telling, different)
	require.Greater(t, telling, 100)
	require.Greater(t, different, 100)
}

// changeIncoming returns a copy of a pod with one part of another pod, or with a constraint that is changed in one field.
func (c *cluster) changeIncoming(t *rapid.T, pod *v1.Pod) *v1.Pod {
	p, donor := pod.DeepCopy(), c.drawIncoming(t)
	p.Name, p.UID = donor.Name, donor.UID
	switch pick(t, "change", "nothing", "namespace", "labels", "other label", "node selector", "affinity", "tolerations", "constraint", "constraint") {
	case "namespace":
		p.Namespace = donor.Namespace
	case "labels":
		p.Labels = donor.Labels
	case "other label":
		p.Labels["name"] = p.Name
	case "node selector":
		p.Spec.NodeSelector = donor.Spec.NodeSelector
	case "affinity":
		p.Spec.Affinity = donor.Spec.Affinity
	case "tolerations":
		p.Spec.Tolerations = donor.Spec.Tolerations
	case "constraint":
		if len(p.Spec.TopologySpreadConstraints) == 0 {
			break
		}
		at := &p.Spec.TopologySpreadConstraints[0]
		drawn := drawConstraint(t)
		switch pick(t, "field", "key", "maxSkew", "minDomains", "selector", "matchLabelKeys", "affinityPolicy", "taintsPolicy") {
		case "key":
			at.TopologyKey = drawn.TopologyKey
		case "maxSkew":
			at.MaxSkew = drawn.MaxSkew
		case "minDomains":
			at.MinDomains = new(pick[int32](t, "minDomains", 1, 2, 5, 20))
		case "selector":
			at.LabelSelector = drawn.LabelSelector
		case "matchLabelKeys":
			at.MatchLabelKeys = drawn.MatchLabelKeys
		case "affinityPolicy":
			at.NodeAffinityPolicy = drawn.NodeAffinityPolicy
		case "taintsPolicy":
			at.NodeTaintsPolicy = drawn.NodeTaintsPolicy
		}
	}
	return p
}
