package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// TestArgs gives the plugins args that they must take, or refuse in one line that names the plugin and the field. What
// ZoneSpread and ReserveCache say of theirs is tested beside them.
func TestArgs(t *testing.T) {
	cases := []struct {
		name, plugin, args string
		want               []string // of the error; nil for none
	}{
		{"none", "ZoneSpread", `{}`, nil},
		{"null", "ReserveCache", `null`, nil},
		{"no default constraints", "ZoneSpread", `{defaultingType: List, defaultConstraints: []}`, nil},
		{"longest timeout", "PermitGate", `{scheduleTimeout: 15m}`, nil},
		{"apiVersion and kind, as upstream's have", "PermitGate", `{apiVersion: zonewise.dev/v1alpha1, kind: PermitGateArgs, scheduleTimeout: 30s}`, nil},
		{"unknown nested field", "ZoneSpread", `{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologykey: zone}]}`, []string{`unknown field "defaultConstraints[0].topologykey"`}},
		{"wrong case", "PermitGate", `{ScheduleTimeout: 5s}`, []string{`unknown field "ScheduleTimeout"`}},
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
			err := buildWithArgs(t, tc.plugin, tc.args)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\n")
			for _, want := range append(tc.want, tc.plugin) {
				require.Contains(t, err.Error(), want)
			}
		})
	}
}

// buildWithArgs builds a scheduler with the one plugin, which is given args.
func buildWithArgs(t *testing.T, plugin, args string) error {
	t.Helper()
	cfg, err := load(t, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: demo
  plugins: {multiPoint: {enabled: [{name: %s}]}}
  pluginConfig: [{name: %s, args: %s}]
`, plugin, plugin, args))
	if err != nil {
		return err
	}
	_, err = build(t, cfg)
	return err
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
