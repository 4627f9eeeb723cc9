package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/simulate"
	"zonewise.dev/internal/program"
	"zonewise.dev/sim"
)

const simulateHelp = `Predict what happens when zones or nodes are lost, or when a workload or nodes are
added: which pods are displaced, where they go, which stay Pending and why, and
which policies, budgets, gangs and reservations break. It changes nothing in the
cluster: the scheduler acts on a copy, with its plugins and the configuration of
--config, until waiting longer would change nothing.

--lose-zone any loses every zone in turn, always from the same start. --buy also says
which nodes, like those of the cluster, would have to be there so that no pod stays
Pending; it repeats the simulation with more and fewer nodes.

--rebalance plans which pods to evict so that pods are spread over the zones again,
as after --lose-zone eu-1a --return. Each move is one that the scheduler makes on
several copies, and lowers the number of pods that are too many in their zone.

--drain-node evicts the pods of a node one by one, and keeps budgets.

Exit codes: 0 it would survive; 1 the cluster could not be read; 2 a flag is
wrong; 4 a promise of --fail-on would be broken; 5 none would be, as far as can be
said without what could not be read (--allow-partial makes that 0).`

type simulateFlags struct {
	clusterFlags
	zones, nodes, drained, failOn, controllers []string
	file                                       string
	copies, addNodes                           int
	like                                       string
	allowPartial, buy, serverDryRun            bool
	goBack, rebalance                          bool
}

func newSimulate(registry frameworkruntime.Registry) *cobra.Command {
	flags := &simulateFlags{clusterFlags: clusterFlags{registry: registry}}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Predict the loss of a zone or a node, or the arrival of a workload",
		Long:  simulateHelp,
		Example: `  zonewise simulate --lose-zone any
  zonewise simulate --lose-zone eu-1a --lose-node worker-7
  zonewise simulate --rebalance
  zonewise simulate --lose-zone eu-1a --return --rebalance
  zonewise simulate -f workload.yaml --copies 50
  zonewise simulate -f workload.yaml --lose-zone any --fail-on pending,budget
  zonewise simulate -f workload.yaml --add-nodes 3 --like worker-7
  zonewise simulate --lose-zone any --buy
  zonewise simulate --lose-zone any --snapshot cluster.json.gz -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.runScenarios(cmd) },
	}
	flags.register(cmd)
	flags.registerScheduler(cmd)
	set := cmd.Flags()
	set.StringSliceVar(&flags.zones, "lose-zone", nil, "lose this zone; repeat it to lose several at once; \"any\" loses each in turn")
	set.StringSliceVar(&flags.nodes, "lose-node", nil, "lose this node; repeat it to lose several at once")
	set.StringSliceVar(&flags.drained, "drain-node", nil, "first drain this node: cordon it and evict its pods, as budgets allow; repeat it for several, one after the other")
	set.BoolVar(&flags.goBack, "return", false, "bring back what was lost, once the displaced pods have found other nodes")
	set.BoolVar(&flags.rebalance, "rebalance", false, "in the end, plan the moves after which pods are spread over the zones as their rules say")
	set.StringVarP(&flags.file, "filename", "f", "", "add the workloads of this file of manifests first; - reads standard input")
	set.BoolVar(&flags.serverDryRun, "server-dry-run", false, "have the API server make a pod of each template of the file by a dry run: webhooks, sidecars, defaults and quota; needs the permission to create pods")
	set.IntVar(&flags.copies, "copies", 1, "add the workloads of the file this many times")
	set.IntVar(&flags.addNodes, "add-nodes", 0, "first add this many copies of the node of --like")
	set.StringVar(&flags.like, "like", "", "the node that --add-nodes copies")
	set.BoolVar(&flags.buy, "buy", false, "say which nodes would have to be there so that no pod stays Pending")
	set.StringSliceVar(&flags.controllers, "controllers", nil, "kinds of controllers that replace their pods, beside those of Kubernetes, such as RayCluster.ray.io")
	set.BoolVar(&flags.allowPartial, "allow-partial", false, "take the answer also if something of the cluster could not be read")
	set.StringSliceVar(&flags.failOn, "fail-on", simulate.DefaultFailures, "what makes the exit code 4: "+strings.Join(simulate.Failures, ", ")+", or none")
	flags.completeObjects(cmd, "lose-zone", "nodes", zoneOf)
	flags.completeObjects(cmd, "lose-node", "nodes", nameOf)
	flags.completeObjects(cmd, "drain-node", "nodes", nameOf)
	flags.completeObjects(cmd, "like", "nodes", nameOf)
	completeFlag(cmd, "fail-on", append(simulate.Failures, "none")...)
	return cmd
}

func (f *simulateFlags) checkFlags() error {
	if err := f.clusterFlags.checkFlags(); err != nil {
		return err
	}
	switch {
	case f.file == "-" && (f.snapshotFile == "-" || f.configFile == "-"):
		return program.Usage(errors.New("-f and --snapshot or --config cannot both read standard input"))
	case f.goBack && len(f.zones) == 0 && len(f.nodes) == 0:
		return program.Usage(errors.New("--return needs --lose-zone or --lose-node: nothing is lost"))
	case len(f.zones) == 0 && len(f.nodes) == 0 && len(f.drained) == 0 && f.file == "" && f.addNodes == 0 && !f.rebalance:
		return program.Usage(errors.New("nothing to simulate: set --lose-zone, --lose-node, --drain-node, -f, --add-nodes or --rebalance"))
	case f.serverDryRun && (f.file == "" || f.snapshotFile != ""):
		return program.Usage(errors.New("--server-dry-run needs -f and a live cluster: the API server makes pods of the file"))
	case f.addNodes < 0 || f.addNodes > 10_000:
		return program.Usage(fmt.Errorf("--add-nodes: must be from 0 to 10000, got %d", f.addNodes))
	case f.addNodes > 0 && f.like == "":
		return program.Usage(errors.New("--add-nodes needs --like, the node to copy"))
	case f.addNodes == 0 && f.like != "":
		return program.Usage(errors.New("--like needs --add-nodes, the number of copies"))
	case slices.Contains(f.zones, "any") && len(f.zones) > 1:
		return program.Usage(errors.New("--lose-zone: any cannot be combined with other zones"))
	case f.copies < 1 || f.copies > 100_000:
		return program.Usage(fmt.Errorf("--copies: must be from 1 to 100000, got %d", f.copies))
	case f.copies != 1 && f.file == "":
		return program.Usage(errors.New("--copies needs -f, the workloads to copy"))
	}
	for _, failure := range f.failOn {
		if failure != "none" && !slices.Contains(simulate.Failures, failure) {
			return program.Usage(fmt.Errorf("--fail-on: must be some of %s, or none, got %q", strings.Join(simulate.Failures, ", "), failure))
		}
	}
	if slices.Contains(f.failOn, "none") {
		f.failOn = nil
	}
	return nil
}

func (f *simulateFlags) runScenarios(cmd *cobra.Command) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	// Files come first: a large cluster takes a while to read.
	options, err := f.schedulerOptions(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return err
	}
	options.Controllers = f.controllers
	manifests, err := f.readManifests(cmd.InOrStdin())
	if err != nil {
		return err
	}
	namespace, err := f.namespaceScope()
	if err != nil {
		return err
	}
	c, server, err := f.readCensus(cmd)
	if err != nil {
		return err
	}
	findSchedulers(&options, c.Snapshot)
	if !f.serverDryRun {
		server = nil
	}
	workload, err := f.parseWorkload(cmd, manifests, c, namespace, server)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(sim.GCPercent))
	}
	scenario := simulate.Scenario{Zones: f.zones, Nodes: f.nodes, Drained: f.drained, Added: workload, AddNodes: f.addNodes, Like: f.like, Return: f.goBack, Rebalance: f.rebalance}
	scenarios := []simulate.Scenario{scenario}
	if slices.Contains(f.zones, "any") {
		scenarios = nil
		for _, zone := range c.ZoneNames() {
			if zone != "" {
				scenario.Zones = []string{zone}
				scenarios = append(scenarios, scenario)
			}
		}
		if len(scenarios) == 0 {
			return errors.New("--lose-zone: no node has the label topology.kubernetes.io/zone")
		}
	}
	var results []*simulate.Result
	for i := range scenarios {
		if err := scenarios[i].Check(c); err != nil {
			return program.Usage(err)
		}
		rate := &rate{line: f.progress(cmd), title: scenarios[i].Name()}
		options.Progress = rate.show
		result, err := simulate.Run(cmd.Context(), c, &scenarios[i], options)
		rate.end()
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	report := simulate.NewReport(results, f.failOn)
	report.NotRead = simulate.NotRead(c.Snapshot, workload != nil)
	if f.buy {
		line := f.progress(cmd)
		options.Progress = nil
		report.Buy, err = simulate.FindPurchase(cmd.Context(), c, scenarios, results, options, func(nodes string) { line.show("with %s", nodes) })
		line.clear()
		if err != nil {
			return err
		}
	}
	if err := f.writeOutput(cmd, "Simulation", report, report.Text); err != nil {
		return err
	}
	if !report.Survives {
		return errNotSurvived
	}
	if len(report.NotRead) > 0 && !f.allowPartial {
		return fmt.Errorf("%w: %s; --allow-partial takes the answer as it is", errPartial, lackedKinds(c.Snapshot, report.NotRead))
	}
	return nil
}

// lackedKinds says why these kinds could not be read, those that may not be listed together.
func lackedKinds(s *snapshot.Snapshot, resources []string) string {
	var forbidden, reasons []string
	for _, m := range s.Missing {
		switch {
		case !slices.Contains(resources, m.Resource):
		case m.Reason == snapshot.Forbidden:
			forbidden = append(forbidden, m.Resource)
		default:
			reasons = append(reasons, m.Message())
		}
	}
	if len(forbidden) > 0 {
		reasons = append([]string{"you may not list " + strings.Join(forbidden, ", ")}, reasons...)
	}
	return strings.Join(reasons, "; ")
}

// rate shows how far a simulation has come, and how fast.
type rate struct {
	line  *progressLine
	title string
	began time.Time
	last  sim.Progress
	first sim.Progress
}

func (r *rate) show(p sim.Progress) {
	if r.began.IsZero() || p.Cycles < r.last.Cycles || p.Bound+p.Waiting > r.first.Bound+r.first.Waiting {
		r.began, r.first = time.Now(), p // another step of the scenario
	}
	r.last = p
	done, all := p.Bound-r.first.Bound, p.Bound-r.first.Bound+p.Waiting
	text := fmt.Sprintf("%s, %d pods/s", show.Bar(done, all), r.speed())
	if done > 0 && p.Waiting > 0 {
		left := time.Duration(float64(time.Since(r.began)) / float64(done) * float64(p.Waiting))
		text += ", " + duration.HumanDuration(left) + " left"
	}
	r.line.show("%s %s, %d MB", r.title, text, memoryInUse())
}

// speed returns how many pods a second the scheduler tries.
func (r *rate) speed() int {
	seconds := time.Since(r.began).Seconds()
	return int(float64(r.last.Cycles-r.first.Cycles) / max(seconds, 0.001))
}

// end prints what the simulation took, if progress was shown.
func (r *rate) end() {
	r.line.clear()
	if r.line.w != nil && r.last.Cycles > r.first.Cycles {
		fmt.Fprintf(r.line.w, "%s: %d pods tried in %s, %d a second, %d MB\n", r.title, r.last.Cycles-r.first.Cycles, duration.HumanDuration(time.Since(r.began)), r.speed(), memoryInUse())
	}
}

// memoryInUse returns the memory that the process has from the system, in megabytes.
func memoryInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return (sample[0].Value.Uint64() - sample[1].Value.Uint64()) >> 20
}

// readManifests reads the file of -f, nothing if there is none.
func (f *simulateFlags) readManifests(stdin io.Reader) ([]byte, error) {
	if f.file == "" {
		return nil, nil
	}
	manifests, err := readFile(f.file, stdin)
	if err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	}
	return manifests, nil
}

// parseWorkload returns the workloads of -f, nil if it is not given, and writes to standard error what of the file is
// left out.
func (f *simulateFlags) parseWorkload(
	cmd *cobra.Command, manifests []byte, c *census.Census, namespace string, server client.Client,
) (*simulate.Workload, error) {
	if f.file == "" {
		return nil, nil
	}
	name := filepath.Base(f.file)
	if f.file == "-" {
		name = "standard input"
	}
	if f.copies > 1 {
		name = fmt.Sprintf("%d x %s", f.copies, name)
	}
	workload, err := simulate.ParseWorkload(cmd.Context(), name, bytes.NewReader(manifests), namespace, f.copies, c.Snapshot, server)
	if err != nil {
		return nil, program.Usage(fmt.Errorf("-f: %w", oneLine(err)))
	}
	for _, leftOut := range workload.LeftOut {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, leftOut)
	}
	unchecked := "quota and webhooks, see --server-dry-run"
	if server != nil {
		unchecked = "quota for more than one pod of each template"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: not checked: %s\n", name, unchecked)
	return workload, nil
}
