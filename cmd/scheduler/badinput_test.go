package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schemeLine is where upstream has made the scheme of its configuration, which another version of it has on another
// line.
var schemeLine = regexp.MustCompile(`scheme\.go:\d+`)

// TestBadInput runs the program with input that it must refuse: one line on stderr says what is
// wrong and what to do, no usage text hides it, and the exit status is 1.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	// profile puts plugins and their args into a profile.
	profile := func(pluginConfig string) string {
		return "profiles:\n- schedulerName: demo\n  plugins: {multiPoint: {enabled: [{name: ZoneSpread}, {name: ReserveCache}, {name: PermitGate}], disabled: [{name: PodTopologySpread}]}, postFilter: {enabled: [{name: DynamicResources}, {name: ZoneSpread}, {name: PermitGate}]}}\n  pluginConfig: " + pluginConfig + "\n"
	}
	cases := []struct {
		name string
		// config is the rest of a configuration with a kubeconfig; raw is a whole file instead.
		config, raw string
		args        []string
		// want is the line that the program ends with; FILE stands for the path of the configuration.
		want string
	}{
		{
			name: "a flag that is not there", args: []string{"--leader-elekt"},
			want: `unknown flag: --leader-elekt; zonewise-scheduler --help lists the flags`,
		},
		{
			name: "a flag with a bad value", args: []string{"--leader-elect-lease-duration=soon"},
			want: `invalid argument "soon" for "--leader-elect-lease-duration" flag: time: invalid duration "soon"; zonewise-scheduler --help lists the flags`,
		},
		{
			name: "an argument", args: []string{"start"},
			want: `"zonewise-scheduler" does not take any arguments, got ["start"]; everything is given by flags`,
		},
		{
			name: "a feature gate that is not there", args: []string{"--feature-gates=ZoneWise=true"},
			want: `unrecognized feature gate: ZoneWise; correct its spelling in --feature-gates or remove it`,
		},
		{
			name: "no way to an API server", args: []string{"--secure-port=0"},
			want: `no client for the API server: not in a pod, and no kubeconfig is named; name a kubeconfig with --kubeconfig, or the server's address with --master`,
		},
		{
			name: "no way to an API server, with a configuration", raw: header,
			want: `no client for the API server: not in a pod, and no kubeconfig is named; set clientConnection.kubeconfig in FILE (with --config, --kubeconfig is ignored)`,
		},
		{
			name: "a configuration that is not there", args: []string{"--config=/nowhere/config.yaml"},
			want: `config /nowhere/config.yaml: no such file or directory; give --config the path of a KubeSchedulerConfiguration`,
		},
		{
			name: "an empty configuration", raw: "\n",
			want: `config FILE: Object 'Kind' is missing in ' '; write apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration`,
		},
		{
			name: "malformed YAML", raw: header + " profiles: [\n",
			want: `config FILE: yaml: line 3: mapping values are not allowed in this context; it must be a KubeSchedulerConfiguration in YAML or JSON`,
		},
		{
			name: "an old version", raw: "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n",
			want: `config FILE: no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3" in scheme "pkg/runtime/scheme.go:LINE"; write apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration`,
		},
		{
			name: "a misspelt field", config: "profiels: []\n",
			want: `config FILE: unknown field "profiels"; correct its spelling or remove it`,
		},
		{
			name: "a misspelt extension point", config: "profiles:\n- plugins: {multiPont: {enabled: [{name: ZoneSpread}]}}\n",
			want: `config FILE: unknown field "profiles[0].plugins.multiPont"; correct its spelling or remove it`,
		},
		{
			name: "a repeated field", config: "leaderElection: {leaderElect: true}\n",
			want: `config FILE: line 5: key "leaderElection" already set in map; keep one of the two`,
		},
		{
			name:   "PermitGate in multiPoint alone",
			config: "profiles:\n- plugins: {multiPoint: {enabled: [{name: ZoneSpread}, {name: PermitGate}], disabled: [{name: PodTopologySpread}]}}\n",
			want:   `config FILE: profiles[0].plugins.postFilter: DefaultPreemption comes before PermitGate, so members of a gang would preempt one by one; write postFilter: {enabled: [{name: DynamicResources}, {name: ZoneSpread}, {name: PermitGate}]}`,
		},
		{
			name:   "ZoneSpread in multiPoint alone",
			config: "profiles:\n- plugins: {multiPoint: {enabled: [{name: ZoneSpread}], disabled: [{name: PodTopologySpread}]}}\n",
			want:   `config FILE: profiles[0].plugins.postFilter: DefaultPreemption comes before ZoneSpread, so its policies would not learn why pods wait that preempt; write postFilter: {enabled: [{name: DynamicResources}, {name: ZoneSpread}]}`,
		},
		{
			name:   "ZoneSpread beside PodTopologySpread",
			config: "profiles:\n- plugins: {multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}}\n",
			want:   `config FILE: profiles[0].plugins: ZoneSpread replaces PodTopologySpread, and both would filter and score every constraint; write multiPoint: {disabled: [{name: PodTopologySpread}]}`,
		},
		{
			name:   "a plugin behind PermitGate",
			config: "profiles:\n- plugins: {multiPoint: {enabled: [{name: PermitGate}]}, postFilter: {enabled: [{name: PermitGate}]}, preBind: {enabled: [{name: PermitGate}]}}\n",
			want:   `config FILE: profiles[0].plugins.preBind: DynamicResources comes after PermitGate, and may fail when part of a gang is already bound; enable PermitGate last in multiPoint, and name no plugin in preBind that is not in multiPoint`,
		},
		{
			name:   "a filter that PermitGate takes for granted",
			config: "profiles:\n- plugins: {multiPoint: {enabled: [{name: PermitGate}], disabled: [{name: TaintToleration}]}, postFilter: {enabled: [{name: DynamicResources}, {name: PermitGate}]}}\n",
			want:   `config FILE: profiles[0].plugins: PermitGate would refuse gangs for what TaintToleration alone refuses, which is disabled; enable it, or disable PermitGate`,
		},
		{
			name: "a value out of range", config: "percentageOfNodesToScore: 101\n",
			want: `config FILE: percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]`,
		},
		{
			name: "a misspelt plugin", config: "profiles:\n- schedulerName: demo\n  plugins: {multiPoint: {enabled: [{name: ZoneSpred}]}}\n",
			want: `config FILE: profile demo: PreFilterPlugin "ZoneSpred" does not exist; correct the plugin's name: Zonewise adds ZoneSpread, ReserveCache and PermitGate to upstream's`,
		},
		{
			name: "a misspelt arg of an in-tree plugin", config: profile("[{name: InterPodAffinity, args: {hardPodAfinityWeight: 3}}]"),
			want: `config FILE: decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: unknown field "hardPodAfinityWeight"; correct its spelling or remove it`,
		},
		{
			name: "a misspelt arg of ZoneSpread", config: profile("[{name: ZoneSpread, args: {defaultConstraint: []}}]"),
			want: `config FILE: profile demo: plugin ZoneSpread: args: unknown field "defaultConstraint"; correct its spelling or remove it`,
		},
		{
			name: "a misspelt arg of ReserveCache", config: profile("[{name: ReserveCache, args: {handlersyncTimeout: 5s}}]"),
			want: `config FILE: profile demo: plugin ReserveCache: args: unknown field "handlersyncTimeout"; correct its spelling or remove it`,
		},
		{
			name: "a misspelt arg of PermitGate", config: profile("[{name: PermitGate, args: {timeout: 5s}}]"),
			want: `config FILE: profile demo: plugin PermitGate: args: unknown field "timeout"; correct its spelling or remove it`,
		},
		{
			name: "a negative duration for PermitGate", config: profile("[{name: PermitGate, args: {scheduleTimeout: -1s}}]"),
			want: `config FILE: profile demo: plugin PermitGate: invalid args: scheduleTimeout: Invalid value: "-1s": must be more than 0 and at most 15m0s`,
		},
		{
			name: "a duration without a unit", config: profile("[{name: PermitGate, args: {scheduleTimeout: \"60\"}}]"),
			want: `config FILE: profile demo: plugin PermitGate: args: scheduleTimeout: Invalid value: "60": time: missing unit in duration "60"`,
		},
	}
	server := versionOnly(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args, file := tc.args, ""
			switch {
			case tc.raw != "":
				file = writeFile(t, "config.yaml", tc.raw)
			case tc.config != "":
				file = writeConfig(t, writeKubeconfig(t, server), tc.config)
			}
			if file != "" {
				args = append(args, "--config", file, "--secure-port=0")
			}
			got := runProgram(t, args...)
			require.Equal(t, 1, got.code, got.stderr)
			want := "zonewise-scheduler: " + strings.ReplaceAll(tc.want, "FILE", file)
			require.Equal(t, want, schemeLine.ReplaceAllString(got.reason(t), "scheme.go:LINE"))
			require.NotRegexp(t, `(?m)^Usage:`, got.stderr)
		})
	}
}
