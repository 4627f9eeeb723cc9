package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/chaos/judge"
)

const (
	// staysFor is for how long what is bound at the end is watched.
	staysFor = 5 * time.Second
	// settleTimeout ends the wait for what fits; it is more than judge.BoundWithin, so that the summary can say how
	// late it was.
	settleTimeout = 2 * judge.BoundWithin
	// restsFor is for how long the goroutines of a leader without pods have become no more.
	restsFor = 2 * time.Second
	// forgetTimeout is by when nothing is left of what has been deleted.
	forgetTimeout = time.Minute
)

// Options are those of a run.
type Options struct {
	Seed     uint64
	Duration time.Duration // until the last fault is over
	Only     string        // faults whose names contain this; "" are all
	Root     string        // of the repository
	Program  string        // the scheduler's
	Dir      string        // for the logs, and the record
	Logf     func(format string, args ...any)
}

// run is one that goes on.
type run struct {
	Options
	cluster     *cluster
	recorder    *recorder
	replicas    *replicas
	controllers *controllers
	faults      *faults
	record      *history.Record
	// began is when it did, and before is how many changes the recorder had seen then.
	began  time.Time
	before int
}

// Run makes a run, and returns its record.
func Run(ctx context.Context, o Options) (_ *history.Record, err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	r := &run{Options: o, record: &history.Record{Seed: o.Seed}}
	if r.cluster, err = startCluster(ctx, o.Root, o.Dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.stop()) }()
	// Ends before the cluster does: what is deferred last runs first.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.recorder, err = startRecorder(ctx, r.cluster.etcdURL()); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if r.replicas, err = startReplicas(ctx, r.cluster, o.Program, o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		r.replicas.stopped()
	}()
	leader, err := r.replicas.leader(ctx)
	if err != nil {
		return nil, err
	}
	if r.record.Goroutines[0], err = goroutines(ctx, leader); err != nil {
		return nil, err
	}
	if err := r.disturb(ctx); err != nil {
		return nil, err
	}
	r.record.Faults = r.faults.all()
	r.Logf("no faults any more")
	if err := r.settle(ctx, staysFor); err != nil {
		return nil, err
	}
	if err := r.forget(ctx); err != nil {
		return nil, err
	}
	return r.record, r.finish(ctx)
}

// surroundings are what pods need to be created.
func surroundings() []client.Object {
	return []client.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fillerClass}, Value: fillerPriority},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentClass}, Value: urgentPriority},
	}
}

// prepare makes the nodes and what else is there before the schedulers.
func (r *run) prepare(ctx context.Context) error {
	objects := surroundings()
	for _, z := range zones {
		for n := range nodesPerZone {
			objects = append(objects, newNode(z, n+1))
		}
	}
	d := newDemand()
	return createAll(ctx, r.cluster.client, append(append(objects, asObjects(d.policies)...), asObjects(d.reservations)...)...)
}

// disturb plays the plan, from the first step to the end of the last fault.
func (r *run) disturb(ctx context.Context) error {
	p := newPlan(r.Seed, r.Duration, r.Only)
	r.controllers = &controllers{client: r.cluster.client, demand: newDemand()}
	r.faults = &faults{cluster: r.cluster, replicas: r.replicas, controllers: r.controllers, logf: r.Logf}
	go r.controllers.run(ctx)
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for _, s := range p.steps {
			if err := pause(ctx, time.Until(start.Add(s.at))); err != nil {
				return err
			}
			r.controllers.apply(s)
		}
		return nil
	})
	for _, lane := range p.lanes {
		group.Go(func() error {
			behind := time.Duration(0) // a lane falls behind on a slow machine
			for _, f := range lane {
				if err := pause(ctx, time.Until(start.Add(f.at+behind))); err != nil {
					return err
				}
				// What would begin after the end is left out.
				if time.Since(start) > r.Duration {
					return nil
				}
				if err := r.faults.cause(ctx, f); err != nil {
					return err
				}
				behind = max(behind, time.Since(start.Add(f.at+f.lasts)))
			}
			return nil
		})
	}
	return group.Wait()
}

// settle waits until all that fits is bound, and stays for a while.
func (r *run) settle(ctx context.Context, stays time.Duration) error {
	if err := persist(ctx, func() error {
		if !r.controllers.isSteady() {
			return errors.New("the cluster does not become what is asked for")
		}
		return nil
	}); err != nil {
		return err
	}
	r.record.Quiet = time.Now()
	var since time.Time // nothing that fits has waited since
	waiting := ""
	for time.Since(r.record.Quiet) < settleTimeout {
		now := time.Now()
		x, last, err := r.now(ctx)
		if err != nil {
			return err
		}
		switch fits := judge.Waiting(x, last); {
		case len(fits) > 0:
			since, waiting = time.Time{}, fits[0]
		case since.IsZero():
			since = now
		}
		if !since.IsZero() && time.Since(since) > stays {
			r.record.Settled = since
			break
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
	if r.record.Settled.IsZero() {
		r.Logf("not settled: %s", waiting)
	} else {
		r.Logf("all that fits is bound")
	}
	if err := r.recorder.catchUp(ctx); err != nil {
		return err
	}
	r.record.Judged = time.Now()
	return nil
}

// now is what the storage shows since the run began, and the last revision.
func (r *run) now(ctx context.Context) (*history.Index, int64, error) {
	if err := r.recorder.catchUp(ctx); err != nil {
		return nil, 0, err
	}
	changes, err := r.recorder.record(r.before)
	if err != nil {
		return nil, 0, err
	}
	return history.NewIndex(&history.Record{Changes: changes}), changes[len(changes)-1].Revision, nil
}

// forget deletes everything but the nodes, and asks the leader what it still has.
func (r *run) forget(ctx context.Context) error {
	r.controllers.stop()
	if err := r.controllers.deleteAll(ctx); err != nil {
		return err
	}
	for deadline := time.Now().Add(forgetTimeout); ; {
		leader, err := r.replicas.leader(ctx)
		if err != nil {
			return err
		}
		metrics, err := leader.metrics(ctx)
		if err == nil {
			r.record.Remains, r.record.Goroutines[1] = judge.OfNothing(metrics), metrics["go_goroutines"]
		}
		if err == nil && !judge.Remains(r.record) || time.Now().After(deadline) {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// finish completes the record and saves it.
func (r *run) finish(ctx context.Context) (err error) {
	if err := r.recorder.catchUp(ctx); err != nil {
		return err
	}
	if r.record.Changes, err = r.recorder.record(r.before); err != nil {
		return err
	}
	if r.record.Requests, err = requests(r.cluster.audit, r.began); err != nil {
		return err
	}
	r.record.Started = r.replicas.started()
	r.record.Attribute()
	return r.record.Save(filepath.Join(r.Dir, "record.json.gz"))
}

// goroutines are those of a replica when it has come to rest after its start: as many for a while.
func goroutines(ctx context.Context, leader *replica) (most float64, err error) {
	var since time.Time
	err = persist(ctx, func() error {
		metrics, err := leader.metrics(ctx)
		if err != nil {
			return err
		}
		if now := metrics["go_goroutines"]; now > most {
			most, since = now, time.Now()
		}
		if time.Since(since) < restsFor {
			return fmt.Errorf("%v goroutines", most)
		}
		return nil
	})
	return most, err
}
