package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// result is one measurement; the file of results has one in each line, as JSON.
type result struct {
	series
	Time   time.Time `json:"time"`   // of the start
	Commit string    `json:"commit"` // "-dirty" behind it when there were changes

	// Set is the start of the measurement in turns that the result belongs to, and Turn its number there, from 1 on; 0 is the result of all turns,
	// which has Members. Both are zero for a measurement of its own.
	Set  time.Time `json:"set,omitzero"`
	Turn int       `json:"turn,omitempty"`

	// PodsPerSecond is scheduler_perf's SchedulingThroughput, the average of its samples of a second each; in a turn it is the
	// number of pods divided by Seconds.
	PodsPerSecond float64 `json:"podsPerSecond"`
	// Seconds is the time from the first measured pod's creation to the last one's binding.
	Seconds float64 `json:"seconds"`
	// CPUMillis is the CPU time per measured pod, in milliseconds, that the process took: the scheduler, the
	// API server and their clients, not etcd. It says more than the throughput on a machine that others use.
	CPUMillis float64 `json:"cpuMillis"`
	// SchedulerCPUMillis is the part of it that was spent in the scheduler's and its plugins' code, what
	// that code called included. Garbage collection is in CPUMillis only.
	SchedulerCPUMillis float64 `json:"schedulerCPUMillis"`

	// PackCPUMillis is the part of the scheduler's that was spent in the pack's functions and what they called. The share
	// of CPUMillis is the figure that a slow or busy machine changes least: both were slowed alike.
	PackCPUMillis float64 `json:"packCPUMillis"`

	// Members is nil for a case without gangs, and for a single turn. Of all turns it has the gangs of the warm-up, too.
	Members *members `json:"members,omitempty"`

	Machine machine `json:"machine"`
}

// readResults returns the results in a file, none when there is no file.
func readResults(path string) ([]result, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var results []result
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		results = append(results, r)
	}
	return results, lines.Err()
}

// appendResult adds a line to a file.
func appendResult(path string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
