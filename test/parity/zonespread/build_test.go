package parity

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/crdtest"
)

const zone, host = v1.LabelTopologyZone, v1.LabelHostname

// labelAlias lets the cases write the long keys short.
var labelAlias = map[string]string{"zone": zone, "host": host}

// node reads "name zone=z1 host=n1 disk=ssd !gpu:NoSchedule": labels, and taints after an exclamation mark.
func node(t testing.TB, line string) *v1.Node {
	t.Helper()
	words := strings.Fields(line)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], UID: types.UID("node-" + words[0]), Labels: map[string]string{}}}
	for _, word := range words[1:] {
		if taint, ok := strings.CutPrefix(word, "!"); ok {
			key, effect, _ := strings.Cut(taint, ":")
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffect(effect)})
			continue
		}
		addLabel(n.Labels, word)
	}
	return n
}

func addLabel(labels map[string]string, word string) {
	key, value, _ := strings.Cut(word, "=")
	if long, ok := labelAlias[key]; ok {
		key = long
	}
	labels[key] = value
}

// pods reads "node-a app=web ns:other terminating x3": the node, labels, and what else is special.
func pods(t testing.TB, lines []string) []*v1.Pod {
	t.Helper()
	var all []*v1.Pod
	for i, line := range lines {
		words := strings.Fields(line)
		proto := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{}}}
		proto.Spec.NodeName = words[0]
		copies := 1
		for _, word := range words[1:] {
			if ns, ok := strings.CutPrefix(word, "ns:"); ok {
				proto.Namespace = ns
			} else if word == "terminating" {
				proto.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			} else if n, err := strconv.Atoi(strings.TrimPrefix(word, "x")); err == nil && word[0] == 'x' {
				copies = n
			} else {
				addLabel(proto.Labels, word)
			}
		}
		for j := range copies {
			p := proto.DeepCopy()
			p.Name = fmt.Sprintf("pod-%d-%d", i, j)
			p.UID = types.UID(p.Name)
			all = append(all, p)
		}
	}
	return all
}

// setUp returns both plugins on a cluster of nodes and pods, and the cluster for a recount.
func setUp(t testing.TB, options Options, nodeLines, podLines []string) (*Pair, Recount) {
	t.Helper()
	what := Recount{Pods: pods(t, podLines)}
	for _, line := range nodeLines {
		what.Nodes = append(what.Nodes, node(t, line))
	}
	pair, err := NewPair(t.Context(), cache.NewSnapshot(what.Pods, what.Nodes), options)
	require.NoError(t, err)
	return pair, what
}

// withPolicies returns both plugins on a snapshot, and a source of policies.
func withPolicies(t testing.TB, lister fwk.SharedLister, objects ...runtime.Object) (*Pair, *crdtest.Source) {
	t.Helper()
	handle, err := NewHandle(t.Context(), lister, objects...)
	require.NoError(t, err)
	source := ServePolicies(t.Context(), handle)
	pair, err := NewPairOn(t.Context(), handle, Options{})
	require.NoError(t, err)
	return pair, source
}

// policyFor is a ZoneSpreadPolicy for the pods with the label foo.
func policyFor(name string, zones ...v1alpha1.ZoneSpreadZone) *v1alpha1.ZoneSpreadPolicy {
	return &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Generation: 1},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: *selects("foo"), Zones: zones},
	}
}

// incoming reads labels "app=web ns:other" of the pod to schedule, which gets the constraints.
func incoming(words string, constraints ...v1.TopologySpreadConstraint) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "incoming", UID: "incoming", Namespace: "default", Labels: map[string]string{}}}
	for word := range strings.FieldsSeq(words) {
		if ns, ok := strings.CutPrefix(word, "ns:"); ok {
			p.Namespace = ns
			continue
		}
		addLabel(p.Labels, word)
	}
	p.Spec.TopologySpreadConstraints = constraints
	return p
}

// spread makes a hard constraint; options change it.
func spread(maxSkew int32, key string, selector *metav1.LabelSelector, options ...func(*v1.TopologySpreadConstraint)) v1.TopologySpreadConstraint {
	if long, ok := labelAlias[key]; ok {
		key = long
	}
	c := v1.TopologySpreadConstraint{MaxSkew: maxSkew, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector}
	for _, o := range options {
		o(&c)
	}
	return c
}

func soft(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway }

func minDomains(n int32) func(*v1.TopologySpreadConstraint) {
	return func(c *v1.TopologySpreadConstraint) { c.MinDomains = &n }
}

func affinity(p v1.NodeInclusionPolicy) func(*v1.TopologySpreadConstraint) {
	return func(c *v1.TopologySpreadConstraint) { c.NodeAffinityPolicy = &p }
}

func taints(p v1.NodeInclusionPolicy) func(*v1.TopologySpreadConstraint) {
	return func(c *v1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &p }
}

func matchKeys(keys ...string) func(*v1.TopologySpreadConstraint) {
	return func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = keys }
}

// selects makes a label selector of "key=value" and "key" (exists) words.
func selects(words ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if ok {
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[key] = value
			continue
		}
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
	}
	return s
}

func withNodeSelector(p *v1.Pod, key, value string) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeSelector = map[string]string{key: value}
	return p
}

func withNodeAffinity(p *v1.Pod, key string, op v1.NodeSelectorOperator, values ...string) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}},
	}}}
	return p
}

func withToleration(p *v1.Pod, key string) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
	return p
}

// softened returns the pod with all of its constraints as preferences.
func softened(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for i := range p.Spec.TopologySpreadConstraints {
		p.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = v1.ScheduleAnyway
		p.Spec.TopologySpreadConstraints[i].MinDomains = nil
	}
	return p
}
