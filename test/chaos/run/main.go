// Command run makes a chaos run and prints what the judges say of it. Its exit code is 1 when one of them found
// something.
//
//	go run ./test/chaos/run -seed 1 -duration 5m
//	go run ./test/chaos/run -record dist/chaos/1/record.json.gz
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/test/chaos"
	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/chaos/judge"
	"zonewise.dev/test/internal/program"
)

func main() {
	seed := flag.Uint64("seed", 1, "what is done, and when, follows from it")
	duration := flag.Duration("duration", 5*time.Minute, "until the last fault is over")
	only := flag.String("only", "", "only faults whose names contain this")
	recorded := flag.String("record", "", "judge this record again instead")
	scheduler := flag.String("scheduler", "", "run this program instead of bin/zonewise-scheduler, which is built")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, chaos.Options{Seed: *seed, Duration: *duration, Only: *only}, *scheduler, *recorded)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o chaos.Options, scheduler, recorded string) error {
	var record *history.Record
	var err error
	if recorded != "" {
		record, err = history.Load(recorded)
	} else {
		record, err = play(ctx, o, scheduler)
	}
	if err != nil {
		return err
	}
	verdicts := judge.All(record)
	chaos.Summarize(os.Stdout, record, verdicts)
	if judge.Failed(verdicts) {
		return errors.New("the run has not kept what the design promises")
	}
	return nil
}

func play(ctx context.Context, o chaos.Options, scheduler string) (*history.Record, error) {
	if err := complete(&o, scheduler); err != nil {
		return nil, err
	}
	record, err := chaos.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w; its logs are in %s", o.Seed, err, o.Dir)
	}
	fmt.Printf("the record and the logs are in %s\n", o.Dir)
	return record, nil
}

// complete sets what the flags do not. The logs are in dist/chaos.
func complete(o *chaos.Options, scheduler string) (err error) {
	if o.Root, err = os.Getwd(); err != nil {
		return err
	}
	if o.Program = scheduler; scheduler == "" {
		if o.Program, err = program.Scheduler(o.Root); err != nil {
			return err
		}
	}
	start := time.Now()
	o.Logf = func(format string, args ...any) {
		fmt.Printf("%6s  %s\n", time.Since(start).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
	}
	o.Dir = filepath.Join(o.Root, "dist", "chaos", fmt.Sprint(o.Seed))
	return os.RemoveAll(o.Dir)
}
