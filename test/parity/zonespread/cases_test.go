package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

const honor, ignore = v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore

var fourNodes = []string{"a zone=z1 host=a", "b zone=z1 host=b", "x zone=z2 host=x", "y zone=z2 host=y"}

// clusters are the shapes of PodTopologySpread's own unit tests: spreads over zones and hosts, missing
// labels, other namespaces, terminating pods, tainted and labelled nodes.
func clusters() map[string]struct{ nodes, pods []string } {
	type cluster = struct{ nodes, pods []string }
	return map[string]cluster{
		"no nodes":            {nil, nil},
		"one node":            {fourNodes[:1], []string{"a foo x2"}},
		"no pods":             {fourNodes, nil},
		"3/3 zones":           {fourNodes, []string{"a foo x2", "b foo", "y foo x3"}},
		"3/4 zones":           {fourNodes, []string{"a foo x2", "b foo", "y foo x4"}},
		"2/1/0/3 hosts":       {fourNodes, []string{"a foo bar x2", "b foo", "y foo x3"}},
		"2/2/2/2 hosts":       {fourNodes, []string{"a foo x2", "b foo x2", "x foo x2", "y foo x2"}},
		"0/0/1/1 bar":         {fourNodes, []string{"a foo", "x bar", "y bar"}},
		"1/0/0/1 mixed":       {fourNodes, []string{"a foo bar", "y bar", "x foo ns:other x3"}},
		"crossed values":      {fourNodes, []string{"a foo bar", "b foo=1 bar=1 x2", "x foo=2", "y bar=2 baz x2"}},
		"other namespaces":    {fourNodes, []string{"a foo ns:ns1", "a foo ns:ns2", "x foo", "y foo"}},
		"terminating":         {fourNodes, []string{"a foo terminating x3", "b bar terminating", "y foo"}},
		"three zones":         {append([]string{"k zone=z3 host=k", "l zone=z3 host=l"}, fourNodes...), []string{"a foo x2", "b foo", "x foo", "k foo x4"}},
		"host missing on y":   {[]string{fourNodes[0], fourNodes[1], fourNodes[2], "y zone=z2"}, []string{"a foo bar", "y foo", "y foo bar x2"}},
		"zone missing on b":   {[]string{fourNodes[0], "b host=b", fourNodes[2], fourNodes[3]}, []string{"a foo", "b foo", "x foo", "x foo"}},
		"zone missing on all": {[]string{"a host=a", "b host=b", "x host=x", "y host=y"}, []string{"a foo x3", "b foo", "y foo bar"}},
		"empty zone value":    {[]string{"a zone= host=a", "b host=b", fourNodes[2], fourNodes[3]}, []string{"a foo", "b foo x2", "x foo bar"}},
		"labelled nodes": {
			[]string{"a zone=z1 host=a foo=1", "b zone=z1 host=b foo=2", "x zone=z2 host=x", "y zone=z2 host=y disk=ssd"},
			[]string{"a foo x2", "b foo", "x foo x4", "y foo"},
		},
		"tainted nodes": {
			[]string{fourNodes[0], "b zone=z1 host=b !gpu:NoSchedule", "x zone=z2 host=x !soft:PreferNoSchedule", "y zone=z3 host=y !out:NoExecute"},
			[]string{"a foo x2", "b foo", "x foo x3", "y bar foo"},
		},
		"revisions": {fourNodes, []string{"a foo hash=1 x3", "b foo hash=2", "x foo hash=2 x2", "y foo x2", "y hash=1"}},
	}
}

// incomingPods are the constraints of those tests; each also runs as a preference.
func incomingPods() map[string]*v1.Pod {
	foo, bar := selects("foo"), selects("bar")
	base := map[string]*v1.Pod{
		"no constraint":        incoming("foo"),
		"zone":                 incoming("foo", spread(1, "zone", foo)),
		"zone skew 2":          incoming("foo", spread(2, "zone", foo)),
		"zone skew 5":          incoming("foo", spread(5, "zone", foo)),
		"host":                 incoming("foo", spread(1, "host", foo)),
		"host skew 2":          incoming("foo", spread(2, "host", foo)),
		"host skew 3":          incoming("foo", spread(3, "host", foo)),
		"not its own match":    incoming("bar", spread(1, "zone", foo)),
		"other namespace":      incoming("foo ns:ns1", spread(1, "host", foo)),
		"nil selector":         incoming("foo", spread(1, "zone", nil)),
		"value selector":       incoming("foo=1", spread(1, "zone", selects("foo=1"))),
		"unknown key":          incoming("foo", spread(1, "rack", foo)),
		"zone and host":        incoming("foo bar", spread(1, "zone", foo), spread(1, "host", foo)),
		"zone foo, host bar":   incoming("foo bar", spread(1, "zone", foo), spread(1, "host", bar)),
		"zone bar, host foo":   incoming("foo", spread(1, "zone", bar), spread(1, "host", foo)),
		"zone twice":           incoming("foo bar", spread(1, "zone", foo), spread(2, "zone", bar)),
		"zone and unknown":     incoming("foo", spread(1, "zone", foo), spread(1, "rack", foo)),
		"hard zone, soft host": incoming("foo", spread(1, "zone", foo), spread(1, "host", foo, soft)),
		"soft zone, hard host": incoming("foo", spread(2, "host", foo), spread(4, "zone", bar, soft)),
		"minDomains 2":         incoming("foo", spread(2, "zone", foo, minDomains(2))),
		"minDomains 3":         incoming("foo", spread(2, "zone", foo, minDomains(3))),
		"minDomains 4 hosts":   incoming("foo", spread(2, "host", foo, minDomains(4))),
		"minDomains 5 hosts":   incoming("foo", spread(2, "host", foo, minDomains(5))),
		"match hash":           incoming("foo hash=1", spread(1, "zone", foo, matchKeys("hash"))),
		"match hash 2, host":   incoming("foo hash=2", spread(1, "host", foo, matchKeys("hash", "absent"))),
		"match absent":         incoming("foo", spread(1, "zone", foo, matchKeys("hash"))),
		"match, nil selector":  incoming("foo hash=1", spread(1, "zone", nil, matchKeys("hash"))),
		"match, empty":         incoming("foo hash=1", spread(1, "zone", selects(), matchKeys("hash"))),
		"hash merged twice":    incoming("foo hash=1", spread(1, "zone", selects("foo", "hash=1"), matchKeys("hash"))),
	}
	for _, a := range []v1.NodeInclusionPolicy{honor, ignore} {
		for _, tp := range []v1.NodeInclusionPolicy{honor, ignore} {
			zones := incoming("foo", spread(1, "zone", foo, affinity(a), taints(tp)))
			mixed := incoming("foo", spread(1, "zone", foo, affinity(honor), taints(tp)), spread(1, "host", foo, affinity(a), taints(ignore)))
			policies := string(a) + "/" + string(tp)
			base["zones "+policies] = zones
			base["mixed "+policies] = mixed
			base["zones by label "+policies] = withNodeSelector(zones, "foo", "1")
			base["mixed by label "+policies] = withNodeSelector(mixed, "foo", "2")
			base["zones by affinity "+policies] = withNodeAffinity(zones, "foo", v1.NodeSelectorOpExists)
			base["hosts by affinity "+policies] = withNodeAffinity(mixed, host, v1.NodeSelectorOpIn, "a", "y")
			base["malformed affinity "+policies] = withNodeAffinity(zones, "foo", v1.NodeSelectorOpGt, "not a number")
			base["tolerant "+policies] = withToleration(zones, "gpu")
			base["tolerant, mixed "+policies] = withToleration(withToleration(mixed, "gpu"), "out")
		}
	}
	all := map[string]*v1.Pod{}
	for name, p := range base {
		all[name] = p
		all["preferred: "+name] = softened(p)
	}
	return all
}

// TestCasesEqualInTree compares every pod on every cluster, with the nodes that fit as candidates, all
// nodes, and only some of them.
func TestCasesEqualInTree(t *testing.T) {
	seen := map[string]int{}
	candidates := map[string]func(string) bool{
		"fitting": nil,
		"all":     func(string) bool { return true },
		"some":    func(name string) bool { return name != "b" && name != "k" },
	}
	for clusterName, cluster := range clusters() {
		pair, what := setUp(t, Options{}, cluster.nodes, cluster.pods)
		for podName, pod := range incomingPods() {
			for candidateName, keep := range candidates {
				name := clusterName + "/" + podName + "/" + candidateName
				want := pair.requireSame(t, name, pod, pod, keep)
				for _, code := range want.Filter {
					seen[code]++
				}
				seen["graded score"] += want.graded()
				if candidateName == "fitting" {
					requireRecount(t, name, what, pod, want)
				}
			}
		}
	}
	// A comparison in which all nodes always fit would show nothing.
	for _, kind := range []string{
		"Success",
		"Unschedulable node(s) didn't match pod topology spread constraints",
		"UnschedulableAndUnresolvable node(s) didn't match pod topology spread constraints (missing required label)",
		"graded score",
	} {
		require.Greater(t, seen[kind], 500, "how often %q was seen", kind)
	}
}

// requireRecount holds the recount, which other tests use as the oracle, against an outcome.
func requireRecount(t require.TestingT, name string, r Recount, pod *v1.Pod, want Outcome) {
	var candidates []*v1.Node
	for _, n := range r.Nodes {
		if want.Filter[n.Name] == "Success" {
			candidates = append(candidates, n)
		}
	}
	for nodeName, verdict := range r.Hard(pod) {
		require.Contains(t, want.Filter[nodeName]+" ", string(verdict)+" ", "%s: recount of node %s", name, nodeName)
	}
	scores := want.Scores
	if len(r.Nodes) == 0 {
		return
	}
	require.Empty(t, cmp.Diff(scores, r.Soft(pod, candidates)), "%s: recounted scores", name)
}

// requireSame runs a cycle of each plugin with a pod of its own, which may be one, and returns the outcome of both.
func (p *Pair) requireSame(t *testing.T, name string, theirs, ours *v1.Pod, keep func(string) bool) Outcome {
	t.Helper()
	want, err := Run(t.Context(), p.InTree, p.Lister, theirs, keep)
	require.NoError(t, err, name)
	got, err := Run(t.Context(), p.Ours, p.Lister, ours, keep)
	require.NoError(t, err, name)
	require.Empty(t, cmp.Diff(want, got), "%s (-in-tree +ours)", name)
	return want
}

// graded counts the scores that tell nodes apart by more than best and worst.
func (o *Outcome) graded() (scores int) {
	for _, score := range o.Scores {
		if score > 0 && score < 100 {
			scores++
		}
	}
	return scores
}

// TestSignPodEqualsInTree: opportunistic batching is on where the in-tree plugin leaves it on, with List defaulting and
// no constraints for the pods that have none of their own. That batching the others would place them worse is shown by
// the outcomes in test/framework.
func TestSignPodEqualsInTree(t *testing.T) {
	hard, preferred := spread(1, "zone", selects("foo")), spread(1, "host", selects("foo"), soft)
	signed := 0
	for name, options := range map[string]Options{
		"System":     {System: true},
		"List, none": {},
		"List, some": {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil)}},
	} {
		pair, err := NewPair(t.Context(), cache.NewSnapshot(nil, nil), options)
		require.NoError(t, err)
		for _, constraints := range [][]v1.TopologySpreadConstraint{nil, {hard}, {preferred}, {hard, preferred}} {
			pod := incoming("foo", constraints...)
			want, wantStatus := pair.InTree.SignPod(t.Context(), pod)
			got, gotStatus := pair.Ours.SignPod(t.Context(), pod)
			require.Equal(t, want, got, name)
			require.Equal(t, wantStatus.Code(), gotStatus.Code(), "%s: %v", name, constraints)
			require.Equal(t, wantStatus.Message(), gotStatus.Message())
			if gotStatus.IsSuccess() {
				signed++
			}
		}
	}
	require.Equal(t, 1, signed)
}
