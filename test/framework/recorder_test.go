package framework

import (
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// recorder keeps events as "object reason: note".
type recorder struct {
	mu     sync.Mutex // guards events
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	object := ""
	switch o := regarding.(type) {
	case *v1.Pod:
		object = "Pod " + o.Name
	case *v1.ObjectReference:
		object = o.Kind + " " + o.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", object, reason, fmt.Sprintf(note, args...)))
}

func (r *recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// count returns how many events begin with prefix and contain words.
func (r *recorder) count(prefix, words string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if strings.HasPrefix(e, prefix) && strings.Contains(e, words) {
			n++
		}
	}
	return n
}

// requireEvent waits for one event that begins with prefix and contains words, and for no second.
func (c *cluster) requireEvent(prefix, words string) {
	c.t.Helper()
	c.soon(func() bool { return c.recorder.count(prefix, words) > 0 })
	require.Equal(c.t, 1, c.recorder.count(prefix, words), "%s ... %s", prefix, words)
}
