package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// policyCRD is the file of the ZoneSpreadPolicy API in manifests.
const policyCRD = "crds/zonewise.dev_zonespreadpolicies.yaml"

func TestZoneSpreadPolicyCRD(t *testing.T) {
	w := newPolicyWorld(t)
	c, ctx := client.NewNamespacedClient(w.cp.client, w.namespace), t.Context()

	t.Run("defaults", func(t *testing.T) { testPolicyDefaults(ctx, t, c) })
	t.Run("accepted", func(t *testing.T) { testPolicyAccepted(ctx, t, c) })
	t.Run("rejected", func(t *testing.T) { testPolicyRejected(ctx, t, c) })
	t.Run("topologyKey is immutable", func(t *testing.T) { testPolicyImmutable(ctx, t, c) })
	t.Run("status subresource", func(t *testing.T) { testPolicyStatus(ctx, t, c) })
}

func testPolicyDefaults(ctx context.Context, t *testing.T, c client.Client) {
	obj := fromYAML(t, "ZoneSpreadPolicy", "defaults", `
podSelector: {matchLabels: {app: web}}
zones: [{name: a}, {name: b, weight: 0}]`)
	require.NoError(t, c.Create(ctx, obj))

	var got v1alpha1.ZoneSpreadPolicy
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), &got))
	require.Equal(t, v1alpha1.ZoneSpreadPolicySpec{
		PodSelector:        metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		MatchLabelKeys:     []string{"pod-template-hash", "rollouts-pod-template-hash"},
		TopologyKey:        "topology.kubernetes.io/zone",
		Zones:              []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To[int32](1)}, {Name: "b", Weight: ptr.To[int32](0)}},
		DefaultWeight:      ptr.To[int32](1),
		MaxSkew:            1,
		PercentRounding:    v1alpha1.RoundUp,
		WhenUnsatisfiable:  v1alpha1.DoNotSchedule,
		NodeAffinityPolicy: v1alpha1.Honor,
		NodeTaintsPolicy:   v1alpha1.Honor,
		Unit:               v1alpha1.UnitPod,
		ScaleDownPolicy:    v1alpha1.ScaleDownIgnore,
		UnavailableZones: v1alpha1.UnavailableZones{
			DownAfter: &metav1.Duration{Duration: 2 * time.Minute},
			FullAfter: &metav1.Duration{Duration: 5 * time.Minute},
			Recovery:  v1alpha1.RecoveryGradual,
		},
	}, got.Spec)

	// A list that was emptied on purpose stays empty, also through a client that knows the Go type.
	all := fromYAML(t, "ZoneSpreadPolicy", "all-revisions", `
podSelector: {matchLabels: {app: web}}
matchLabelKeys: []`)
	require.NoError(t, c.Create(ctx, all))
	var typed v1alpha1.ZoneSpreadPolicy
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(all), &typed))
	typed.Spec.MaxSkew = 2
	require.NoError(t, c.Update(ctx, &typed))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(all), &typed))
	require.NotNil(t, typed.Spec.MatchLabelKeys)
	require.Empty(t, typed.Spec.MatchLabelKeys)

	// An object that was made with the Go type alone gets the same defaults.
	plain := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "from-go"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	require.NoError(t, c.Create(ctx, plain))
	require.Equal(t, []string{"pod-template-hash", "rollouts-pod-template-hash"}, plain.Spec.MatchLabelKeys)
	require.Equal(t, v1alpha1.RecoveryGradual, plain.Spec.UnavailableZones.Recovery)
}

func testPolicyAccepted(ctx context.Context, t *testing.T, c client.Client) {
	for name, spec := range map[string]string{
		"the-full-form": `
matchLabelKeys: [pod-template-hash, example.com/track]
topologyKey: topology.kubernetes.io/region
zones: [{name: a, weight: 7}, {name: b, weight: 3, maxPods: 40}]
defaultWeight: 0
maxSkew: 3
maxPerZone: 40%
percentRounding: Down
quorumSafe: true
minZones: 2
whenUnsatisfiable: ScheduleAnyway
nodeAffinityPolicy: Ignore
nodeTaintsPolicy: Ignore
replicas: Matching
unavailableZones: {downAfter: 30s, fullAfter: 1m30s, recovery: Gradual, recoveryWindow: 1h}`,
		"immediate":           `unavailableZones: {recovery: Immediate}`,
		"gangs":               "unit: PodGroup\nmaxPerZone: 40%\nreplicas: Matching",
		"gangs-as-number":     "unit: PodGroup\nreplicas: 12",
		"cap-as-number":       `maxPerZone: 1`,
		"cap-one-percent":     `maxPerZone: 1%`,
		"cap-all":             `maxPerZone: 100%`,
		"replicas-as-number":  `replicas: 12`,
		"sub-second-duration": `unavailableZones: {downAfter: 0.5s, fullAfter: 250ms}`,
		"min-zones-open-list": "zones: [{name: a}]\nminZones: 3",
	} {
		t.Run(name, func(t *testing.T) {
			obj := fromYAML(t, "ZoneSpreadPolicy", name, "podSelector: {matchLabels: {app: web}}\n"+spec)
			require.NoError(t, c.Create(ctx, obj))
			var typed v1alpha1.ZoneSpreadPolicy
			require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), &typed), "the Go type reads what the server accepts")
		})
	}
	require.NoError(t, c.Create(ctx, fromYAML(t, "ZoneSpreadPolicy", "by-expression",
		`podSelector: {matchExpressions: [{key: app, operator: In, values: [web, api]}]}`)))
	many := "podSelector: {matchLabels: {app: web}}\nzones:"
	for i := range 64 {
		many += "\n- {name: z" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + "}"
	}
	require.NoError(t, c.Create(ctx, fromYAML(t, "ZoneSpreadPolicy", "as-many-zones-as-allowed", many)))
}

func testPolicyRejected(ctx context.Context, t *testing.T, c client.Client) {
	const selector = "podSelector: {matchLabels: {app: web}}\n"
	for _, test := range []struct{ name, spec, field, because string }{
		{"no-selector", `maxSkew: 1`, "spec.podSelector", "Required value"},
		{"empty-selector", `podSelector: {}`, "spec.podSelector", "must not be empty"},
		{"empty-match-labels", `podSelector: {matchLabels: {}, matchExpressions: []}`, "spec.podSelector", "must not be empty"},
		{"weights-all-zero", selector + "zones: [{name: a, weight: 0}, {name: b, weight: 0}]\ndefaultWeight: 0", "spec.zones", "at least one weight must be above 0"},
		{"no-zone-allowed", selector + "defaultWeight: 0", "spec.zones", "at least one weight must be above 0"},
		{"negative-weight", selector + "zones: [{name: a, weight: -1}]", "spec.zones[0].weight", "greater than or equal to 0"},
		{"negative-default-weight", selector + "defaultWeight: -1", "spec.defaultWeight", "greater than or equal to 0"},
		{"zone-twice", selector + "zones: [{name: a}, {name: a}]", "spec.zones[1]", "Duplicate value"},
		{"zone-without-name", selector + "zones: [{weight: 1}]", "spec.zones[0].name", "Required value"},
		{"zone-name-not-a-label-value", selector + "zones: [{name: 'zone a'}]", "spec.zones[0].name", "should match"},
		{"max-pods-zero", selector + "zones: [{name: a, maxPods: 0}]", "spec.zones[0].maxPods", "greater than or equal to 1"},
		{"max-skew-zero", selector + "maxSkew: 0", "spec.maxSkew", "greater than or equal to 1"},
		{"percent-over-100", selector + "maxPerZone: 101%", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"percent-zero", selector + "maxPerZone: 0%", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"percent-malformed", selector + "maxPerZone: 40pct", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"percent-fraction", selector + "maxPerZone: 33.3%", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"percent-leading-zero", selector + "maxPerZone: 040%", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"number-as-text", selector + "maxPerZone: '4'", "spec.maxPerZone", "from \"1%\" to \"100%\""},
		{"cap-zero", selector + "maxPerZone: 0", "spec.maxPerZone", "from 1 to 1000000"},
		{"cap-negative", selector + "maxPerZone: -3", "spec.maxPerZone", "from 1 to 1000000"},
		{"cap-not-a-number", selector + "maxPerZone: true", "spec.maxPerZone", ""},
		{"rounding", selector + "percentRounding: Nearest", "spec.percentRounding", "Unsupported value"},
		{"min-zones-zero", selector + "minZones: 0", "spec.minZones", "greater than or equal to 1"},
		{"min-zones-above-a-closed-list", selector + "zones: [{name: a}, {name: b, weight: 0}]\ndefaultWeight: 0\nminZones: 2", "spec.minZones", "number of zones"},
		{"action", selector + "whenUnsatisfiable: Ignore", "spec.whenUnsatisfiable", "Unsupported value"},
		{"affinity-policy", selector + "nodeAffinityPolicy: honor", "spec.nodeAffinityPolicy", "Unsupported value"},
		{"taints-policy", selector + "nodeTaintsPolicy: Never", "spec.nodeTaintsPolicy", "Unsupported value"},
		{"replicas-word", selector + "replicas: Deployment", "spec.replicas", "Owner, Matching or a number"},
		{"replicas-zero", selector + "replicas: 0", "spec.replicas", "Owner, Matching or a number"},
		{"replicas-number-as-text", selector + "replicas: '5'", "spec.replicas", "Owner, Matching or a number"},
		{"down-after-zero", selector + "unavailableZones: {downAfter: 0s}", "spec.unavailableZones.downAfter", "above 0"},
		{"down-after-negative", selector + "unavailableZones: {downAfter: -1m}", "spec.unavailableZones.downAfter", "should match"},
		{"full-after-malformed", selector + "unavailableZones: {fullAfter: 5 minutes}", "spec.unavailableZones.fullAfter", "should match"},
		{"full-after-zero", selector + "unavailableZones: {fullAfter: 0h0m}", "spec.unavailableZones.fullAfter", "above 0"},
		{"duration-too-large-to-parse", selector + "unavailableZones: {fullAfter: 99999999999999h}", "spec.unavailableZones.fullAfter", ""},
		{"recovery", selector + "unavailableZones: {recovery: Slow}", "spec.unavailableZones.recovery", "Unsupported value"},
		{"window-without-gradual", selector + "unavailableZones: {recovery: Immediate, recoveryWindow: 1m}", "spec.unavailableZones.recoveryWindow", "only be set when recovery is Gradual"},
		{"window-zero", selector + "unavailableZones: {recoveryWindow: 0s}", "spec.unavailableZones.recoveryWindow", "above 0"},
		{"topology-key", selector + "topologyKey: 'not a key'", "spec.topologyKey", "should match"},
		{"hosts", selector + "topologyKey: kubernetes.io/hostname", "spec.topologyKey", "kubernetes.io/hostname"},
		{"unit", selector + "unit: Job", "spec.unit", "Unsupported value"},
		{"gangs-of-an-owner", selector + "unit: PodGroup\nreplicas: Owner", "spec.replicas", "PodGroup"},
		{"scale-down", selector + "scaleDownPolicy: Sometimes", "spec.scaleDownPolicy", "Unsupported value"},
		{"gangs-made-smaller", selector + "unit: PodGroup\nscaleDownPolicy: KeepSpread", "spec.scaleDownPolicy", "PodGroup"},
		{"match-label-key", selector + "matchLabelKeys: ['a b']", "spec.matchLabelKeys[0]", "should match"},
		{"match-label-key-twice", selector + "matchLabelKeys: [a, a]", "spec.matchLabelKeys[1]", "Duplicate value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			requireRejected(t, c.Create(ctx, fromYAML(t, "ZoneSpreadPolicy", test.name, test.spec)), test.field, test.because)
		})
	}
	// A field that does not exist is refused when the client asks for strictness, as kubectl does.
	err := c.Create(ctx, fromYAML(t, "ZoneSpreadPolicy", "typo", selector+"maxSkewed: 1"), client.FieldValidation(metav1.FieldValidationStrict))
	require.ErrorContains(t, err, `unknown field "spec.maxSkewed"`)
}

func testPolicyImmutable(ctx context.Context, t *testing.T, c client.Client) {
	obj := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "immutable"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	require.NoError(t, c.Create(ctx, obj))
	obj.Spec.MaxSkew = 5
	require.NoError(t, c.Update(ctx, obj), "the rest of the spec may change")
	obj.Spec.TopologyKey = "example.com/rack"
	require.ErrorContains(t, c.Update(ctx, obj), "spec.topologyKey: cannot be changed")
}

func testPolicyStatus(ctx context.Context, t *testing.T, c client.Client) {
	obj := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "status"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	require.NoError(t, c.Create(ctx, obj))
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	last := metav1.NewTime(since.Add(time.Minute))
	want := v1alpha1.ZoneSpreadPolicyStatus{
		ObservedGeneration: 1, Scheduler: "kube-system/kube-scheduler", Replicas: 9, Pods: 6, Skew: 3,
		Zones: []v1alpha1.ZoneStatus{
			{Name: "a", Pods: 6, Desired: 5, State: v1alpha1.ZoneAvailable},
			{Name: "b", Pods: 0, Desired: 4, State: v1alpha1.ZoneClosed, Since: &since, Full: []v1alpha1.FullRun{
				{Workload: "web", Since: &since, Last: &last}, {Workload: "api", Last: &last},
			}},
			{Name: "c", State: v1alpha1.ZoneRecovering, RecoveringSince: &since},
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonSkewExceeded, Message: "zone a is 3 ahead", LastTransitionTime: since,
		}},
	}
	obj.Status = want
	require.NoError(t, c.Status().Update(ctx, obj))
	var got v1alpha1.ZoneSpreadPolicy
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), &got))
	require.Equal(t, want, got.Status)

	got.Spec.MaxSkew, got.Status.Pods = 2, 1000
	require.NoError(t, c.Update(ctx, &got))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), &got))
	require.EqualValues(t, 2, got.Spec.MaxSkew)
	require.EqualValues(t, 6, got.Status.Pods, "a write of the object leaves the status alone")

	got.Status.Zones[0].State = "Broken"
	require.ErrorContains(t, c.Status().Update(ctx, &got), "status.zones[0].state")
}
