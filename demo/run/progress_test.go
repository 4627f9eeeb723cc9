package run

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cmd/zonewise/show"
)

// lockedBuffer is written by the ticking goroutine and read by the test.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestPlainProgress: a line every few seconds if there is something new, and one at the end.
func TestPlainProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		p := &progress{w: &out}
		start := time.Now()
		end := p.begin("place", func() string {
			if time.Since(start) < 20*time.Second {
				return withWaiting("1/2", "a node for pod x")
			}
			return withWaiting("2/2", "")
		})
		time.Sleep(31 * time.Second)
		end("2 bound", nil)
		require.Equal(t, "..  place  1/2; waits for a node for pod x (5s)\n..  place  2/2 (20s)\nok  place: 2 bound (31.0s)\n", out.String())
	})
}

func TestLiveProgressRewritesOneLineWithinTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		p := &progress{w: &out, live: true}
		end := p.begin("place", func() string { return strings.Repeat("é", 100) })
		time.Sleep(300 * time.Millisecond)
		end("", errors.New("no"))
		line := "\r\x1b[K..  place  " + strings.Repeat("é", show.DefaultWidth-1-len("..  place  "))
		require.Equal(t, line+"\r\x1b[K\x1b[31mfailed\x1b[0m  place (0.3s)\n", out.String())
	})
}

func TestQuietProgressSaysNothing(*testing.T) {
	p := &progress{}
	p.printLine("x")
	p.begin("place", func() string { panic("asked") })("done", nil)
}
