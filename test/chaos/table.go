package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/chaos/judge"
)

// lateFor is for how long a view is late or says things twice.
const lateFor = 2 * time.Second

// tableStaysFor is for how long what is bound at the end of a cell is watched.
const tableStaysFor = time.Second

// Cell is one of the table of perturbed views: in a scenario, something happens to what a scheduler sees at its n-th write.
type Cell struct {
	scenario *scenario
	manner   manner
	resource string // whose view it is; "" when the scheduler is killed
	n        int
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, write %d: %s", c.scenario.name, c.n, strings.TrimSpace(c.resource+" "+string(c.manner)))
}

// Rows are the cells of the table with n = 1: what can happen in each scenario.
func Rows() (out []Cell) {
	for _, s := range scenarios {
		out = append(out, Cell{scenario: s, manner: killed, n: 1})
		for _, resource := range s.resources {
			for _, m := range []manner{late, twice, dropped, stale} {
				if m == stale && slices.Contains(s.blind, resource) {
					continue
				}
				out = append(out, Cell{scenario: s, manner: m, resource: resource, n: 1})
			}
		}
	}
	return out
}

// At is the cell of the same row for another write.
func (c Cell) At(n int) Cell {
	c.n = n
	return c
}

// Table plays cells on one control plane.
type Table struct {
	Options
	cluster  *cluster
	recorder *recorder
	cancel   context.CancelFunc
	ctx      context.Context
	replicas int // that there were
	cells    int
}

// NewTable starts the control plane. The caller closes the table.
func NewTable(ctx context.Context, o Options) (*Table, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	t := &Table{Options: o}
	var err error
	if t.cluster, err = startCluster(ctx, o.Root, o.Dir); err != nil {
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	if t.recorder, err = startRecorder(t.ctx, t.cluster.etcdURL()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := createAll(ctx, t.cluster.client, surroundings()...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close stops the control plane.
func (t *Table) Close() error {
	t.cancel()
	return t.cluster.stop()
}

// Play plays a cell and returns its record. reached is false when the scheduler wrote less often than the cell's n: then nothing
// happened to it. An error says that a scenario did not come to its end, too.
func (t *Table) Play(c Cell) (record *history.Record, reached bool, err error) {
	t.cells++
	dir := filepath.Join(t.Dir, fmt.Sprintf("cell-%d", t.cells))
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; the logs are in %s", err, dir)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, false, err
	}
	p := &play{run: run{Options: t.Options, cluster: t.cluster, recorder: t.recorder, record: &history.Record{}}, cell: c}
	p.Dir = dir
	if err := p.begin(t.ctx); err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, p.clear(t.ctx)) }()
	for i := range p.ways {
		if p.ways[i], err = startProxy(t.cluster.kubeconfig, dir, fmt.Sprintf("proxy-%d", i+1)); err != nil {
			return nil, false, err
		}
		defer func() { err = errors.Join(err, p.ways[i].stop()) }()
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	if p.replicas, err = startReplicas(ctx, t.cluster, replicaOptions{program: t.Program, dir: dir, qps: schedulerQPS, after: t.replicas, gates: nativeGates}, p.ways[:]...); err != nil {
		return nil, false, err
	}
	reached, err = p.play(ctx)
	cancel()
	p.replicas.stopped()
	t.replicas += len(p.replicas.started())
	if err != nil {
		return nil, reached, err
	}
	return p.record, reached, p.finish(t.ctx)
}

// play is a cell that is played.
type play struct {
	run
	cell Cell
	ways [2]*proxy
}

// begin makes what is there before the schedulers.
func (p *play) begin(ctx context.Context) error {
	// A killed leader cannot give its lease back.
	old := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: schedulerName}}
	if err := client.IgnoreNotFound(p.cluster.client.Delete(ctx, old)); err != nil {
		return err
	}
	if err := p.recorder.catchUp(ctx); err != nil {
		return err
	}
	changes, err := p.recorder.record(0)
	if err != nil {
		return err
	}
	p.began, p.before = time.Now(), len(changes)
	p.controllers = &controllers{client: p.cluster.client, demand: p.cell.scenario.demand()}
	return createAll(ctx, p.cluster.client, asObjects(p.cell.scenario.nodes())...)
}

// clear deletes all that is left, also after an error.
func (p *play) clear(ctx context.Context) error {
	p.controllers.stop()
	if err := p.controllers.deleteAll(ctx); err != nil {
		return err
	}
	return p.cluster.client.DeleteAllOf(ctx, &v1.Node{})
}

// play goes through the scenario.
func (p *play) play(ctx context.Context) (reached bool, err error) {
	scenario := p.cell.scenario
	go p.controllers.run(ctx)
	if err := p.until(ctx, scenario.ready); err != nil {
		return false, fmt.Errorf("before anything happened: %w", err)
	}
	leader, err := p.replicas.leader(ctx)
	if err != nil {
		return false, err
	}
	metrics, err := leader.metrics(ctx)
	if err != nil {
		return false, err
	}
	p.record.Goroutines[0] = metrics["go_goroutines"]
	t := p.trigger()
	for _, way := range p.ways {
		way.arm(t)
	}
	if err := scenario.step(ctx, p); err != nil {
		return !t.fired().IsZero(), err
	}
	if err := p.until(ctx, scenario.done); err != nil {
		return !t.fired().IsZero(), err
	}
	if at := t.fired(); !at.IsZero() {
		if _, err := p.replicas.leader(ctx); err != nil {
			return true, err
		}
		p.record.Faults = []history.Fault{{Kind: p.cell.String(), Began: at, Ended: time.Now()}}
	}
	if err := p.settle(ctx, tableStaysFor); err != nil {
		return true, err
	}
	if err := p.until(ctx, scenario.done); err != nil {
		return true, fmt.Errorf("after it was done: %w", err)
	}
	return !t.fired().IsZero(), p.forget(ctx)
}

// trigger is what the cell does at its write.
func (p *play) trigger() *trigger {
	c := p.cell
	return &trigger{left: c.n, kill: c.manner == killed || c.manner == stale, fire: func(leader *proxy) {
		for _, way := range p.ways {
			switch {
			case c.manner == killed:
			case c.manner == stale && way != leader:
				way.perturb(late, c.resource, lateFor+lease.duration)
			case c.manner != stale && way == leader:
				way.perturb(c.manner, c.resource, lateFor)
			}
		}
	}}
}

// until waits for something that the storage shows: what is missing, or "".
func (p *play) until(ctx context.Context, missing func(*play, *history.Index, int64) string) error {
	deadline := time.Now().Add(judge.BoundWithin)
	for {
		x, revision, err := p.now(ctx)
		if err != nil {
			return err
		}
		what := missing(p, x, revision)
		if what == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %s", judge.BoundWithin, what)
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
}
