package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// turnTaker is the measured process's side of turns: see turnMessage.
type turnTaker struct {
	ask     turnAsk
	in      *bufio.Reader
	out     io.Writer
	running *turnMeter // the turn whose pods are being bound; nil before the first one
}

// takerFromEnv returns what the driver asked for, nil when this process is measured alone.
func takerFromEnv() (*turnTaker, error) {
	value := os.Getenv(turnEnv)
	if value == "" {
		return nil, nil
	}
	var ask turnAsk
	if err := json.Unmarshal([]byte(value), &ask); err != nil {
		return nil, fmt.Errorf("%s: %w", turnEnv, err)
	}
	in, out := os.NewFile(turnInFD, "turns in"), os.NewFile(turnOutFD, "turns out")
	return &turnTaker{ask: ask, in: bufio.NewReader(in), out: out}, nil
}

// turns returns how many turns there will be, 0 when this process is measured alone.
func (t *turnTaker) turns() int {
	if t == nil {
		return 0
	}
	return t.ask.Turns
}

// afterNodes is called by scheduler_perf after each step that creates nodes. One that parts two turns ends the one, if it is
// not the first, waits for rest, and begins the other when the driver says so.
func (t *turnTaker) afterNodes(rest perf.NodeUpdateFn) perf.NodeUpdateFn {
	return func(tCtx ktesting.TContext, s *scheduler.Scheduler, w *perf.Workload, nodes *v1.NodeList) error {
		if !slices.ContainsFunc(nodes.Items, func(n v1.Node) bool { return strings.HasPrefix(n.Name, turnNodePrefix) }) {
			if rest == nil {
				return nil
			}
			return rest(tCtx, s, w, nodes)
		}
		message := turnMessage{}
		if t.running != nil {
			measured, err := t.running.wait(tCtx)
			if err != nil {
				return err
			}
			message.Measured = &measured
			t.running = nil
		}
		if rest != nil {
			if err := rest(tCtx, s, w, nodes); err != nil {
				return err
			}
		}
		runtime.GC() // every turn begins alike
		line, err := json.Marshal(message)
		if err != nil {
			return err
		}
		if _, err := t.out.Write(append(line, '\n')); err != nil {
			return err
		}
		answer, err := t.in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("waiting for the next turn: %w", err)
		}
		switch answer {
		case turnGo:
			t.running, err = startTurn(s, t.ask.Pods, t.ask.Dir)
			if err == nil {
				// scheduler_perf looks for goroutines that a failed workload left behind, for minutes.
				m := t.running
				tCtx.TB().Cleanup(func() { _ = m.stop() })
			}
			return err
		case turnEnd:
			return nil
		}
		return fmt.Errorf("waiting for the next turn: the driver says %q", answer)
	}
}

// turnMeter sees, through the scheduler's own informer, when the pods of a turn are created and bound.
type turnMeter struct {
	pods     int
	done     chan struct{} // closed when all are bound
	profile  *os.File
	informer cache.SharedIndexInformer
	handle   cache.ResourceEventHandlerRegistration
	stop     func() error // ends the profile and what the informer calls

	mu          sync.Mutex // guards everything below
	created     int
	bound       int
	first, last time.Time
	cpu         time.Duration // at the beginning, and at the end the difference
	err         error
}

// startTurn begins to measure. The pods are still to be created.
func startTurn(s *scheduler.Scheduler, pods int, dir string) (*turnMeter, error) {
	f, err := os.Create(filepath.Join(dir, turnProfile))
	if err != nil {
		return nil, err
	}
	m := &turnMeter{pods: pods, done: make(chan struct{}), profile: f}
	for _, fwk := range s.Profiles {
		m.informer = fwk.SharedInformerFactory().Core().V1().Pods().Informer()
	}
	m.stop = sync.OnceValue(func() error {
		pprof.StopCPUProfile()
		return errors.Join(m.informer.RemoveEventHandler(m.handle), m.profile.Close())
	})
	m.handle, err = m.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				m.take(nil, obj)
			}
		},
		UpdateFunc: func(before, obj any) { m.take(before, obj) },
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if m.cpu, err = cpuUsed(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, pprof.StartCPUProfile(f)
}

func (m *turnMeter) take(before, obj any) {
	now := time.Now()
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, updated := before.(*v1.Pod)
	if !updated {
		if m.created == 0 {
			m.first = now
		}
		m.created++
	}
	if pod.Spec.NodeName == "" || updated && old.Spec.NodeName != "" {
		return
	}
	if m.bound++; m.bound == m.pods {
		m.last = now
		used, err := cpuUsed()
		m.cpu, m.err = used-m.cpu, err
		close(m.done)
	}
}

// wait waits until the last pod of the turn is bound and returns what was measured.
func (m *turnMeter) wait(tCtx ktesting.TContext) (turnMeasured, error) {
	select {
	case <-m.done:
	case <-tCtx.Done():
	}
	err := m.stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound < m.pods {
		err = errors.Join(err, fmt.Errorf("%d of the %d pods of the turn were bound", m.bound, m.pods))
	}
	if err = errors.Join(err, m.err); err != nil {
		return turnMeasured{}, err
	}
	return turnMeasured{Pods: m.pods, Seconds: m.last.Sub(m.first).Seconds(), CPUSeconds: m.cpu.Seconds()}, nil
}

// cpuUsed returns the CPU time that this process has used.
func cpuUsed() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
