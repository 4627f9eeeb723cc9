package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Measuring in turns: the processes of all series of a case are there at once, each with its cluster, and one of them
// after the other creates some seconds' worth of pods and waits until they are bound, while the rest have nothing to do.
// A machine that is shared changes its speed in the course of minutes: two turns that follow one another see the same one.
//
// The driver tells a process what to do in the environment variable turnEnv, a turnAsk, and talks to it over two pipes: it
// reads lines with a turnMessage, and answers each with turnGo or, after the last turn, turnEnd.
const (
	turnEnv     = "ZONEWISE_BENCH_TURNS"
	turnInFD    = 3 // of the measured process
	turnOutFD   = 4
	turnGo      = "go\n"
	turnEnd     = "end\n"
	turnProfile = "turn-cpu.prof" // of the last turn
)

// turnAsk is what the driver asks of a process.
type turnAsk struct {
	Turns int    `json:"turns"`
	Pods  int    `json:"pods"` // of each turn
	Dir   string `json:"dir"`  // for the profile of each turn
}

// turnMessage is what a process says when it is ready for the next turn: what it measured in the last one, if there was one.
type turnMessage struct {
	Measured *turnMeasured `json:"measured,omitempty"`
}

// turnMeasured is what a process measured in a turn.
type turnMeasured struct {
	Pods int `json:"pods"`
	// Seconds is the time from the first pod's creation to the last one's binding, as the scheduler's informer saw both.
	Seconds float64 `json:"seconds"`
	// CPUSeconds is what the process used of the CPU from just before the first creation to the last binding.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// player is a process that takes turns.
type player struct {
	series
	dir     string
	command *exec.Cmd
	log     *os.File
	answers io.WriteCloser
	says    *bufio.Reader
	closers []io.Closer
}

// measureInTurns measures the series against one another. Their processes start one after the other. What was seen of the members of gangs is
// known when they have ended: it comes as a result of its own, of all turns.
func (b *bench) measureInTurns(ctx context.Context, all []series, turns int, record func(result) error) error {
	set := time.Now()
	players, err := b.startPlayers(ctx, all, turns, set)
	results := map[series][]result{}
	if err == nil {
		err = b.takeTurns(players, turns, func(r result) error {
			r.Set, r.Commit = set.UTC().Truncate(time.Second), b.commit
			results[r.series] = append(results[r.series], r)
			return record(r)
		})
	}
	for _, p := range players {
		err = errors.Join(err, p.stop(ctx.Err() == nil && err == nil))
	}
	if err != nil {
		return err
	}
	for _, p := range players {
		members, err := readMembers(p.dir)
		if err != nil {
			return err
		}
		if members == nil {
			continue
		}
		if err := record(sumOfTurns(results[p.series], members)); err != nil {
			return err
		}
	}
	return nil
}

// startPlayers returns those that have started, also when one has failed.
func (b *bench) startPlayers(ctx context.Context, all []series, turns int, set time.Time) (players []*player, err error) {
	for _, s := range all {
		p, err := b.startPlayer(ctx, s, turns, set)
		if p != nil {
			players = append(players, p)
		}
		if err != nil {
			return players, err
		}
		if _, err := p.listen(); err != nil {
			return players, err
		}
	}
	return players, nil
}

func (b *bench) takeTurns(players []*player, turns int, record func(result) error) error {
	for turn := range turns {
		for _, i := range turnOrder(len(players), turn) {
			r, err := b.takeTurn(players[i])
			if err != nil {
				return err
			}
			r.Turn = turn + 1
			if err := record(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// sumOfTurns returns a result of all turns of one series, with what was seen of its gangs. Its turn is 0.
func sumOfTurns(turns []result, m *members) result {
	sum := turns[0]
	sum.Turn, sum.Members = 0, m
	sum.Seconds = 0
	for _, r := range turns {
		sum.Seconds += r.Seconds
	}
	// Each turn has the same number of pods.
	sum.PodsPerSecond = float64(len(turns)) * turns[0].PodsPerSecond * turns[0].Seconds / sum.Seconds
	sum.CPUMillis = mean(turns, func(r result) float64 { return r.CPUMillis })
	sum.SchedulerCPUMillis = mean(turns, schedulerCPU)
	sum.PackCPUMillis = mean(turns, func(r result) float64 { return r.PackCPUMillis })
	return sum
}

func mean(results []result, value func(result) float64) (sum float64) {
	for _, r := range results {
		sum += value(r)
	}
	return sum / float64(len(results))
}

// turnOrder returns who is first, second and so on in a turn. Each of them is everywhere in the order, and each pair is as
// often one way round as the other.
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

func (b *bench) startPlayer(ctx context.Context, s series, turns int, set time.Time) (*player, error) {
	pods, err := podsOfTurn(s.Case, s.Workload)
	if err != nil {
		return nil, err
	}
	p := &player{series: s, dir: filepath.Join(b.dir, fmt.Sprintf("turns-%s", set.Format("150405")), s.Case+"-"+s.Variant)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	ask, err := json.Marshal(turnAsk{Turns: turns, Pods: int(pods), Dir: p.dir})
	if err != nil {
		return nil, err
	}
	if p.command, p.log, err = b.prepare(ctx, s, p.dir); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.log)
	p.command.Env = append(p.command.Env, turnEnv+"="+string(ask))
	theirIn, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, p.log.Close())
	}
	says, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, p.log.Close(), theirIn.Close(), answers.Close())
	}
	p.answers, p.says = answers, bufio.NewReader(says)
	p.closers = append(p.closers, says)
	p.command.ExtraFiles = []*os.File{theirIn, theirOut} // from turnInFD on
	err = p.command.Start()
	// Theirs now; with theirOut closed here, its reader sees the end of the process.
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		p.command = nil
	}
	return p, err
}

// listen waits until the process is ready.
func (p *player) listen() (*turnMeasured, error) {
	line, err := p.says.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%s: the process ended too early: see %s", p.series, p.log.Name())
	}
	var message turnMessage
	if err := json.Unmarshal(line, &message); err != nil {
		return nil, fmt.Errorf("%s: %w", p.series, err)
	}
	return message.Measured, nil
}

// takeTurn lets a process go on for a turn.
func (b *bench) takeTurn(p *player) (result, error) {
	r := result{series: p.series, Time: time.Now().UTC().Truncate(time.Second)}
	m := startMeter()
	if _, err := io.WriteString(p.answers, turnGo); err != nil {
		return r, fmt.Errorf("%s: %w", p.series, err)
	}
	measured, err := p.listen()
	if err != nil {
		return r, err
	}
	if measured == nil || measured.Pods <= 0 || measured.Seconds <= 0 {
		return r, fmt.Errorf("%s: nothing was measured in the turn: see %s", p.series, p.log.Name())
	}
	// What etcd used is among the others'.
	r.Machine = m.stop(time.Duration(measured.CPUSeconds * float64(time.Second)))
	all, scheduler, pack, err := cpuTimes(p.dir)
	if err != nil {
		return r, err
	}
	r.Seconds = measured.Seconds
	r.PodsPerSecond = float64(measured.Pods) / measured.Seconds
	r.CPUMillis = 1000 * measured.CPUSeconds / float64(measured.Pods)
	if all > 0 { // a turn may be too short for a sample
		// The profile goes on until the process notices the last binding: its shares count.
		r.SchedulerCPUMillis = r.CPUMillis * float64(scheduler) / float64(all)
		r.PackCPUMillis = r.CPUMillis * float64(pack) / float64(all)
	}
	return r, nil
}

// stop ends a process, by itself when all went well.
func (p *player) stop(well bool) error {
	var errs []error
	if p.command != nil {
		if well {
			_, err := io.WriteString(p.answers, turnEnd)
			errs = append(errs, err)
		} else {
			// It may have ended; otherwise it stops its etcd before it ends.
			_ = p.command.Process.Signal(os.Interrupt)
		}
	}
	errs = append(errs, p.answers.Close())
	if p.command != nil {
		if err := p.command.Wait(); err != nil && well {
			errs = append(errs, fmt.Errorf("%s: %w: see %s", p.series, err, p.log.Name()))
		}
	}
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
