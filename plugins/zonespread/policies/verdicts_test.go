package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// TestDirect counts what counts: live pods of the namespace that match, on eligible nodes and on all.
func TestDirect(t *testing.T) {
	nodes := newNodes("a1", "a2", "b1", "c1")
	nodes[1].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	nodes[2].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectPreferNoSchedule}}
	nodes[3].Labels["arch"] = "arm64"
	nowhere := newNode("n1")
	delete(nowhere.Labels, zoneLabel)
	terminating := newPod("terminating", "a1")
	terminating.DeletionTimestamp = &metav1.Time{Time: start}
	elsewhere := newPod("elsewhere", "a1")
	elsewhere.Namespace = "bank"
	unlike := newPod("unlike", "a1")
	unlike.Labels = nil
	infos := snapshot(append(nodes, nowhere), newPod("1", "a1"), newPod("2", "a2"), newPod("3", "a2"), newPod("4", "b1"),
		newPod("5", "c1"), newPod("6", "n1"), terminating, elsewhere, unlike)

	pod := newPod("p", "")
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "arch", Operator: v1.NodeSelectorOpDoesNotExist}}}},
	}}}
	tolerant := pod.DeepCopy()
	tolerant.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
	excluded := policy.Domain{Name: "c", AllPods: 1, Excluded: true}
	for name, c := range map[string]struct {
		pod              *v1.Pod
		affinity, taints bool
		want             []policy.Domain
	}{
		"honor both":        {pod, true, true, []policy.Domain{{Name: "a", Pods: 1, AllPods: 3, Eligible: true}, {Name: "b", Pods: 1, AllPods: 1, Eligible: true}, excluded}},
		"honor, tolerating": {tolerant, true, true, []policy.Domain{{Name: "a", Pods: 3, AllPods: 3, Eligible: true}, {Name: "b", Pods: 1, AllPods: 1, Eligible: true}, excluded}},
		"ignore affinity":   {pod, false, true, []policy.Domain{{Name: "a", Pods: 1, AllPods: 3, Eligible: true}, {Name: "b", Pods: 1, AllPods: 1, Eligible: true}, {Name: "c", Pods: 1, AllPods: 1, Eligible: true}}},
		"ignore taints":     {pod, true, false, []policy.Domain{{Name: "a", Pods: 3, AllPods: 3, Eligible: true}, {Name: "b", Pods: 1, AllPods: 1, Eligible: true}, excluded}},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := policy.Compile(newPolicy("web"))
			require.Empty(t, errs)
			got := Direct{Nodes: infos}.Domains(Query{Pod: c.pod, Selector: p.SelectorFor(c.pod.Labels), TopologyKey: zoneLabel, HonorAffinity: c.affinity, HonorTaints: c.taints})
			require.Empty(t, cmp.Diff(c.want, got, cmpopts.SortSlices(func(a, b policy.Domain) bool { return a.Name < b.Name })))
		})
	}
	tainted := newNodes("d1", "d2")
	for _, node := range tainted {
		node.Spec.Taints = nodes[1].Spec.Taints
	}
	require.Equal(t, []policy.Domain{{Name: "d"}}, Direct{Nodes: snapshot(tainted)}.Domains(Query{Pod: pod, Selector: everything, TopologyKey: zoneLabel, HonorAffinity: true, HonorTaints: true}),
		"a tainted zone is not excluded: it may come back")
}

// TestSeveralPolicies: hard rules of all hold, scores are the mean, the message names the policy that refuses.
func TestSeveralPolicies(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	nodes = append(nodes, newNode("x1"))
	delete(nodes[3].Labels, zoneLabel)
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("cap", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "b", MaxPods: ptr.To[int32](1)}}
		s.MaxSkew = 100
	}))
	w.add(newPolicy("skew"))
	w.add(newPolicy("forbid", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "c", Weight: ptr.To[int32](0)}}
		s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
	}))
	pod := newPod("p", "")
	on := []*v1.Pod{w.createPod(newPod("1", "a1")), w.createPod(newPod("2", "a1")), w.createPod(newPod("3", "b1"))}
	v := w.Judge(pod, Direct{Nodes: snapshot(nodes, on...)}, false)

	a, b, x := v.Check(nodes[0]), v.Check(nodes[1]), v.Check(nodes[3])
	require.Equal(t, fwk.Unschedulable, a.Code())
	require.Equal(t, "policy shop/skew: zone a holds 2 of 4, share 1.3, maxSkew 1 over zone c with 0 of weight 1", a.Message())
	require.Equal(t, "policy shop/cap: zone b holds 1 of 4, share 1.3, cap 1 (maxPods)", b.Message())
	require.Nil(t, v.Check(nodes[2]), "a soft policy refuses nothing")
	require.Equal(t, fwk.UnschedulableAndUnresolvable, x.Code())
	require.Same(t, a, v.Check(nodes[0]), "one refusal for a zone")
	require.Same(t, x, v.Check(nodes[3]), "one refusal for the nodes without a zone")
	require.NotSame(t, a, v.Clone().Check(nodes[0]), "a clone may come to differ")

	scores := v.Scores(nodes)
	require.Len(t, scores, 4)
	require.Zero(t, scores[3])
	for _, score := range scores {
		require.LessOrEqual(t, score, fwk.MaxScore)
	}
	require.Positive(t, scores[0])
	require.Less(t, scores[2], scores[0]+100)
}

// TestAddAndClone: preemption tries out changes, and its copy is its own.
func TestAddAndClone(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("web"))
	pod := newPod("p", "")
	victim := newPod("victim", "a1")
	v := w.Judge(pod, Direct{Nodes: snapshot(nodes, victim, newPod("2", "b1"))}, false)
	require.NotNil(t, v.Check(nodes[0]))

	try := v.Clone()
	terminating := victim.DeepCopy()
	terminating.DeletionTimestamp = &metav1.Time{Time: start}
	elsewhere := victim.DeepCopy()
	elsewhere.Namespace = "bank"
	unlike := victim.DeepCopy()
	unlike.Labels = nil
	for _, other := range []*v1.Pod{terminating, elsewhere, unlike} {
		try.Add(other, nodes[0], -1)
		require.NotNil(t, try.Check(nodes[0]))
	}
	try.Add(victim, nodes[0], -1)
	require.Nil(t, try.Check(nodes[0]))
	require.NotNil(t, v.Check(nodes[0]), "the original stays")
	try.Add(victim, nodes[0], 1)
	require.NotNil(t, try.Check(nodes[0]))
	try.Add(victim, nil, 1) // a node that is gone
}

// TestPolicyChangesDuringACycle: the pod is judged by the policy that it was found with, whatever becomes of it.
func TestPolicyChangesDuringACycle(t *testing.T) {
	nodes := newNodes("a1", "b1")
	w := newWorld(t, asObjects(nodes)...)
	obj := newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromString("50%")) })
	w.add(obj)
	pod := newPod("p", "")
	infos := snapshot(nodes, newPod("1", "a1"))
	v := w.Judge(pod, changing{Direct{Nodes: infos}, func() {
		w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = -1 })
	}}, false)
	require.NotNil(t, v.Check(nodes[0]))
	require.Nil(t, w.Judge(pod, Direct{Nodes: infos}, false), "rejected now")

	w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 1 })
	v = w.Judge(pod, changing{Direct{Nodes: infos}, func() { w.api.handler.OnDelete(w.api.stored(obj.UID)) }}, false)
	w.Attempt(pod, v, infos, statuses{absent: refusedBy("NodeResourcesFit")})
	w.Took(pod, nodes[0])
	require.Nil(t, w.Judge(pod, Direct{Nodes: infos}, false))
}

// changing does something while pods are counted.
type changing struct {
	Counter
	do func()
}

func (c changing) Domains(q Query) []policy.Domain {
	c.do()
	return c.Counter.Domains(q)
}
