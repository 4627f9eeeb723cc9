// Command pictures draws docs/images/{board,status,explain,simulate}.svg anew, from a run of the demo and what the commands
// print on a terminal about it. It needs what "make demo" needs, and a few minutes:
//
//	make controlplane build
//	go run ./hack/pictures
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"zonewise.dev/cmd/zonewise/explain"
)

// columns is the width of the terminal, about what a page of documentation has room for.
const columns = 112

// gang is the one of the demo that is too large for its cluster.
const gang = "podgroup/train-too-large"

// pictures are those of commands, asked about the demo's cluster after its board.
var pictures = []struct{ file, label, command string }{
	{"status.svg", "zonewise status on the demo cluster: three zones, the gangs that are whole, and one that waits", "zonewise status"},
	{
		"explain.svg", "zonewise explain of the gang of the demo that waits: the plan, each zone, the scheduler's words, and what would let it go",
		"zonewise explain " + gang + " -n training",
	},
	{
		"simulate.svg", "zonewise simulate of the loss of zone-a: where its pods go, what becomes of gangs, and the verdict",
		"zonewise simulate --lose-zone zone-a",
	},
}

func main() {
	bin := flag.String("bin", "bin", "directory of the binaries")
	out := flag.String("out", filepath.Join("docs", "images"), "directory of the pictures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := draw(ctx, *bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, bin, out string) error {
	zonewise, err := filepath.Abs(filepath.Join(bin, "zonewise"))
	if err != nil {
		return err
	}
	drawn := map[string]string{}
	board, err := demo(ctx, zonewise, func(kubeconfig string) error {
		if err := untilSaid(ctx, zonewise, kubeconfig); err != nil {
			return err
		}
		for _, p := range pictures {
			sent, err := onTerminal(command(ctx, zonewise, kubeconfig, strings.Fields(p.command)[1:]...))
			if err == nil {
				drawn[p.file], err = svg(p.label, p.command, sent)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.command, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if drawn["board.svg"], err = svg("The closing board of make demo: pods per zone and service, gangs, ledger, phases and checks", "", board); err != nil {
		return err
	}
	// Written at the end, so that pictures of two runs are never mixed.
	for name, picture := range drawn {
		if err := os.WriteFile(filepath.Join(out, name), []byte(picture), 0o644); err != nil { //nolint:gosec // documentation
			return err
		}
	}
	return nil
}

// demo runs the demo, has something done while its cluster is kept, and returns the board.
func demo(ctx context.Context, zonewise string, do func(kubeconfig string) error) (board string, err error) {
	terminal, end, err := open()
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := command(ctx, zonewise, "", "demo", "--keep", "--report", "")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout = end
	progress, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	end.Close()
	sent := make(chan string, 1)
	go func() { sent <- read(terminal) }()

	kept := regexp.MustCompile(`export KUBECONFIG=(\S+)`)
	failure := errors.New("the demo ended before its cluster was kept")
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		if found := kept.FindStringSubmatch(lines.Text()); found != nil {
			failure = do(found[1])
			stop()
		}
	}
	// Its end was asked for, so that only the exit code tells whether all was well.
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 0 {
		return "", fmt.Errorf("the demo: %w", errors.Join(err, failure))
	}
	return <-sent, failure
}

// untilSaid waits until the scheduler says of the gang what explain does: its last attempt may be of the time before the zone
// came back.
func untilSaid(ctx context.Context, zonewise, kubeconfig string) error {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	for {
		out, err := command(ctx, zonewise, kubeconfig, "explain", gang, "-n", "training", "-o", "json").Output()
		if err != nil {
			return err
		}
		var report explain.Report
		if err := json.Unmarshal(out, &report); err != nil {
			return err
		}
		if report.Gang != nil && len(report.Said) > 0 && strings.Contains(report.Said[0].Words, report.Gang.Why) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the scheduler does not say what explain says: %s", out)
		case <-time.After(time.Second):
		}
	}
}

// onTerminal runs a command, and returns what it sends to its terminal. That a simulation fails is an answer.
func onTerminal(cmd *exec.Cmd) (string, error) {
	terminal, end, err := open()
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = end, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	end.Close()
	sent := read(terminal)
	const notSurvived = 4
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != notSurvived {
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return sent, nil
}

func open() (terminal, end *os.File, err error) {
	if terminal, end, err = pty.Open(); err != nil {
		return nil, nil, err
	}
	return terminal, end, pty.Setsize(terminal, &pty.Winsize{Rows: 60, Cols: columns})
}

// read reads a terminal until its other end is closed, which is an error of its own.
func read(terminal io.Reader) string {
	var sent bytes.Buffer
	_, _ = io.Copy(&sent, terminal)
	return sent.String()
}

// command is zonewise with a cluster, as somebody would call it who likes colours.
func command(ctx context.Context, zonewise, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, zonewise, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "KUBECONFIG="+kubeconfig)
	return cmd
}
