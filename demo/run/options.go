package run

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"zonewise.dev/demo/workload"
)

// Formats of the board.
const (
	Text = "text"
	JSON = "json"
)

// Zones are the demo's zones; it loses the last.
var Zones = []string{"zone-a", "zone-b", "zone-c"}

// Options are what the command line says.
type Options struct {
	// Scale and Seed choose the workload; see workload.Options.
	Scale float64
	Seed  uint64
	// BinDir has the binaries, Assets those of etcd and kube-apiserver instead when it is not empty.
	BinDir, Assets string
	// Self is the path of this executable.
	Self string
	// Port is the API server's, BoardPort that of the live page; 0 takes a free one.
	Port, BoardPort int
	// Report is the file that the closing page is written to; empty writes none.
	Report string
	// Timeout bounds everything up to the board.
	Timeout time.Duration
	// Keep leaves the cluster up after the board until the context ends.
	Keep bool
	// Format is Text or JSON.
	Format string
	// Quiet leaves out the progress.
	Quiet bool

	// Out takes the board, Progress everything else.
	Out, Progress io.Writer
	// Live says that Progress is a terminal on which a line may be rewritten; Width is that terminal's width at any moment.
	Live  bool
	Width func() int
	// OutWidth is the width of the terminal that Out is, 0 when it is none.
	OutWidth int
	// ColorOut and ColorProgress allow colours.
	ColorOut, ColorProgress bool
}

// UsageError says that an option is wrong.
type UsageError struct {
	// Flag is the command line's name for the option.
	Flag string
	// Err is what is wrong with it.
	Err error
}

// Error names the flag and the fault.
func (e *UsageError) Error() string { return "--" + e.Flag + ": " + e.Err.Error() }

// Unwrap returns the fault.
func (e *UsageError) Unwrap() error { return e.Err }

// Validate checks the options that need no look at the machine.
func (o Options) Validate() error {
	if err := o.workload().Validate(); err != nil {
		return workloadError(err)
	}
	for flag, port := range map[string]int{"port": o.Port, "board-port": o.BoardPort} {
		if port < 0 || port > 65535 {
			return &UsageError{flag, fmt.Errorf("must be between 0 and 65535, got %d", port)}
		}
	}
	if o.Timeout <= 0 {
		return &UsageError{"timeout", fmt.Errorf("must be positive, got %s", o.Timeout)}
	}
	if o.Format != Text && o.Format != JSON {
		return &UsageError{"output", fmt.Errorf("must be %s or %s, got %q", Text, JSON, o.Format)}
	}
	return nil
}

// workloadError makes an error of the workload one of the command line: it names its option first, by the name that the flag
// has too.
func workloadError(err error) error {
	name, rest, _ := strings.Cut(err.Error(), ": ")
	return &UsageError{name, errors.New(rest)}
}

func (o Options) workload() workload.Options {
	return workload.Options{Scale: o.Scale, Seed: o.Seed, Zones: Zones}
}
