package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/demo/board"
)

func valid() Options {
	return Options{Scale: 0.05, Timeout: time.Minute, Format: Text}
}

func TestValidateNamesTheFlag(t *testing.T) {
	require.NoError(t, valid().Validate())
	for _, tc := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Scale = 0 }, "--scale: must be above 0 and at most 1, got 0"},
		{func(o *Options) { o.Nodes = 3 }, "--nodes: must be 0 or between 6 and 5000, got 3"},
		{func(o *Options) { o.Port = 70000 }, "--port: must be between 0 and 65535, got 70000"},
		{func(o *Options) { o.Timeout = 0 }, "--timeout: must be positive, got 0s"},
		{func(o *Options) { o.Format = "yaml" }, `--output: must be text or json, got "yaml"`},
	} {
		o := valid()
		tc.change(&o)
		var usage *UsageError
		err := o.Validate()
		require.ErrorAs(t, err, &usage)
		require.EqualError(t, err, tc.want)
	}
}

func TestMissingBinariesStopTheDemoBeforeItStarts(t *testing.T) {
	o := valid()
	o.BinDir = t.TempDir()
	require.ErrorContains(t, Run(t.Context(), o), `run "make build controlplane"`)
}

func TestAnImpossibleScaleIsAUsageError(t *testing.T) {
	o := valid()
	o.Scale = 1
	o.BinDir = fakeBinaries(t)
	var usage *UsageError
	err := Run(t.Context(), o)
	require.ErrorAs(t, err, &usage)
	require.EqualError(t, err, "--scale: 1: the workload needs more than 5000 nodes, which is what Kubernetes supports; choose a smaller scale, or the number of nodes")
}

func TestInvariantErrorNamesThem(t *testing.T) {
	err := &InvariantError{[]board.Check{{Name: "a", Violations: []string{"x", "y"}}, {Name: "b", Violations: []string{"z"}}}}
	require.EqualError(t, err, `broken invariant "a": x; y, "b": z`)
}
