package app

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"zonewise.dev/plugins"
)

// TestTheCommandIsUpstreams: a new version of kube-scheduler has no flag, default, alias or check of arguments that
// this command lacks, and the other way round.
func TestTheCommandIsUpstreams(t *testing.T) {
	ours, theirs := NewSchedulerCommand(plugins.NewPack()), app.NewSchedulerCommand()
	require.Equal(t, theirs.Use, ours.Use)
	require.Equal(t, theirs.Long, ours.Long)
	require.Equal(t, flags(theirs), flags(ours))
	require.Equal(t, theirs.UsageString(), ours.UsageString())
	for _, args := range [][]string{nil, {""}, {"controller"}} {
		require.Equal(t, theirs.Args(theirs, args), ours.Args(ours, args))
	}
	require.Equal(t, hooks(theirs), hooks(ours), "upstream's command runs what ours does not mirror, or no longer what ours does")
}

func flags(cmd *cobra.Command) map[string]pflag.Flag {
	all := map[string]pflag.Flag{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		copied := *f
		copied.Value = nil // belongs to the command
		all[f.Name] = copied
	})
	return all
}

// hooks tells which functions of a command are set.
func hooks(cmd *cobra.Command) [10]bool {
	return [...]bool{
		cmd.PersistentPreRun != nil, cmd.PersistentPreRunE != nil, cmd.PreRun != nil, cmd.PreRunE != nil, cmd.Run != nil, cmd.RunE != nil,
		cmd.PostRun != nil, cmd.PostRunE != nil, cmd.PersistentPostRun != nil, cmd.PersistentPostRunE != nil,
	}
}
