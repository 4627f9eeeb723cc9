package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cmd/controller/parts"
)

// fakePart notes when it looks and when it does a step, which takes a second each.
type fakePart struct {
	shared parts.Shared
	began  time.Time
	// steps are those that are left of the work that a look begins.
	steps int
	// next is what a look asks for, and fails how many looks fail.
	next  time.Duration
	fails int
	// busy is true while a part of the same leader reconciles.
	t     *testing.T
	busy  *atomic.Bool
	looks []time.Duration
	done  []time.Duration
}

func (p *fakePart) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	assert.NotNil(p.t, klog.FromContext(ctx).GetSink(), "what a part logs is written")
	assert.False(p.t, p.busy.Swap(true), "one Reconcile of the process runs at a time")
	defer p.busy.Store(false)
	defer time.Sleep(time.Second)
	if request == parts.Step {
		p.done = append(p.done, time.Since(p.began))
		p.steps--
		if p.steps > 0 {
			return reconcile.Result{RequeueAfter: parts.Soon}, nil
		}
		return reconcile.Result{}, nil
	}
	p.looks = append(p.looks, time.Since(p.began).Truncate(time.Second))
	if p.fails > 0 {
		p.fails--
		return reconcile.Result{}, errors.New("broken")
	}
	if p.steps > 0 {
		p.shared.Wake(parts.Step)
	}
	return reconcile.Result{RequeueAfter: p.next}, nil
}

// running runs what is added at once.
type running struct{ t *testing.T }

func (r running) Add(runnable manager.Runnable) error {
	go func() { _ = runnable.Start(r.t.Context()) }()
	return nil
}

// run runs parts in a leader that reads the cluster 10 seconds later, and lets time pass. Before that they do nothing.
func run(t *testing.T, change func(l *leader), all ...*fakePart) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &leader{flags: &flags{settle: 5 * time.Second}, working: make(chan struct{}, 1)}
		busy := &atomic.Bool{}
		for _, p := range all {
			p.t, p.busy, p.began = t, busy, time.Now().Add(10*time.Second)
			require.NoError(t, l.addPart(running{t}, parts.Description{Name: "part", New: func(shared parts.Shared) reconcile.Reconciler {
				p.shared = shared
				return p
			}}, parts.Shared{}))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, p := range all {
			require.Empty(t, p.looks, "nothing is looked at before the cluster is known")
		}
		l.lookAfter(0)
		change(l)
		time.Sleep(30 * time.Second)
		synctest.Wait()
	})
}

// TestPartsLook: a part looks once the cluster is known, after the time that it asked for, and when a change has
// settled.
func TestPartsLook(t *testing.T) {
	p := &fakePart{next: 20 * time.Second}
	run(t, func(l *leader) {
		time.Sleep(4 * time.Second)
		l.lookAfter(l.settle)
		time.Sleep(3 * time.Second)
		l.lookAfter(l.settle) // settles with the first
	}, p)
	require.Equal(t, []time.Duration{0, 9 * time.Second, 30 * time.Second}, p.looks)
}

// TestOnePartAtATime: parts never work at once, and a part that works in steps lets the others, and its own looks, have
// their turns in between.
func TestOnePartAtATime(t *testing.T) {
	long, other := &fakePart{steps: 20, next: time.Hour}, &fakePart{next: time.Hour}
	run(t, func(l *leader) {
		time.Sleep(5 * time.Second)
		l.lookAfter(l.settle)
	}, long, other)
	require.Len(t, long.done, 20)
	for _, p := range []*fakePart{long, other} {
		require.Len(t, p.looks, 2)
		require.LessOrEqual(t, p.looks[0], 2*time.Second)
		require.LessOrEqual(t, p.looks[1], 13*time.Second, "long before the last step")
	}
	require.Greater(t, long.done[19], 20*time.Second)
}

// TestAPartThatFails: it is tried again, and keeps no other part waiting.
func TestAPartThatFails(t *testing.T) {
	broken, other := &fakePart{fails: 3, next: time.Hour}, &fakePart{next: time.Hour}
	run(t, func(*leader) {}, broken, other)
	require.Len(t, broken.looks, 4)
	require.Len(t, other.looks, 1)
}
