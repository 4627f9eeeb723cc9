package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"zonewise.dev/cluster/live"
	"zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/internal/program"
)

const boardHelp = `Show the cluster as a live web page: zones with their nodes and pods, the skew and
caps of policies and workloads, held slots, gangs and waiting pods, and what the
scheduler says of them.

The page is served on the loopback interface. The printed address contains a random
token. The page loads nothing from elsewhere and changes nothing. With --output the
current page is written to a file instead.

The command needs the permissions of "zonewise status", and watches if it may (see
manifests/rbac/viewer). The page says what it may not read.

Exit codes: 0 shown until Ctrl-C, or written; 1 the cluster could not be read, the
port is taken, or the file could not be written; 2 a flag is wrong.`

func newBoard() *cobra.Command {
	var (
		flags clusterFlags
		file  string
		port  int
	)
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Show the cluster as a live web page on this machine",
		Long:  boardHelp,
		Example: `  zonewise board
  zonewise board --port 8400 -n shop
  zonewise board --output board.html
  zonewise board --snapshot cluster.json.gz`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.checkSource(); err != nil {
				return err
			}
			if port < 0 || port > 65535 {
				return program.Usage(fmt.Errorf("--port: must be between 0 and 65535, got %d", port))
			}
			if file == "" && cmd.Flags().Changed("output") {
				return program.Usage(errors.New("--output: must name a file"))
			}
			if file != "" && cmd.Flags().Changed("port") {
				return program.Usage(errors.New("--output writes a file and serves nothing: leave out --port"))
			}
			return flags.runBoard(cmd, file, port)
		},
	}
	flags.registerSource(cmd)
	flags.registerAll(cmd)
	f := cmd.Flags()
	f.Lookup("namespace").Usage = "show policies, workloads, gangs and waiting pods of this namespace only"
	f.StringVarP(&file, "output", "o", "", "write the page to this HTML file instead of serving it")
	f.IntVar(&port, "port", 0, "port of 127.0.0.1 to serve on; 0 takes a free one")
	return cmd
}

// boardOptions say what the page shows.
func (f *clusterFlags) boardOptions() board.Options {
	opts := board.Options{Cluster: f.overrides.CurrentContext, Namespace: f.namespace(), Command: f.invocation()}
	if f.snapshotFile != "" {
		opts.Cluster = filepath.Base(f.snapshotFile)
	} else if raw, err := f.clientConfig().RawConfig(); err == nil && opts.Cluster == "" {
		opts.Cluster = raw.CurrentContext
	}
	return opts
}

// runBoard writes the page to a file, or serves it if no file is given.
func (f *clusterFlags) runBoard(cmd *cobra.Command, file string, port int) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	var server *board.Server
	if file == "" {
		var err error
		server, err = board.Listen(ctx, port)
		if errors.Is(err, board.ErrPortTaken) {
			return fmt.Errorf("--port: %w: choose another, or 0 for a free one", err)
		}
		if err != nil {
			return fmt.Errorf("serve the board: %w", err)
		}
	}
	cluster, err := f.followCluster(ctx, cmd)
	if err != nil {
		return err
	}
	source := board.Following{Cluster: cluster, Options: f.boardOptions()}
	if server == nil {
		if err := source.Page().WriteFile(file); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "The board is in %s.\n", file)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), `The board is at
  %s
On this machine, anyone with this address sees what you may see. Ctrl-C ends it.
`, server.URL())
	return server.Run(ctx, source)
}

// followCluster reads the cluster, and goes on following it until ctx ends. A cluster in a file does not change.
func (f *clusterFlags) followCluster(ctx context.Context, cmd *cobra.Command) (board.Cluster, error) {
	if f.snapshotFile != "" {
		s, err := f.loadSnapshot(cmd)
		if err == nil {
			err = f.checkNamespace(s)
		}
		return board.Still{At: s}, err
	}
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	followed, err := live.Start(ctx, config)
	if err != nil {
		return nil, explainedError(ctx, err)
	}
	bar := f.progress(cmd)
	bar.show("reading the cluster")
	err = followed.Sync(ctx)
	bar.clear()
	if err != nil {
		return nil, explainedError(ctx, err)
	}
	if err := f.checkNamespace(followed.Snapshot()); err != nil {
		return nil, err
	}
	return followed, nil
}
