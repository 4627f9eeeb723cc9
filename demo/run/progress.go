package run

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"zonewise.dev/cmd/zonewise/show"
)

// How often the progress of a phase is shown: rewritten in place on a terminal, as a new line elsewhere if it has
// changed.
const (
	liveInterval  = 200 * time.Millisecond
	plainInterval = 5 * time.Second
)

// progress shows how far the demo is. With a nil writer it shows nothing.
type progress struct {
	w    io.Writer
	live bool
}

func newProgress(w io.Writer, quiet bool) *progress {
	if quiet {
		return &progress{}
	}
	return &progress{w: w, live: show.StyleOf(w).Color}
}

// printLine writes a line.
func (p *progress) printLine(format string, args ...any) {
	if p.w != nil {
		fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// begin shows status until the returned function is called with the phase's outcome.
func (p *progress) begin(title string, status func() string) (end func(outcome string, err error)) {
	if p.w == nil {
		return func(string, error) {}
	}
	start := time.Now()
	interval := plainInterval
	if p.live {
		interval = liveInterval
	}
	ctx, stop := context.WithCancel(context.Background())
	var ticking sync.WaitGroup
	ticking.Go(func() {
		last := ""
		_ = wait.PollUntilContextCancel(ctx, interval, false, func(context.Context) (bool, error) {
			if now := status(); p.live || now != last {
				p.show(title, now, time.Since(start))
				last = now
			}
			return false, nil
		})
	})
	return func(outcome string, err error) {
		stop()
		ticking.Wait()
		mark, color := "ok", show.Green
		if err != nil {
			mark, color, outcome = "failed", show.Red, ""
		}
		if outcome != "" {
			outcome = ": " + outcome
		}
		if p.live {
			show.Rewrite(p.w, "")
			mark = show.NewPage(show.Style{Color: true}).Paint(color, mark)
		}
		p.printLine("%s  %s%s (%.1fs)", mark, title, outcome, time.Since(start).Seconds())
	}
}

func (p *progress) show(title, status string, since time.Duration) {
	line := fmt.Sprintf("..  %s  %s", title, status)
	if !p.live {
		p.printLine("%s (%.0fs)", line, since.Seconds())
		return
	}
	show.Rewrite(p.w, line)
}
