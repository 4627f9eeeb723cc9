// Command run makes a chaos run and prints what the judges say of it. Its exit code is 1 when one of them found something.
//
//	go run ./test/chaos/run -seed 1 -duration 5m
//	go run ./test/chaos/run -record dist/chaos/1/record.json.gz
//	go run ./test/chaos/run -blind 10
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
	blind := flag.Int("blind", 0, "restart the API server so many times under three schedulers instead, and compare what they see")
	scheduler := flag.String("scheduler", "", "run this program instead of bin/zonewise-scheduler, which is built")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *blind > 0 {
		err = compare(ctx, *blind, *scheduler)
	} else {
		err = run(ctx, chaos.Options{Seed: *seed, Duration: *duration, Only: *only}, *scheduler, *recorded)
	}
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
	if err := complete(&o, scheduler, fmt.Sprint(o.Seed)); err != nil {
		return nil, err
	}
	record, err := chaos.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w; its logs are in %s", o.Seed, err, o.Dir)
	}
	fmt.Printf("the record and the logs are in %s\n", o.Dir)
	return record, nil
}

// compare restarts the API server under stock kube-scheduler, the scheduler, and the scheduler without retried watches.
func compare(ctx context.Context, restarts int, scheduler string) error {
	var o chaos.Options
	if err := complete(&o, scheduler, "blind"); err != nil {
		return err
	}
	programs := filepath.Join(o.Root, "dist", "chaos", "programs")
	stock, errStock := program.StockScheduler(o.Root, programs)
	unretried, errUnretried := program.Unretried(o.Root, programs)
	if err := errors.Join(errStock, errUnretried); err != nil {
		return err
	}
	schedulers := []chaos.BlindScheduler{
		{Name: "kube-scheduler", Program: stock, InTree: true},
		{Name: "unretried", Program: unretried},
		{Name: "zonewise-scheduler", Program: o.Program},
	}
	seen, err := chaos.Blind(ctx, chaos.BlindOptions{Restarts: restarts, Schedulers: schedulers, Root: o.Root, Dir: o.Dir, Logf: o.Logf})
	if err != nil {
		return fmt.Errorf("%w; the logs are in %s", err, o.Dir)
	}
	return chaos.SummarizeBlind(os.Stdout, schedulers, seen)
}

// complete sets what runs have in common. The logs are in dist/chaos.
func complete(o *chaos.Options, scheduler, name string) (err error) {
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
	o.Dir = filepath.Join(o.Root, "dist", "chaos", name)
	return os.RemoveAll(o.Dir)
}
