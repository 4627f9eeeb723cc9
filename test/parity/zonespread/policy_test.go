package parity

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
)

// The workload that the pods with an owner belong to: a Deployment of the app web.
const (
	ownerReplicas = 7
	ownerUID      = "deployment"
)

var ownerSelector = labels.SelectorFromSet(labels.Set{"app": "web"})

func ownerObjects() (*appsv1.Deployment, *appsv1.ReplicaSet) {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: ownerUID},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](ownerReplicas), Selector: selects("app=web")},
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "set", Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": strconv.Itoa(ownerReplicas)}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: ownerUID, Controller: ptr.To(true)},
		}},
		Spec: appsv1.ReplicaSetSpec{Selector: selects("app=web")}, // as without the label of a revision
	}
	return d, set
}

// drawSpec draws a policy of every kind. What it asks of percentages is a number or the owner's.
func drawSpec(t *rapid.T) v1alpha1.ZoneSpreadPolicySpec {
	s := v1alpha1.ZoneSpreadPolicySpec{
		PodSelector:    *pick(t, "podSelector", selects("app=web"), selects("app"), selects("tier"), selects("app=web", "tier")),
		MatchLabelKeys: pick(t, "matchLabelKeys", []string{}, []string{"hash"}),
		Unit:           pick(t, "unit", v1alpha1.UnitPod, v1alpha1.UnitPod, v1alpha1.UnitPodGroup),
		MaxSkew:        pick[int32](t, "maxSkew", 1, 1, 2, 3),
		DefaultWeight:  ptr.To(pick[int32](t, "defaultWeight", 1, 1, 2, 3, 0)),
		QuorumSafe:     pick(t, "quorumSafe", false, false, true),
	}
	s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "z1", Weight: ptr.To(pick[int32](t, "weight", 1, 2, 5))}}
	if pick(t, "second zone", false, true) {
		s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: pick(t, "name", "z2", "z9"), Weight: ptr.To(pick[int32](t, "weight", 1, 3, 0))})
	}
	if n := pick[int32](t, "maxPods", 0, 0, 1, 3); n > 0 {
		s.Zones[0].MaxPods = &n
	}
	if limit := pick(t, "maxPerZone", "", "", "2", "30%", "50%"); limit != "" {
		s.MaxPerZone = ptr.To(intstr.Parse(limit))
	}
	if n := pick[int32](t, "minZones", 0, 0, 2, 4); n > 0 && *s.DefaultWeight > 0 {
		s.MinZones = &n
	}
	if r := pick(t, "replicas", "Owner", "Owner", "9"); r != "Owner" || s.Unit == v1alpha1.UnitPod {
		s.Replicas = ptr.To(intstr.Parse(r))
	} else {
		s.Replicas = ptr.To(intstr.FromInt32(4))
	}
	s.NodeAffinityPolicy = pick(t, "affinityPolicy", v1alpha1.Honor, v1alpha1.Honor, v1alpha1.Ignore)
	s.NodeTaintsPolicy = pick(t, "taintsPolicy", v1alpha1.Honor, v1alpha1.Ignore)
	return s
}

// zoneCount is what a recount finds in a zone.
type zoneCount struct {
	eligible bool
	pods     map[string]bool // on eligible nodes, by gang, or by UID
	held     map[string]bool
}

// Policy returns the verdict of each node for a pod with a policy, by a recount of every pod and the words of the
// documentation. All zones with nodes are open; owned is whether the pod is one of the workload.
func (r Recount) Policy(pod *v1.Pod, s *v1alpha1.ZoneSpreadPolicySpec, owned bool) map[string]Verdict {
	verdicts := map[string]Verdict{}
	selector, err := metav1.LabelSelectorAsSelector(&s.PodSelector)
	if err != nil {
		panic(err)
	}
	if !selector.Matches(labels.Set(pod.Labels)) {
		for _, n := range r.Nodes {
			verdicts[n.Name] = Fits
		}
		return verdicts
	}
	unit := func(p *v1.Pod) string {
		if gang := p.Labels[v1alpha1.PodGroupLabel]; gang != "" && s.Unit == v1alpha1.UnitPodGroup {
			return "gang " + gang
		}
		return "pod " + string(p.UID)
	}
	sameRevision := func(p *v1.Pod) bool {
		for _, key := range s.MatchLabelKeys {
			want, ok := pod.Labels[key]
			if got, has := p.Labels[key]; ok && (!has || got != want) {
				return false
			}
		}
		return true
	}
	hasRevision := slices.ContainsFunc(s.MatchLabelKeys, func(key string) bool { _, ok := pod.Labels[key]; return ok })
	byOwner := s.Replicas.Type == intstr.String
	replicas := int64(s.Replicas.IntVal)
	if byOwner && owned {
		replicas = ownerReplicas
	}
	holds := func(p *v1.Pod) bool {
		ours := ownerSelector.Matches(labels.Set(p.Labels))
		switch {
		case s.Unit == v1alpha1.UnitPodGroup || !owned:
			return sameRevision(p)
		case byOwner:
			return ours && sameRevision(p)
		}
		return !ours || !hasRevision || sameRevision(p)
	}

	zones := map[string]*zoneCount{}
	home := map[string]*v1.Node{}
	eligible := map[string]bool{}
	for _, n := range r.Nodes {
		name, ok := n.Labels[zone]
		if !ok {
			continue
		}
		z := zones[name]
		if z == nil {
			z = &zoneCount{pods: map[string]bool{}, held: map[string]bool{}}
			zones[name] = z
		}
		home[n.Name] = n
		affine, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
		admitted := s.NodeAffinityPolicy == v1alpha1.Ignore || affine
		untolerated := countable(pod, n, &v1.TopologySpreadConstraint{NodeAffinityPolicy: ptr.To(ignore), NodeTaintsPolicy: ptr.To(honor)}, nil)
		eligible[n.Name] = admitted && (s.NodeTaintsPolicy == v1alpha1.Ignore || untolerated)
		z.eligible = z.eligible || eligible[n.Name]
	}
	for _, p := range r.Pods {
		n := home[p.Spec.NodeName]
		if n == nil || p.Namespace != pod.Namespace || p.DeletionTimestamp != nil || !selector.Matches(labels.Set(p.Labels)) || unit(p) == unit(pod) {
			continue
		}
		z := zones[n.Labels[zone]]
		if sameRevision(p) && eligible[n.Name] {
			z.pods[unit(p)] = true
		}
		if holds(p) {
			z.held[unit(p)] = true
		}
	}

	type row struct{ pods, held, weight, cap int64 }
	rows := map[string]row{}
	rowOf := func(name string, z *zoneCount) row {
		out := row{weight: int64(*s.DefaultWeight), cap: math.MaxInt64}
		for _, d := range s.Zones {
			if d.Name == name {
				out.weight = int64(*d.Weight)
				if d.MaxPods != nil {
					out.cap = int64(*d.MaxPods)
				}
			}
		}
		if limit := s.MaxPerZone; limit != nil {
			n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(replicas), true)
			if err != nil {
				panic(err)
			}
			if limit.Type == intstr.Int || replicas > 0 {
				out.cap = min(out.cap, int64(max(n, 1)))
			}
		}
		if s.QuorumSafe && replicas > 0 {
			out.cap = min(out.cap, max(1, (replicas-1)/2))
		}
		if z != nil {
			out.held, out.pods = int64(len(z.held)), int64(len(z.pods))
		}
		return out
	}
	members, least := int64(0), row{weight: 0}
	consider := func(name string, z *zoneCount) {
		out := rowOf(name, z)
		rows[name] = out
		if z != nil && !z.eligible || out.weight == 0 {
			return // the pod's affinity or tolerations rule it out, or the policy
		}
		members++
		if out.held < out.cap && (least.weight == 0 || out.pods*least.weight < least.pods*out.weight) {
			least = out
		}
	}
	for name, z := range zones {
		consider(name, z)
	}
	for _, d := range s.Zones {
		if zones[d.Name] == nil {
			consider(d.Name, nil)
		}
	}
	short := s.MinZones != nil && members < int64(*s.MinZones)
	if short {
		if least.pods = 0; least.weight == 0 {
			least.weight = 1
		}
	}
	for _, n := range r.Nodes {
		name, ok := n.Labels[zone]
		out := rows[name]
		switch {
		case !ok || out.weight == 0:
			verdicts[n.Name] = HasNoDomain
		case out.held >= out.cap, least.weight > 0 && (out.pods+1)*least.weight-out.weight*least.pods > int64(s.MaxSkew)*least.weight:
			verdicts[n.Name] = TooSkewed
		default:
			verdicts[n.Name] = Fits
		}
	}
	return verdicts
}

// TestPoliciesEqualRecount compares what Filter says to pods with a policy with a recount, in random clusters which
// change between cycles, in the cycles of pod groups, and after each pod that is tried out on a copy of the cycle's
// state.
func TestPoliciesEqualRecount(t *testing.T) {
	refused, steps := 0, 0
	d, set := ownerObjects()
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := newCluster(ctx)
		handle, err := NewHandle(ctx, c.snapshot, d, set)
		c.must(t, err)
		source := ServePolicies(ctx, handle)
		pair, err := NewPairOn(ctx, handle, Options{})
		c.must(t, err)
		for range rapid.SampledFrom([]int{2, 4, 8, 16}).Draw(t, "nodes") {
			c.mutateNode(t, "add node")
		}
		p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		check := func(what string, pod *v1.Pod, owned bool, recount Recount, got map[string]string) {
			want := recount.Policy(pod, &p.Spec, owned)
			codes := map[string]Verdict{}
			for name, status := range got {
				for _, v := range []Verdict{Fits, HasNoDomain, TooSkewed} {
					if len(status) >= len(v) && Verdict(status[:len(v)]) == v {
						codes[name] = v
						break
					}
				}
				if codes[name] != Fits {
					refused++
				}
			}
			if diff := cmp.Diff(want, codes); diff != "" {
				t.Fatalf("%s: pod %v, owned %v, policy %+v (-recount +got):\n%s", what, pod.Labels, owned, p.Spec, diff)
			}
		}
		for range 20 {
			for range rapid.IntRange(0, 6).Draw(t, "mutations") {
				c.mutate(t)
			}
			p.Spec = drawSpec(t)
			source.Put(p)
			c.must(t, c.cache.UpdateSnapshot(c.logger, c.snapshot))
			nodes, err := pair.Lister.NodeInfos().List()
			c.must(t, err)
			pod := c.drawPod(t)
			pod.Namespace = "default"
			if pick(t, "affinity", false, false, true) {
				pod.Spec.NodeSelector = map[string]string{"disk": pick(t, "disk", "ssd", "hdd")}
			}
			if pick(t, "toleration", false, true) {
				pod = withToleration(pod, "gpu")
			}
			owned := pick(t, "owned", false, true)
			if owned {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true)}}
			}
			state := framework.NewCycleState()
			inGroup := pick(t, "in a pod group", false, false, false, true) && len(nodes) > 0
			cycle, status, err := StartIn(ctx, state, pair.Ours, pair.Lister, pod)
			c.must(t, err)
			if !status.IsSuccess() && !status.IsSkip() {
				t.Fatalf("PreFilter: %v", status)
			}
			check("cycle", pod, owned, c.recount(nodes), cycle.Filter(ctx, state))
			if inGroup {
				group, _, err := StartIn(ctx, PodGroupCycle(), pair.Ours, pair.Lister, pod)
				c.must(t, err)
				check("cycle of a pod group", pod, owned, c.recount(nodes), group.Filter(ctx, group.State))
			}
			if cycle.Skip || len(nodes) == 0 {
				continue
			}
			c.tryOut(ctx, t, cycle, func(tried Recount, got map[string]string) {
				check("tried out", pod, owned, tried, got)
				steps++
			})
		}
	})
	t.Logf("%d refused nodes, %d steps", refused, steps)
	parts := 1
	if testing.Short() {
		parts = 5 // rapid draws a fifth of the cases
	}
	require.Greater(t, refused, 5000/parts)
	require.Greater(t, steps, 1000/parts)
}

// tryOut adds and removes pods on a copy of a cycle's state, and calls check after each.
func (c *cluster) tryOut(ctx context.Context, t *rapid.T, cycle *Cycle, check func(tried Recount, got map[string]string)) {
	tried := c.recount(cycle.Nodes)
	state := cycle.State.Clone()
	for i := range rapid.IntRange(1, 5).Draw(t, "tries") {
		info := pick(t, "node", cycle.Nodes...)
		var present []*v1.Pod
		for _, p := range tried.Pods {
			if p.Spec.NodeName == info.Node().Name {
				present = append(present, p)
			}
		}
		do := cycle.Plugin.PreFilterExtensions().AddPod
		var changed *v1.Pod
		if len(present) > 0 && pick(t, "remove", false, true) {
			changed = pick(t, "victim", present...)
			do = cycle.Plugin.PreFilterExtensions().RemovePod
			tried.Pods = slices.DeleteFunc(slices.Clone(tried.Pods), func(p *v1.Pod) bool { return p.UID == changed.UID })
		} else {
			changed = c.drawPod(t)
			changed.Spec.NodeName = info.Node().Name
			changed.Name = fmt.Sprintf("tried-%d", i)
			tried.Pods = append(slices.Clone(tried.Pods), changed)
		}
		pi, err := framework.NewPodInfo(changed)
		c.must(t, err)
		if status := do(ctx, state, cycle.Pod, pi, info); !status.IsSuccess() {
			t.Fatalf("trying out: %v", status)
		}
		if pick(t, "clone", false, true) {
			state = state.Clone()
		}
		check(tried, cycle.Filter(ctx, state))
	}
}
