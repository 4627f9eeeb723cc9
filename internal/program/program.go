// Package program is how a command line for people and scripts ends: an error is one line on standard error, and the
// exit code says of which kind it is.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The exit codes that all programs have.
const (
	OK          = 0
	Failed      = 1
	Misused     = 2   // a flag or an argument is wrong
	Interrupted = 130 // Ctrl-C, or another signal that ends the process
)

// Name returns the name by which the program was called: kube-scheduler in the image, zonewise-scheduler after "make
// build".
func Name() string { return filepath.Base(os.Args[0]) }

// WithFlags adds to the error about a flag of a command how to list the flags, for cobra.Command.SetFlagErrorFunc.
func WithFlags(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
}

// Codes are the errors with exit codes of their own. One without a text has been reported already.
type Codes map[error]int

// usageError marks an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error in the command line.
func Usage(err error) error { return usageError{err} }

// NoArgs refuses arguments. Those of a command that has others are unknown commands.
func NoArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return Usage(fmt.Errorf("%s takes no arguments, got %q", cmd.Name(), args[0]))
	}
	meant := ""
	if known := cmd.SuggestionsFor(args[0]); len(known) > 0 {
		meant = ", did you mean " + strings.Join(known, " or ") + "?"
	}
	return Usage(fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant))
}

// Root prepares the root command: Report prints its errors, and wrong flags are marked.
func Root(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceErrors, cmd.SilenceUsage, cmd.Args = true, true, NoArgs
	cmd.SuggestionsMinimumDistance = 2 // letters
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	return cmd
}

// Run runs the root command until it ends or a signal interrupts it, and returns the exit code. The libraries log
// nothing.
func Run(root *cobra.Command, codes Codes) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return Report(os.Stderr, root.Name(), root.ExecuteContext(ctx), codes)
}

// Report prints the error of a program, in one line unless a log belongs to it, and returns the exit code.
func Report(w io.Writer, name string, err error, codes Codes) int {
	if err == nil {
		return OK
	}
	var usage usageError
	code, hint := Failed, ""
	switch {
	case errors.Is(err, context.Canceled):
		code, err = Interrupted, errors.New("interrupted")
	case errors.As(err, &usage):
		code, hint = Misused, " (see --help)"
	}
	for known, own := range codes {
		if errors.Is(err, known) {
			code = own
		}
	}
	if err.Error() != "" {
		fmt.Fprintf(w, "%s: %v%s\n", name, err, hint)
	}
	return code
}
