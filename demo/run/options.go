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

// Options are the options of the command line.
type Options struct {
	// Scale and Seed choose the workload; see workload.Options.
	Scale float64
	Seed  uint64
	// BinDir has the binaries; if Assets is not empty, it has those of etcd and kube-apiserver instead.
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

	// Out gets the board, Progress everything else.
	Out, Progress io.Writer
	// Live is true if Progress is a terminal on which a line may be rewritten; Width returns its current width.
	Live  bool
	Width func() int
	// OutWidth is the width of the terminal Out, 0 if Out is not a terminal.
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

// Validate checks the options, without looking at the machine.
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

// workloadError turns an error of the workload into one of the command line. It begins with the option's name, which is
// the flag's, too.
func workloadError(err error) error {
	name, rest, _ := strings.Cut(err.Error(), ": ")
	return &UsageError{name, errors.New(rest)}
}

func (o Options) workload() workload.Options {
	return workload.Options{Scale: o.Scale, Seed: o.Seed, Zones: Zones}
}
