package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zonewise.dev/cmd/zonewise/simulate"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/world"
)

const simulateHelp = `Foresee what happens when zones or nodes are lost, or when a workload is added:
which pods are displaced, where they would go, which would stay Pending and why,
and which policies, budgets, gangs and reservations would not hold. Nothing in the
cluster is changed; it works on a snapshot, with the formulas of the scheduler.

--lose-zone any loses every zone in turn, each time from the same start.

Which node a pod takes is an estimate; whether nodes are allowed is not, but for
preemption, autoscalers and devices, which are not played (see docs/cli.md).

Exit codes: 0 it would survive; 1 the cluster could not be read; 2 a flag is
wrong; 4 something of --fail-on would come to pass.`

// notSurvived is the result of a simulation that fails: it has been printed.
var errNotSurvived = errors.New("it would not survive")

type simulateFlags struct {
	clusterFlags
	zones, nodes, failOn []string
	file                 string
	copies               int
}

func newSimulate() *cobra.Command {
	var flags simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Foresee the loss of a zone or a node, or the arrival of a workload",
		Long:  simulateHelp,
		Example: `  zonewise simulate --lose-zone any
  zonewise simulate --lose-zone eu-1a --lose-node worker-7
  zonewise simulate -f workload.yaml --copies 50
  zonewise simulate -f workload.yaml --lose-zone any --fail-on pending,budget
  zonewise simulate --lose-zone any --snapshot cluster.json.gz -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.register(cmd)
	set := cmd.Flags()
	set.StringSliceVar(&flags.zones, "lose-zone", nil, "lose this zone; repeat it to lose several at once; \"any\" loses each in turn")
	set.StringSliceVar(&flags.nodes, "lose-node", nil, "lose this node; repeat it to lose several at once")
	set.StringVarP(&flags.file, "filename", "f", "", "add the workloads of this file of manifests first; - reads standard input")
	set.IntVar(&flags.copies, "copies", 1, "add the workloads of the file this many times")
	set.StringSliceVar(&flags.failOn, "fail-on", simulate.DefaultFailures, "what makes the exit code 4: "+strings.Join(simulate.Failures, ", ")+", or none")
	complete(cmd, "fail-on", append(simulate.Failures, "none")...)
	return cmd
}

func (f *simulateFlags) check() error {
	if err := f.clusterFlags.check(); err != nil {
		return err
	}
	switch {
	case len(f.zones) == 0 && len(f.nodes) == 0 && f.file == "":
		return usageError{errors.New("say what happens: --lose-zone, --lose-node or -f")}
	case slices.Contains(f.zones, "any") && len(f.zones) > 1:
		return usageError{errors.New("--lose-zone: any stands alone")}
	case f.copies < 1 || f.copies > 100_000:
		return usageError{fmt.Errorf("--copies: must be from 1 to 100000, got %d", f.copies)}
	case f.copies != 1 && f.file == "":
		return usageError{errors.New("--copies: of what? It needs -f")}
	}
	for _, what := range f.failOn {
		if what != "none" && !slices.Contains(simulate.Failures, what) {
			return usageError{fmt.Errorf("--fail-on: must be of %s or none, got %q", strings.Join(simulate.Failures, ", "), what)}
		}
	}
	if slices.Contains(f.failOn, "none") {
		f.failOn = nil
	}
	return nil
}

func (f *simulateFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	namespace, err := f.scope()
	if err != nil {
		return oneLine(err)
	}
	s, _, err := f.read(cmd)
	if err != nil {
		return err
	}
	workload, err := f.workload(cmd, s, namespace)
	if err != nil {
		return err
	}
	scenarios := []*simulate.Scenario{{Zones: f.zones, Nodes: f.nodes, Added: workload}}
	if slices.Contains(f.zones, "any") {
		scenarios = nil
		for _, zone := range world.New(s, s.TakenAt).Zones() {
			if zone != "" {
				scenarios = append(scenarios, &simulate.Scenario{Zones: []string{zone}, Nodes: f.nodes, Added: workload})
			}
		}
		if len(scenarios) == 0 {
			return errors.New("--lose-zone: no node has the label topology.kubernetes.io/zone")
		}
	}
	now := s.TakenAt
	if now.IsZero() {
		now = time.Now()
	}
	var results []*simulate.Result
	for _, scenario := range scenarios {
		line := f.progress(cmd)
		result, err := simulate.Run(s, now, scenario, func(done, all int) { line.bar(scenario.Name(), done, all) })
		line.clear()
		if err != nil {
			return usageError{err}
		}
		results = append(results, result)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
	}
	report := simulate.NewReport(results, f.failOn)
	if err := f.write(cmd, report, report.Text); err != nil {
		return err
	}
	if !report.Survives {
		return errNotSurvived
	}
	return nil
}

// workload reads the file, nil when there is none.
func (f *simulateFlags) workload(cmd *cobra.Command, s *snapshot.Snapshot, namespace string) (*simulate.Workload, error) {
	if f.file == "" {
		return nil, nil
	}
	var classes map[string]int32
	if !slices.ContainsFunc(s.Missing, func(m snapshot.Missing) bool { return m.Resource == snapshot.PriorityClasses }) {
		classes = make(map[string]int32, len(s.PriorityClasses))
		for i := range s.PriorityClasses {
			classes[s.PriorityClasses[i].Name] = s.PriorityClasses[i].Value
		}
	}
	name, in := filepath.Base(f.file), cmd.InOrStdin()
	if f.file == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	if f.copies > 1 {
		name = fmt.Sprintf("%d x %s", f.copies, name)
	}
	workload, err := simulate.ParseWorkload(name, in, namespace, f.copies, classes)
	if err != nil {
		return nil, usageError{fmt.Errorf("-f: %w", oneLine(err))}
	}
	return workload, nil
}
