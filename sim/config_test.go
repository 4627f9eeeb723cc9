package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/sim"
)

// TestProfilesThatTheSchedulerRefuses: an answer about a scheduler that would not start would be about none.
func TestProfilesThatTheSchedulerRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ profile, want string }{
		"PermitGate behind DefaultPreemption": {
			"{multiPoint: {enabled: [{name: PermitGate}]}}",
			"profiles[0].plugins.postFilter: DefaultPreemption comes before PermitGate",
		},
		"ZoneSpread behind DefaultPreemption": {
			"{multiPoint: {enabled: [{name: ZoneSpread}], disabled: [{name: PodTopologySpread}]}}",
			"profiles[0].plugins.postFilter: DefaultPreemption comes before ZoneSpread",
		},
		"a plugin behind PermitGate": {
			"{multiPoint: {enabled: [{name: PermitGate}]}, postFilter: {enabled: [{name: PermitGate}]}, preBind: {enabled: [{name: PermitGate}]}}",
			"profiles[0].plugins.preBind: DynamicResources comes after PermitGate",
		},
		"ZoneSpread beside PodTopologySpread": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}}",
			"profiles[0].plugins: ZoneSpread replaces PodTopologySpread",
		},
		"PodTopologySpread that filters and does not score": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}, score: {disabled: [{name: PodTopologySpread}]}}",
			"profiles[0].plugins: ZoneSpread replaces PodTopologySpread",
		},
		"PodTopologySpread without a part in filtering": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}, filter: {disabled: [{name: PodTopologySpread}]}}", "",
		},
		"PodTopologySpread alone": {"{}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sim.ParseConfig([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins: " + tc.profile + "\n"))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
