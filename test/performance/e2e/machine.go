package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine is the state of the machine during a measurement.
type machine struct {
	Cores int `json:"cores"`
	// Load is the load average of one minute before the start; negative where the system does not tell.
	Load float64 `json:"load"`
	// Others is the share of all cores that other processes used while this one was running, 0 to 1;
	// negative where the system does not tell.
	Others float64 `json:"others"`
}

// meter measures what other processes use.
type meter struct {
	start time.Time
	busy  time.Duration
	load  float64
	err   error
}

func startMeter() *meter {
	m := &meter{start: time.Now()}
	m.busy, m.err = busyTime()
	m.load = loadAverage()
	return m
}

// stop returns the state since the start, of which used is the CPU time of the measured processes.
func (m *meter) stop(used time.Duration) machine {
	result := machine{Cores: runtime.NumCPU(), Load: m.load, Others: -1}
	busy, err := busyTime()
	if m.err != nil || err != nil {
		return result
	}
	capacity := time.Since(m.start) * time.Duration(result.Cores)
	result.Others = max(0, float64(busy-m.busy-used)/float64(capacity))
	return result
}

// userHZ is the unit of /proc/stat, which Linux fixes at a hundredth of a second for all programs.
const userHZ = 100

// busyTime returns the CPU time that all processes have used since the machine started, after proc_stat(5).
func busyTime() (time.Duration, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(content), "\n")
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+irq+softirq) * time.Second / userHZ, nil
}

// loadAverage returns the number of processes that ran or wanted to, averaged over a minute, after
// proc_loadavg(5), or -1.
func loadAverage() float64 {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	var load float64
	if _, err := fmt.Sscan(string(content), &load); err != nil {
		return -1
	}
	return load
}
