package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// bench runs single measurements with a compiled test binary of this package.
type bench struct {
	binary string // of "go test -c"
	dir    string // for logs, profiles and scheduler_perf's own files
	commit string
}

// measure runs one case with one variant once. Its files are kept in a directory named after it.
func (b *bench) measure(ctx context.Context, s series) (result, error) {
	start := time.Now()
	dir := filepath.Join(b.dir, fmt.Sprintf("%s-%s-%s-%s", s.Case, s.Variant, s.Workload, start.Format("150405")))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return result{}, err
	}
	// A profile of 100 samples a second costs about a percent, and both sides pay it.
	command, log, err := b.prepare(ctx, s, dir, "-perf-cpuprofile")
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	m := startMeter()
	if err := command.Run(); err != nil {
		return result{}, errors.Join(ctx.Err(), fmt.Errorf("%w: see %s", err, log.Name()))
	}
	r := result{series: s, Time: start.UTC().Truncate(time.Second), Commit: b.commit}
	r.Machine = m.stop(command.ProcessState.UserTime() + command.ProcessState.SystemTime())
	pods, err := r.readItems(dir)
	if err != nil {
		return result{}, err
	}
	all, scheduler, pack, err := cpuTimes(dir)
	if err != nil {
		return result{}, err
	}
	if r.Members, err = readMembers(dir); err != nil {
		return result{}, err
	}
	r.CPUMillis = float64(all) / float64(time.Millisecond) / pods
	r.SchedulerCPUMillis = float64(scheduler) / float64(time.Millisecond) / pods
	r.PackCPUMillis = float64(pack) / float64(time.Millisecond) / pods
	return r, nil
}

// prepare returns the command that runs one case with one variant, and the log that it will write to; both are in dir.
func (b *bench) prepare(ctx context.Context, s series, dir string, more ...string) (*exec.Cmd, *os.File, error) {
	command := exec.CommandContext(ctx, b.binary, append([]string{
		"-test.run=^$", "-test.benchtime=1x", "-test.timeout=60m",
		fmt.Sprintf("-test.bench=^BenchmarkScheduling$/^%s$/^%s$/^%s$", s.Variant, s.Case, s.Workload),
		"-data-items-dir=" + dir,
	}, more...)...)
	// Interrupted, it would leave its etcd behind when killed.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	command.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=false", "ARTIFACTS="+dir)
	log, err := os.Create(filepath.Join(dir, "output.log"))
	command.Stdout, command.Stderr = log, log
	return command, log, err
}

// dataItems is scheduler_perf's file of measurements.
type dataItems struct {
	DataItems []struct {
		Data   map[string]float64 `json:"data"`
		Labels map[string]string  `json:"labels"`
	} `json:"dataItems"`
}

// readItems takes the throughput out of the measurements in a directory, and returns the number of pods.
func (r *result) readItems(dir string) (pods float64, err error) {
	content, err := readOnly(filepath.Join(dir, "*_benchmark_*.json"))
	if err != nil {
		return 0, err
	}
	var items dataItems
	if err := json.Unmarshal(content, &items); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	for _, item := range items.DataItems {
		switch item.Labels["Metric"] {
		case "SchedulingThroughput":
			r.PodsPerSecond = item.Data["Average"]
		case "SchedulingDuration":
			r.Seconds = item.Data["Duration"]
		}
	}
	if r.PodsPerSecond <= 0 || r.Seconds <= 0 {
		return 0, fmt.Errorf("%s: no throughput was measured: the workload is too small", dir)
	}
	return measuredPods(r.Case, r.Workload)
}

// readOnly returns the content of the one file that matches a pattern.
func readOnly(pattern string) ([]byte, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("%s: %d files, want one", pattern, len(files))
	}
	return os.ReadFile(files[0])
}

// cpuTimes returns the CPU time in a directory's profile, which covers the measured pods, and the part of it
// that has the scheduler or a plugin of ours on its stack, and of that what has a function of ours.
func cpuTimes(dir string) (all, scheduler, pack time.Duration, err error) {
	content, err := readOnly(filepath.Join(dir, "*-cpu.prof"))
	if err != nil {
		return 0, 0, 0, err
	}
	p, err := profile.ParseData(content)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("%s: CPU profile: %w", dir, err)
	}
	for _, sample := range p.Sample {
		spent := time.Duration(sample.Value[len(sample.Value)-1])
		all += spent
		ours := onStack(sample, "zonewise.dev/plugins/", "zonewise.dev/internal/")
		if ours {
			pack += spent
		}
		if ours || onStack(sample, "k8s.io/kubernetes/pkg/scheduler") {
			scheduler += spent
		}
	}
	return all, scheduler, pack, nil
}

// onStack tells whether a function of one of the packages was running or waiting for one it had called.
func onStack(sample *profile.Sample, packages ...string) bool {
	for _, location := range sample.Location {
		for _, line := range location.Line {
			for _, p := range packages {
				if line.Function != nil && strings.HasPrefix(line.Function.Name, p) {
					return true
				}
			}
		}
	}
	return false
}
