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
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, compile); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run measures what the arguments ask for with the program that build makes in a directory, and adds the results to a
// file there.
func run(ctx context.Context, args []string, out io.Writer, build func(ctx context.Context, dir string) (string, error)) error {
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.SetOutput(out)
	runs := flags.Int("runs", 1, "how many `rounds` to add to the results; each has new clusters for every case")
	turns := flags.Int("turns", 6, "the `number` of turns of each variant in a round")
	cases := flags.String("cases", "", "which `cases` to measure, separated by commas; all without it")
	workload := flags.String("workload", "", "a `workload` to measure of every case instead of the planned one, as in 500Nodes")
	dir := flags.String("dir", "../../../.cache/bench-e2e", "directory of the results, logs and profiles")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var names []string
	if *cases != "" {
		names = strings.Split(*cases, ",")
	}
	sets, err := selected(names, *workload)
	switch {
	case err != nil:
		return fmt.Errorf("-cases: %w", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *runs < 1 || *turns < 1:
		return fmt.Errorf("-runs and -turns: got %d and %d, want 1 or more", *runs, *turns)
	}
	b := &bench{turns: *turns, out: out}
	if b.dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if b.binary, err = build(ctx, b.dir); err != nil {
		return err
	}
	if err := b.record("commit: " + commit(ctx)); err != nil {
		return err
	}
	var errs []error
	for n := range *runs {
		for i, s := range sets {
			fmt.Fprintf(out, "round %d of %d, %d of %d: %d turns of %s/%s\n", n+1, *runs, i+1, len(sets), *turns, s.name, s.workload)
			errs = append(errs, b.measure(ctx, s)) // the others can be measured
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return errors.Join(errs...)
}

// compile makes what runs the measurements.
func compile(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "e2e.test")
	command := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-c", "-o", binary, ".")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the benchmark does not compile: %w\n%s", err, output)
	}
	return binary, nil
}

// commit names the source that is measured.
func commit(ctx context.Context) string {
	output, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(output))
}
