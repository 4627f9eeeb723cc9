package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// TestBrokenArgs gives the plugins args that they must refuse: the error is one line that names the
// plugin and the field.
func TestBrokenArgs(t *testing.T) {
	cases := []struct {
		name, plugin, args string
		want               []string
	}{
		{"unknown field", "ZoneSpread", `{defaultingTyp: List}`, []string{`unknown field "defaultingTyp"`}},
		{"unknown nested field", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologykey: zone}]}`, []string{`unknown field "defaultConstraints[0].topologykey"`}},
		{"wrong case", "PermitGate", `{ScheduleTimeout: 5s}`, []string{`unknown field "ScheduleTimeout"`}},
		{"value of another enumeration", "ZoneSpread", `{defaultingType: Some}`, []string{"defaultingType", `"Some"`}},
		{"constraints with the wrong type", "ZoneSpread", `{defaultingType: System, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}`, []string{"defaultingType", `"System"`}},
		{"skew of zero", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}`, []string{"defaultConstraints[0].maxSkew"}},
		{"no topology key", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]}`, []string{"defaultConstraints[0].topologyKey"}},
		{"unknown action", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Perhaps}]}`, []string{"defaultConstraints[0].whenUnsatisfiable", `"Perhaps"`}},
		{"constraint with a selector", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]}`, []string{"defaultConstraints[0].labelSelector"}},
		{"negative sync timeout", "ReserveCache", `{handlerSyncTimeout: -1s}`, []string{"handlerSyncTimeout", `"-1s"`, "must be more than 0"}},
		{"sync timeout that is a number", "ReserveCache", `{handlerSyncTimeout: 5}`, []string{"handlerSyncTimeout"}},
		{"expiry that is no more", "ReserveCache", `{assumedPodTTL: 10m}`, []string{`unknown field "assumedPodTTL"`}},
		{"no sync timeout", "ReserveCache", `{handlerSyncTimeout: 0s}`, []string{"handlerSyncTimeout", "must be more than 0"}},
		{"held fraction above one", "ReserveCache", `{maxHeldFraction: 2}`, []string{"maxHeldFraction", "at most 1"}},
		{"timeout over upstream's maximum", "PermitGate", `{scheduleTimeout: 16m}`, []string{"scheduleTimeout", "at most 15m0s"}},
		{"negative timeout", "PermitGate", `{scheduleTimeout: -1s}`, []string{"scheduleTimeout", `"-1s"`}},
		{"backoff that shrinks", "PermitGate", `{initialBackoff: 10s, maxBackoff: 5s}`, []string{"maxBackoff", "at least initialBackoff"}},
		{"unknown mode of native groups", "PermitGate", `{nativeGroups: Sometimes}`, []string{"nativeGroups", `"Sometimes"`, `"Guard"`, `"Ignore"`}},
		{"unknown rehearsal", "PermitGate", `{bindRehearsal: Sometimes}`, []string{"bindRehearsal", `"Sometimes"`, `"Auto"`}},
		{"two mistakes", "PermitGate", `{scheduleTimeout: 0s, initialBackoff: 0s}`, []string{"scheduleTimeout", "initialBackoff"}},
		{"list for a mapping", "PermitGate", `[1]`, []string{"PermitGate"}},
		{"text for a mapping", "ReserveCache", `fast`, []string{"ReserveCache"}},
	}
	for _, tc := range cases {
		t.Run(tc.plugin+": "+tc.name, func(t *testing.T) {
			_, err := buildWithArgs(t, tc.plugin, tc.args)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\n")
			for _, want := range append(tc.want, tc.plugin) {
				require.Contains(t, err.Error(), want)
			}
		})
	}
}

// TestArgs gives them args that they must take, among them none and the group, version and kind that the
// args of upstream's plugins have.
func TestArgs(t *testing.T) {
	cases := []struct{ name, plugin, args string }{
		{"none", "ZoneSpread", `{}`},
		{"null", "ReserveCache", `null`},
		{"constraints", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 3, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]}`},
		{"no default constraints", "ZoneSpread", `{defaultingType: List, defaultConstraints: []}`},
		{"longer sync timeout", "ReserveCache", `{handlerSyncTimeout: 10m}`},
		{"longest timeout", "PermitGate", `{scheduleTimeout: 15m}`},
		{"apiVersion and kind", "PermitGate", `{apiVersion: zonewise.dev/v1alpha1, kind: PermitGateArgs, scheduleTimeout: 30s}`},
	}
	for _, tc := range cases {
		t.Run(tc.plugin+": "+tc.name, func(t *testing.T) {
			_, err := buildWithArgs(t, tc.plugin, tc.args)
			require.NoError(t, err)
		})
	}
}

// buildWithArgs builds a scheduler with the one plugin, which is given args.
func buildWithArgs(t *testing.T, plugin, args string) (any, error) {
	t.Helper()
	cfg, err := load(t, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: demo
  plugins: {multiPoint: {enabled: [{name: %s}]}}
  pluginConfig: [{name: %s, args: %s}]
`, plugin, plugin, args))
	if err != nil {
		return nil, err
	}
	return build(t, cfg)
}

// TestProfilesWithDifferentArgs: what profiles share cannot have two configurations. The scheduler does not start, and
// says why.
func TestProfilesWithDifferentArgs(t *testing.T) {
	cfg := mustLoad(t, "zonewise.yaml")
	second := cfg.Profiles[0].DeepCopy()
	second.SchedulerName = "batch"
	second.PluginConfig = slices.DeleteFunc(second.PluginConfig, func(c schedulerconfig.PluginConfig) bool { return c.Name == "PermitGate" })
	second.PluginConfig = append(second.PluginConfig, schedulerconfig.PluginConfig{
		Name: "PermitGate", Args: &runtime.Unknown{Raw: []byte(`{"scheduleTimeout":"5s"}`)},
	})
	cfg.Profiles = append(cfg.Profiles, *second)
	_, err := build(t, cfg)
	require.ErrorContains(t, err, `plugin PermitGate: the args of profile "batch" differ from those of another profile`)
}
