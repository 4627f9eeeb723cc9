package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The driver gives a process the number of turns in turnsEnv and reads its output, which it copies to the log. When the
// process is ready for a turn it writes a line that begins with readyPrefix, with the figures of the last turn if there
// was one; the driver answers each but the last with goOn, on the process's standard input.
const (
	turnsEnv    = "ZONEWISE_BENCH_TURNS"
	readyPrefix = "ready:"
	goOn        = "go\n"
)

// resultsFile has a line for each turn in the format of Go's benchmarks
// (https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md).
const resultsFile = "turns.txt"

// bench measures with a compiled test binary of this package.
type bench struct {
	binary string // of "go test -c"
	dir    string // for the results, logs, profiles and scheduler_perf's own files
	turns  int
	out    io.Writer
}

// player is a process that takes turns.
type player struct {
	series
	command *exec.Cmd
	log     *os.File
	answers io.WriteCloser
	says    *bufio.Reader
}

// measure has the series of a set take turns. Their processes start one after the other.
func (b *bench) measure(ctx context.Context, s set) (err error) {
	began := time.Now().Format("20060102-150405")
	var players []*player
	defer func() {
		for _, p := range players {
			err = errors.Join(err, p.stop(err == nil))
		}
	}()
	for _, member := range s.series {
		p, err := b.start(ctx, member, s.workload, filepath.Join(b.dir, began, member.name+"-"+member.variant))
		if err != nil {
			return err
		}
		players = append(players, p)
		if _, err := p.listen(); err != nil {
			return err
		}
	}
	for turn := range b.turns {
		for _, i := range turnOrder(len(players), turn) {
			p := players[i]
			if _, err := io.WriteString(p.answers, goOn); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, p.variant, err)
			}
			figures, err := p.listen()
			if err != nil {
				return err
			}
			line := fmt.Sprintf("BenchmarkE2E/set=%s_%s/series=%s,%s 1 %s", s.name, s.workload, p.name, p.variant, figures)
			if err := b.record(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// record adds a line to the results, and shows it.
func (b *bench) record(line string) error {
	fmt.Fprintln(b.out, line)
	f, err := os.OpenFile(filepath.Join(b.dir, resultsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// turnOrder returns who is first, second and so on in a turn. Each of them is everywhere in the order, and each pair is
// as often one way round as the other.
func turnOrder(players, turn int) []int {
	order := make([]int, players)
	for i := range order {
		order[i] = (i + turn/2) % players
	}
	if turn%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// start starts the process of a series, whose files are in dir.
func (b *bench) start(ctx context.Context, s series, workload, dir string) (*player, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "output.log"))
	if err != nil {
		return nil, err
	}
	p := &player{series: s, log: log}
	p.command = exec.CommandContext(ctx, b.binary,
		"-test.run=^$", "-test.benchtime=1x", "-test.timeout=60m", "-data-items-dir="+dir,
		fmt.Sprintf("-test.bench=^BenchmarkScheduling$/^%s$/^%s$/^%s$", s.variant, s.name, workload))
	// It stops its etcd before it ends, unless it is killed.
	p.command.Cancel = func() error { return p.command.Process.Signal(os.Interrupt) }
	p.command.WaitDelay = time.Minute
	p.command.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=false", "ARTIFACTS="+dir, turnsEnv+"="+strconv.Itoa(b.turns))
	p.command.Stderr = log
	p.answers, err = p.command.StdinPipe()
	says, err2 := p.command.StdoutPipe()
	if err = errors.Join(err, err2); err == nil {
		p.says, err = bufio.NewReader(says), p.command.Start()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return p, nil
}

// listen waits until the process is ready, and returns what it measured in its last turn, if there was one.
func (p *player) listen() (figures string, err error) {
	for {
		line, err := p.says.ReadString('\n')
		_, err2 := p.log.WriteString(line)
		if err = errors.Join(err, err2); err != nil {
			return "", fmt.Errorf("the process ended too early: %w: see %s", err, p.log.Name())
		}
		if content, ok := strings.CutPrefix(line, readyPrefix); ok {
			return strings.TrimSpace(content), nil
		}
	}
}

// stop ends a process: after its last turn it ends by itself.
func (p *player) stop(well bool) error {
	if !well {
		_ = p.command.Process.Signal(os.Interrupt) // it may have ended
	}
	errs := []error{p.answers.Close()}
	_, err := io.Copy(p.log, p.says)
	errs = append(errs, err)
	if err := p.command.Wait(); err != nil && well {
		errs = append(errs, fmt.Errorf("%w: see %s", err, p.log.Name()))
	}
	return errors.Join(append(errs, p.log.Close())...)
}
