package command

import (
	"io"

	"github.com/spf13/cobra"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/program"
)

const statusHelp = `Show the zones, ZoneSpreadPolicies, ZoneReservations, ZoneSurvivals,
ZoneRebalances and gangs of a cluster.

Figures of policies, reservations, survivals and rebalances come from their status. The command needs
read access only (see manifests/rbac/viewer), and says what it may not read. If no
scheduler renews its lease, what only a scheduler keeps current is Unknown. -o wide
lists the pods that wait.

Exit codes: 0 shown; 1 the cluster could not be read; 2 a flag is wrong.`

func newStatus() *cobra.Command {
	var flags clusterFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show zones, policies, reservations and gangs at a glance",
		Long:  statusHelp,
		Example: `  zonewise status
  zonewise status -n shop
  zonewise status -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.checkFlags(); err != nil {
				return err
			}
			c, _, err := flags.readCensus(cmd)
			if err != nil {
				return err
			}
			if err := flags.checkNamespace(c.Snapshot); err != nil {
				return err
			}
			// Unlike other commands, this one shows the whole cluster without --namespace.
			report := status.Build(c, flags.namespace())
			if flags.output == show.Name {
				return report.Names(cmd.OutOrStdout())
			}
			return flags.writeOutput(cmd, "Status", report, func(out io.Writer, style show.Style) error {
				return report.Text(out, style, flags.output == show.Wide)
			})
		},
	}
	flags.register(cmd, show.Wide, show.Name)
	flags.registerAll(cmd)
	cmd.Flags().Lookup("namespace").Usage = "show policies and gangs of this namespace only"
	return cmd
}
