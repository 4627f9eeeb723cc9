package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
)

const snapshotHelp = `Save what the other commands look at, so that they can run later or elsewhere with
--snapshot. Names and labels are saved. Environment variables, commands, and
annotations that do not matter to scheduling are left out, and image names become
hashes. Secrets and ConfigMaps are not read.

The file is compressed if its name ends in .gz. Only you can read it. With - the
snapshot is written to standard output.

Exit codes: 0 saved; 1 the cluster could not be read, or the file not written; 2 a
flag is wrong.`

func newSnapshot() *cobra.Command {
	var flags clusterFlags
	cmd := &cobra.Command{
		Use:     "snapshot FILE",
		Short:   "Save the cluster in a file for the other commands",
		Long:    snapshotHelp,
		Example: `  zonewise snapshot cluster.json.gz`,
		Args:    exactlyOneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkFlags(); err != nil {
				return err
			}
			s, _, err := flags.readSnapshot(cmd)
			if err != nil {
				return err
			}
			for _, note := range s.Notes() {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if args[0] == "-" {
				return snapshot.Encode(cmd.OutOrStdout(), s)
			}
			if err := snapshot.Save(args[0], s); err != nil {
				return err
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s, %d KiB\n", args[0], show.Plural(len(snapshot.List[*corev1.Node](s)), "node"), show.Plural(len(snapshot.List[*corev1.Pod](s)), "pod"), (info.Size()+1023)/1024)
			return nil
		},
	}
	flags.register(cmd)
	for _, name := range []string{"output", "namespace", "snapshot"} {
		cmd.Flags().Lookup(name).Hidden = true
	}
	return cmd
}
