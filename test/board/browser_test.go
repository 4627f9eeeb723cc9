package board

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/apiserver"
)

// browser is the one that all tests open their tabs in. It ends with the test binary.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx, stop, err := startBrowser()
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			return 1
		}
		defer stop()
		browser = ctx
		return m.Run()
	}())
}

// startBrowser starts Chromium without a window.
func startBrowser() (context.Context, func(), error) {
	path, err := chromium()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "board-browser-")
	if err != nil {
		return nil, nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir), chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	end := func() {
		cancel()
		stop()
		_ = os.RemoveAll(dir)
	}
	if err := chromedp.Do(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, end, nil
}

// chromium finds the browser.
func chromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium: install it (apt-get install chromium)")
}

// tab is a page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	*faults
}

// faults are what a page has done that it must not do.
type faults struct {
	mu   sync.Mutex // guards list
	list []string
}

// with is the tab in a subtest.
func (p *tab) with(t *testing.T) *tab { return &tab{t: t, ctx: p.ctx, faults: p.faults} }

// openTab opens a tab that shares nothing with the others. It is closed with the test.
func openTab(t *testing.T, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, faults: &faults{}}
	require.NoError(t, chromedp.Listen(ctx, p.listen))
	p.do(chromedp.EmulateViewport(width, height))
	return p
}

// listen notes what a page must not do: exceptions, and what the Content-Security-Policy or the network refused.
func (p *tab) listen(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			fault = e.Entry.Text
		}
	}
	if fault != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.list = append(p.list, fault)
	}
}

func (p *tab) requireNoFaults() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.list)
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	for _, step := range steps {
		require.NoError(p.t, chromedp.Do(p.ctx, step))
	}
}

func (p *tab) open(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// media emulates what the user prefers.
func (p *tab) media(features ...*emulation.MediaFeature) {
	p.t.Helper()
	p.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return chromedp.Void{}, err
	})
}

func prefers(what, value string) *emulation.MediaFeature {
	return &emulation.MediaFeature{Name: "prefers-" + what, Value: value}
}

// ask evaluates JavaScript in the page.
func ask[T any](p *tab, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	require.NoError(p.t, err, script)
	return v
}

// text is what an element says, "" when there is none.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return ask[string](p, fmt.Sprintf(`(document.querySelector(%q) || {textContent: ""}).textContent.trim()`, selector))
}

// until waits until an element says something.
func (p *tab) until(selector string, says func(string) bool, what string) {
	p.t.Helper()
	last := ""
	for start := time.Now(); time.Since(start) < apiserver.Eventually; time.Sleep(50 * time.Millisecond) {
		if last = p.text(selector); says(last) {
			return
		}
	}
	require.FailNow(p.t, what, "%s says %q", selector, last)
}

func has(part string) func(string) bool {
	return func(text string) bool { return strings.Contains(text, part) }
}

func lacks(part string) func(string) bool {
	return func(text string) bool { return !strings.Contains(text, part) }
}

// screenshot keeps a picture of the whole page, if somebody wants pictures.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("BOARD_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}
