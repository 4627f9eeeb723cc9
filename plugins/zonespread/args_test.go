package zonespread

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDecodeArgs(t *testing.T) {
	tests := map[string]struct {
		raw  string
		want ZoneSpreadArgs
		err  string
	}{
		"nothing": {
			want: ZoneSpreadArgs{DefaultingType: SystemDefaulting},
		},
		"explicit system": {
			raw:  `{"defaultingType":"System"}`,
			want: ZoneSpreadArgs{DefaultingType: SystemDefaulting},
		},
		"list": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`,
			want: ZoneSpreadArgs{DefaultingType: ListDefaulting, DefaultConstraints: []v1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule},
			}},
		},
		"unknown field": {
			raw: `{"defaultConstraint":[]}`,
			err: `plugin ZoneSpread: args: unknown field "defaultConstraint"`,
		},
		"wrong type": {
			raw: `{"defaultingType":7}`,
			err: `plugin ZoneSpread: args:`,
		},
		"unknown defaulting": {
			raw: `{"defaultingType":"Some"}`,
			err: `defaultingType: Unsupported value: "Some": supported values: "System", "List"`,
		},
		"system with constraints": {
			raw: `{"defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`,
			err: `defaultingType: Invalid value: "System": when .defaultConstraints are not empty`,
		},
		"skew of zero": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":0,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`,
			err: `defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)`,
		},
		"no key": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]}`,
			err: `defaultConstraints[0].topologyKey: Required value: can not be empty`,
		},
		"malformed key": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"not a key","whenUnsatisfiable":"DoNotSchedule"}]}`,
			err: `defaultConstraints[0].topologyKey: Invalid value: "not a key"`,
		},
		"no action": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"zone"}]}`,
			err: `defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty`,
		},
		"unknown action": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"Maybe"}]}`,
			err: `defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: "DoNotSchedule", "ScheduleAnyway"`,
		},
		"a selector": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{}}]}`,
			err: `defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod`,
		},
		"one twice": {
			raw: `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"},{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`,
			err: `defaultConstraints[1]: Duplicate value: "{zone, DoNotSchedule}"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var obj runtime.Object
			if tc.raw != "" {
				obj = &runtime.Unknown{Raw: []byte(tc.raw), ContentType: runtime.ContentTypeJSON}
			}
			got, err := decodeArgs(obj)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, *got)
		})
	}
}

func TestArgsAreCopied(t *testing.T) {
	args := &ZoneSpreadArgs{
		DefaultingType:     ListDefaulting,
		DefaultConstraints: []v1.TopologySpreadConstraint{{TopologyKey: "zone", MatchLabelKeys: []string{"a"}}},
	}
	copied := args.DeepCopyObject().(*ZoneSpreadArgs)
	require.Equal(t, args, copied)
	copied.DefaultConstraints[0].MatchLabelKeys[0] = "b"
	require.Equal(t, "a", args.DefaultConstraints[0].MatchLabelKeys[0])
}
