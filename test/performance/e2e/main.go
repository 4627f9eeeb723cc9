package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	runs  int
	turns int
	what  selection
	dir   string
	table bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	name, measure := "results.jsonl", measureAll
	if o.turns > 0 {
		name, measure = "turns.jsonl", turnsOfAll
	}
	file := filepath.Join(o.dir, name)
	var failed error
	if !o.table {
		failed = measure(ctx, o, file, out)
	}
	// What has been measured is worth a look, even if not all could be.
	results, err := readResults(file)
	if err != nil {
		return err
	}
	if o.turns > 0 {
		writeTurns(out, results, o.what)
	} else {
		writeTables(out, results, o.what)
	}
	return failed
}

// parse reads the flags and checks them.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.runs, "runs", 5, "how many `rounds` to add to the results; each round measures every case and variant once")
	flags.IntVar(&o.turns, "turns", 0, "measure the series of a case in turns, this `number` of them in each round; 0 for one after the other")
	flags.Func("cases", "which `cases` to measure, separated by commas; all without it", func(value string) error {
		if value != "" {
			o.what.cases = strings.Split(value, ",")
		}
		return nil
	})
	flags.StringVar(&o.what.workload, "workload", "", "a `workload` to measure of every case instead of the planned one, as in 500Nodes")
	flags.StringVar(&o.dir, "dir", "../../../.cache/bench-e2e", "directory of the results, logs and profiles")
	flags.BoolVar(&o.table, "table", false, "measure nothing, print the tables of the results so far")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.runs < 1 {
		return o, fmt.Errorf("-runs: got %d, want 1 or more", o.runs)
	}
	if o.turns < 0 {
		return o, fmt.Errorf("-turns: got %d, want 0 or more", o.turns)
	}
	for _, name := range o.what.cases {
		if !slices.Contains(caseNames(), name) {
			return o, fmt.Errorf("-cases: unknown case %q, want some of: %s", name, strings.Join(caseNames(), ", "))
		}
	}
	for _, s := range o.what.round(0) {
		if _, err := measuredPods(s.Case, s.Workload); err != nil {
			return o, fmt.Errorf("-workload: %w", err)
		}
	}
	if o.turns > 0 {
		for _, name := range o.what.cases {
			if err := takesTurns(name); err != nil {
				return o, fmt.Errorf("-turns: %w", err)
			}
		}
	}
	return o, nil
}

// compile makes what runs the measurements.
func compile(ctx context.Context, o options, out io.Writer) (*bench, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	b := &bench{binary: filepath.Join(dir, "e2e.test"), dir: dir, commit: commit(ctx)}
	fmt.Fprintln(out, "compiling, which takes minutes the first time")
	command := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-c", "-o", b.binary, ".")
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the benchmark does not compile: %w\n%s", err, output)
	}
	return b, nil
}

// turnsOfAll adds rounds of turns to the file of results. A case that fails is reported, and its later turns are left out.
func turnsOfAll(ctx context.Context, o options, file string, out io.Writer) error {
	b, err := compile(ctx, o, out)
	if err != nil {
		return err
	}
	var errs []error
	for n := range o.runs {
		sets := o.what.sets()
		for i, set := range sets {
			fmt.Fprintf(out, "round %d of %d, %d of %d: %d turns of", n+1, o.runs, i+1, len(sets), o.turns)
			for _, s := range set {
				fmt.Fprintf(out, " %s;", s)
			}
			fmt.Fprintln(out)
			err := b.measureInTurns(ctx, set, o.turns, func(r result) error {
				if r.Turn == 0 {
					return appendResult(file, r)
				}
				fmt.Fprintf(out, "  turn %d of %s: %.0f pods/s\n", r.Turn, r.series, r.PodsPerSecond)
				return appendResult(file, r)
			})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// measureAll adds the rounds to the file of results. A measurement that fails is reported and left out.
func measureAll(ctx context.Context, o options, file string, out io.Writer) error {
	b, err := compile(ctx, o, out)
	if err != nil {
		return err
	}
	before, err := readResults(file)
	if err != nil {
		return err
	}
	var errs []error
	for n := range o.runs {
		all := o.what.round(o.what.roundsIn(before) + n)
		for i, s := range all {
			fmt.Fprintf(out, "round %d of %d, %2d of %d: %s: ", n+1, o.runs, i+1, len(all), s)
			r, err := b.measure(ctx, s)
			if ctx.Err() != nil {
				fmt.Fprintln(out, "interrupted")
				return ctx.Err()
			}
			if err != nil {
				fmt.Fprintln(out, "failed")
				errs = append(errs, fmt.Errorf("%s: %w", s, err))
				continue
			}
			fmt.Fprintf(out, "%.0f pods/s, load %.1f\n", r.PodsPerSecond, r.Machine.Load)
			if err := appendResult(file, r); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// commit names the source that is measured.
func commit(ctx context.Context) string {
	output, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(output))
}
