package manifests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/build"
)

// constrained is a namespace of the policies of testAutoscalerConstraints.
const constrained = "constrained"

// testAutoscalerConstraints: pods get a constraint from the policy that selects them, if a constraint can say what the
// policy says, and members of a gang that has to be in one zone an affinity.
func (c *cluster) testAutoscalerConstraints(t *testing.T) {
	for _, name := range []string{constrained, "free"} {
		c.make(t, &corev1.Namespace{ObjectMeta: named(name)})
	}
	files := []string{"-f", "components/autoscaler-constraints/policies.yaml", "-f", "components/autoscaler-constraints/gangs.yaml", "-f", "components/autoscaler-constraints/nativegangs.yaml"}
	c.mustRun(t, append([]string{"apply", "--server-side", "--validate=strict"}, files...)...)
	for name, annotation := range map[string]string{"packed": corev1.LabelTopologyZone, "racked": "rack"} {
		c.make(t, &schedv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: constrained, Name: name, Annotations: map[string]string{podgroup.RequiredTopologyAnnotation: annotation}},
			Spec:       schedv1alpha1.PodGroupSpec{MinMember: 1},
		})
	}
	for name, spec := range map[string]string{
		"even":      "{podSelector: {matchLabels: {app: even}}, maxSkew: 2, zones: [{name: a}, {name: b, maxPods: 3}]}",
		"capped":    "{podSelector: {matchLabels: {app: capped}}, maxSkew: 9, maxPerZone: 40%}",
		"quorum":    "{podSelector: {matchLabels: {app: quorum}}, maxSkew: 9, quorumSafe: true}",
		"weighted":  "{podSelector: {matchLabels: {app: weighted}}, zones: [{name: a, weight: 7}, {name: b, weight: 3}]}",
		"only":      "{podSelector: {matchLabels: {app: only}}, zones: [{name: a}, {name: b}], defaultWeight: 0}",
		"racks":     "{podSelector: {matchLabels: {app: racks}}, topologyKey: rack}",
		"gangs":     "{podSelector: {matchLabels: {app: gangs}}, unit: PodGroup}",
		"revisions": "{podSelector: {matchLabels: {app: revisions, pod-template-hash: x}}, matchLabelKeys: [pod-template-hash, track], nodeTaintsPolicy: Ignore}",
		"expressions": "{podSelector: {matchExpressions: [{key: tier, operator: In, values: [front, back]}, {key: env, operator: NotIn, values: [test]}," +
			" {key: owner, operator: Exists}, {key: canary, operator: DoesNotExist}]}}",
	} {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte("{apiVersion: zonewise.dev/v1alpha1, kind: ZoneSpreadPolicy, metadata: {name: "+name+"}, spec: "+spec+"}"), &u.Object))
		u.SetNamespace(constrained)
		require.NoError(t, c.api.Create(t.Context(), u, client.FieldValidation(metav1.FieldValidationStrict)))
	}
	create := func(namespace string, labels map[string]string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: namespace, Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if change != nil {
			change(pod)
		}
		require.NoError(t, c.api.Create(t.Context(), pod, client.DryRunAll))
		return pod
	}
	// The API server reads its own policies and the ZoneSpreadPolicies after a while. They come together.
	until(t, "the policies are in force", func(context.Context) (bool, error) {
		for _, labels := range []map[string]string{{"app": "even"}, {"app": "capped"}, {"app": "quorum"}, {"app": "revisions", "pod-template-hash": "x"}, {"tier": "front", "owner": "me"}} {
			if len(create(constrained, labels, nil).Spec.TopologySpreadConstraints) == 0 {
				return false, nil
			}
		}
		return create(constrained, map[string]string{v1alpha1.PodGroupLabel: "packed"}, nil).Spec.Affinity != nil, nil
	})

	honor, ignore := ptr.To(corev1.NodeInclusionPolicyHonor), ptr.To(corev1.NodeInclusionPolicyIgnore)
	even := corev1.TopologySpreadConstraint{
		MaxSkew: 2, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": "even"}},
		MatchLabelKeys: []string{"pod-template-hash", "rollouts-pod-template-hash"}, NodeAffinityPolicy: honor, NodeTaintsPolicy: honor,
	}
	ofRevision := *even.DeepCopy() // the API server adds the value
	ofRevision.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pod-template-hash", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}}
	revisions := corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": "revisions", "pod-template-hash": "x"}},
		MatchLabelKeys: []string{"track"}, NodeAffinityPolicy: honor, NodeTaintsPolicy: ignore,
	}
	cappedOf := func(app string) corev1.TopologySpreadConstraint {
		out := *even.DeepCopy()
		out.MaxSkew, out.LabelSelector.MatchLabels["app"] = 1, app
		return out
	}
	overZones := build.OverZones("even", 1, corev1.DoNotSchedule)
	overHosts := overZones
	overHosts.TopologyKey = corev1.LabelHostname
	own := func(constraint corev1.TopologySpreadConstraint) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"team": "shop"}
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{constraint}
		}
	}
	for _, tc := range []struct {
		name      string
		namespace string
		labels    map[string]string
		change    func(*corev1.Pod)
		want      []corev1.TopologySpreadConstraint
		unshown   bool // the annotation is not there
	}{
		{name: "an even policy", labels: map[string]string{"app": "even"}, want: []corev1.TopologySpreadConstraint{even}},
		{name: "a cap", labels: map[string]string{"app": "capped"}, want: []corev1.TopologySpreadConstraint{cappedOf("capped")}},
		{name: "a majority", labels: map[string]string{"app": "quorum"}, want: []corev1.TopologySpreadConstraint{cappedOf("quorum")}},
		{name: "a pod of a Deployment", labels: map[string]string{"app": "even", "pod-template-hash": "1"}, want: []corev1.TopologySpreadConstraint{ofRevision}},
		{name: "beside a constraint of its own", labels: map[string]string{"app": "even"}, change: own(overHosts), want: []corev1.TopologySpreadConstraint{overHosts, even}},
		{
			name: "a constraint of its own over zones", labels: map[string]string{"app": "even"}, change: own(overZones), want: []corev1.TopologySpreadConstraint{overZones}, unshown: true,
		},
		{name: "a key that is in the selector", labels: map[string]string{"app": "revisions", "pod-template-hash": "x"}, want: []corev1.TopologySpreadConstraint{revisions}},
		{name: "unequal weights", labels: map[string]string{"app": "weighted"}, unshown: true},
		{name: "forbidden zones", labels: map[string]string{"app": "only"}, unshown: true},
		{name: "racks", labels: map[string]string{"app": "racks"}, unshown: true},
		{name: "gangs", labels: map[string]string{"app": "gangs"}, unshown: true},
		{name: "another value", labels: map[string]string{"app": "other"}, unshown: true},
		{name: "no labels", unshown: true},
		{name: "another namespace", namespace: "free", labels: map[string]string{"app": "even"}, unshown: true},
		{name: "not in", labels: map[string]string{"tier": "middle", "owner": "me"}, unshown: true},
		{name: "in what is excluded", labels: map[string]string{"tier": "front", "owner": "me", "env": "test"}, unshown: true},
		{name: "what has to exist does not", labels: map[string]string{"tier": "front"}, unshown: true},
		{name: "what must not exist does", labels: map[string]string{"tier": "front", "owner": "me", "canary": ""}, unshown: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			namespace := constrained
			if tc.namespace != "" {
				namespace = tc.namespace
			}
			got := create(namespace, tc.labels, tc.change)
			require.Equal(t, tc.want, got.Spec.TopologySpreadConstraints)
			key, shown := got.Annotations[v1alpha1.ShownToAutoscalersAnnotation]
			require.Equal(t, !tc.unshown, shown)
			if shown {
				require.Equal(t, corev1.LabelTopologyZone, key)
			}
			if tc.change != nil {
				require.Equal(t, "shop", got.Annotations["team"])
			}
		})
	}
	selected := create(constrained, map[string]string{"tier": "back", "owner": "me", "env": "live"}, nil)
	require.Len(t, selected.Spec.TopologySpreadConstraints, 1)
	require.Len(t, selected.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions, 4)
	both := create(constrained, map[string]string{"app": "even", "tier": "back", "owner": "me"}, nil)
	require.Len(t, both.Spec.TopologySpreadConstraints, 1, "the API server takes one constraint over a key")

	// Gangs.
	inOneZone := corev1.PodAffinityTerm{
		TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.PodGroupLabel: "packed"}},
	}
	member := map[string]string{v1alpha1.PodGroupLabel: "packed"}
	affinity := func(labels map[string]string, own *corev1.Affinity) *corev1.Affinity {
		return create(constrained, labels, func(pod *corev1.Pod) { pod.Spec.Affinity = own }).Spec.Affinity
	}
	packed := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{inOneZone}}}
	require.Equal(t, packed, affinity(member, nil))
	require.Nil(t, affinity(map[string]string{v1alpha1.PodGroupLabel: "racked"}, nil))
	require.Nil(t, affinity(map[string]string{v1alpha1.PodGroupLabel: "none"}, nil))
	require.Equal(t, packed, affinity(member, packed.DeepCopy()), "it has it already")
	beside := packed.DeepCopy()
	beside.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = corev1.LabelHostname
	got := affinity(member, beside.DeepCopy())
	require.Equal(t, []corev1.PodAffinityTerm{beside.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0], inOneZone},
		got.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	c.mustRun(t, append([]string{"delete"}, files...)...)
}
