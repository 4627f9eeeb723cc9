package sim

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
)

// GCPercent is what a command that is soon over gives to debug.SetGCPercent: the heap grows to three times what is in
// use, and more. While the garbage collector runs, a copy cannot tell that its goroutines rest and waits before each
// pod.
const GCPercent = 200

// UseOneProcessor has the process use one processor at a time, unless the environment sets GOMAXPROCS. It is for a
// process that does little besides copies: in a copy one goroutine works at a time, and on a second processor others
// only look whether it is done, for twice the CPU and more.
func UseOneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// LongestGrace is the longest grace period of a ZoneSpreadPolicy that a run waits for. To a run, a longer one never
// ends.
const LongestGrace = 30 * 24 * time.Hour

const (
	// cycleTime is how long a scheduling cycle takes in the copy: about what it takes a scheduler.
	cycleTime = time.Millisecond
	// changeTime passes after the caller has changed something, before anything else is done: workers of plugins rest
	// for up to 21 ms after a pass that takes none of the copy's time, and only their next pass sees the change.
	changeTime = 25 * time.Millisecond
	// flushInterval is upstream's: pods that were refused so long ago are tried again without a reason.
	flushInterval = 5 * time.Minute
	// reportInterval is for how long a copy goes on when no pod waits, so that statuses are written, which plugins do
	// every 10 s.
	reportInterval = 15 * time.Second
	// gangPatience covers the longest backoff of a gang and what follows, beyond flushInterval.
	gangPatience = 5 * time.Minute
	// progressInterval is how often Progress is called, in the machine's time.
	progressInterval = 200 * time.Millisecond
	// pollInterval is how often workers look at most that wait for something by looking, stuckLimit after which time of
	// the machine they are thought to wait for that: when the whole process is at rest, or after ten times as long.
	pollInterval = 100 * time.Millisecond
	stuckLimit   = 300 * time.Millisecond
	// spinTime is for how long await yields before it sleeps. What it waits for mostly takes less than a bind in the
	// copy, and the shortest sleep is a millisecond, which for each pod is as long as its cycle.
	spinTime = 2 * time.Millisecond
	// restLimit bounds for how long the machine may take until every goroutine of the process waits, before a cycle
	// and, longer, before the time moves on. Goroutines that are not the copy's may never, so this is no error.
	restLimit, advanceRestLimit, startRestLimit = 20 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond
)

// Run schedules what waits, until nothing more happens however long one waits: no pod is in the active queue or backs
// off, none is being bound, the plugins' workers have nothing to do, and the copy's time has moved on past every grace
// period that could change something. An error is that of ctx, or says that the scheduler does not come to an end.
func (s *Sim) Run(ctx context.Context) error {
	s.progressed = s.clock.Now()
	limit := s.cycles + 200*(len(s.waitingPods())+len(s.toCreate)+100)
	var reported time.Time
	for {
		if err := s.settle(ctx); err != nil {
			return err
		}
		if s.options.Progress != nil && time.Since(reported) > progressInterval {
			reported = time.Now()
			s.reportProgress()
		}
		if s.scheduleNext() {
			if s.cycles > limit {
				return fmt.Errorf("the scheduler has made %d attempts and does not come to an end", s.cycles)
			}
			continue
		}
		if s.createNext() {
			continue
		}
		if retried, err := s.retryErrors(ctx); err != nil {
			return err
		} else if retried {
			continue
		}
		if waitUntilIdle(advanceRestLimit); s.atWork() || !s.store.allDelivered() {
			continue
		}
		if !s.advanceTime() {
			s.reportProgress()
			return nil
		}
	}
}

func (s *Sim) reportProgress() {
	if s.options.Progress != nil {
		s.options.Progress(Progress{
			Cycles: s.cycles, Bound: int(s.bound.Load()), Waiting: len(s.waitingPods()), Now: s.clock.Now(),
		})
	}
}

// scheduleNext schedules the next pod. It returns false when there is none.
func (s *Sim) scheduleNext() bool {
	s.popped = false
	s.scheduler.ScheduleOne(s.ctx)
	if s.popped {
		s.cycles++
		s.clock.deferAdvance(cycleTime)
	}
	return s.popped
}

// retryErrors ends the backoff of pods whose attempt ended in an error and of groups, which the queue itself does not
// cut short.
func (s *Sim) retryErrors(ctx context.Context) (retried bool, err error) {
	var pods, members []*v1.Pod
	for _, pod := range s.scheduler.SchedulingQueue.PodsInBackoffQ() {
		if nativeGangOf(pod) != "" {
			members = append(members, pod)
		} else {
			pods = append(pods, pod)
		}
	}
	if s.retryGroups(members) {
		return true, nil
	}
	if len(pods) == 0 || len(kindFor[*v1.Node](s.store).indexer.ListKeys()) == 0 { // that there is no node is an error, which repeats itself
		return false, nil
	}
	s.clock.deferAdvance(time.Second)
	if err := s.settle(ctx); err != nil {
		return false, err
	}
	s.scheduler.SchedulingQueue.Activate(klog.Logger{}, podsByKey(pods))
	return true, nil
}

// settle delivers what has happened, and waits until nothing more comes of it without a cycle or the clock. Then it
// passes the time that is deferred, from one deadline to the next.
func (s *Sim) settle(ctx context.Context) error {
	for {
		s.store.deliverEvents()
		if err := s.await(ctx, func() bool { return !s.store.allDelivered() || !s.atWork() }); err != nil {
			return err
		}
		if s.store.allDelivered() {
			if s.waitBeforeCycle(); s.store.allDelivered() && !s.atWork() && !s.clock.advanceDeferred() {
				return nil
			}
		}
	}
}

// atWork reports whether a goroutine of the scheduler or of a plugin has something to do.
func (s *Sim) atWork() bool {
	return s.requests.Load() > 0 || s.clock.running.Load() > 0 || s.inFlight.hasWork() || !s.pack.Idle()
}

// await waits in the machine's time until a condition is met. A worker that looks again and again, by the clock, sees
// time pass when nothing else moves.
func (s *Sim) await(ctx context.Context, met func() bool) error {
	began := time.Now()
	last, pause := began, time.Duration(0)
	for !met() {
		if time.Since(began) < spinTime {
			runtime.Gosched()
			continue
		}
		if since := time.Since(last); since > stuckLimit && waitUntilIdle(restLimit) || since > 10*stuckLimit {
			last = time.Now()
			if at, ok := s.clock.nextDeadline(); ok && s.clock.durationUntil(at) <= pollInterval {
				s.clock.advanceTo(at)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-time.After(pause):
			pause = min(pause+10*time.Microsecond, 5*time.Millisecond)
		}
	}
	return ctx.Err()
}

// waitBeforeCycle waits until the process is idle, for half as long each time in a row that it was not: while the
// garbage collector runs, it never is.
func (s *Sim) waitBeforeCycle() {
	if waitUntilIdle(restLimit >> min(s.failedWaits, 4)) {
		s.failedWaits = 0
	} else {
		s.failedWaits++
	}
}

// waitUntilIdle waits until every other goroutine of the process waits for something, but no longer than limit. It
// reports whether they do. Those that a channel or a timer has just woken are not yet at work by any other sign. It
// yields to goroutines only if some can run: the runtime answers a yield by waking a thread that looks for work, and
// counts this thread as running.
func waitUntilIdle(limit time.Duration) bool {
	quiet := 0
	samples := idleSamples()
	for began := time.Now(); quiet < 2 && time.Since(began) < limit; {
		metrics.Read(samples)
		runnable, running := samples[0].Value.Uint64(), max(samples[1].Value.Uint64(), 1)-1
		if runnable > 0 {
			runtime.Gosched()
		}
		if runnable == 0 && running == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
	return quiet == 2
}

func idleSamples() []metrics.Sample {
	return []metrics.Sample{
		{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"},
	}
}

// advanceTime moves the time on to the next deadline. It returns false when nothing has happened for long enough.
func (s *Sim) advanceTime() bool {
	now := s.clock.Now()
	s.mu.Lock()
	if s.moved {
		s.moved, s.progressed = false, now
	}
	stopping := s.stopping
	s.mu.Unlock()
	patience := reportInterval
	waiting := s.waitingPods()
	if len(waiting) > 0 {
		patience = s.patience(waiting)
	}
	end := s.progressed.Add(patience)
	if end.Before(stopping) {
		end = stopping.Add(time.Millisecond)
	}
	next := end
	if at, ok := s.clock.nextDeadline(); ok && at.Before(next) {
		next = at
	}
	overdue, at := s.inFlight.overduePods(now)
	for _, pod := range overdue {
		for _, plugin := range pod.GetPendingPlugins()[:1] {
			pod.Reject(plugin, "rejected due to timeout at plugin "+plugin)
		}
	}
	if len(overdue) > 0 {
		return true
	}
	if !at.IsZero() && at.Before(next) {
		next = at
	}
	if flush := s.flushed.Add(flushInterval); len(waiting) > 0 && flush.Before(next) {
		s.clock.advanceTo(flush)
		s.flushed = s.clock.Now()
		s.groupsTried = -1
		s.scheduler.SchedulingQueue.MoveAllToActiveOrBackoffQueue(
			klog.Logger{}, framework.EventUnschedulableTimeout, nil, nil, nil,
		)
		return true
	}
	if !next.Before(end) {
		return false
	}
	s.clock.advanceTo(next)
	return true
}

// patience is how long nothing has to happen while pods wait.
func (s *Sim) patience(waiting []*v1.Pod) time.Duration {
	if s.options.Patience > 0 {
		return s.options.Patience
	}
	var down, full time.Duration
	raise := func(longest *time.Duration, grace *metav1.Duration) {
		if grace != nil && grace.Duration <= LongestGrace {
			*longest = max(*longest, grace.Duration)
		}
	}
	for _, p := range list[*v1alpha1.ZoneSpreadPolicy](s.store) {
		raise(&down, p.Spec.UnavailableZones.DownAfter)
		raise(&full, p.Spec.UnavailableZones.FullAfter)
	}
	patience := down + full + flushInterval + time.Second
	for _, pod := range waiting {
		if gangOf(pod) != "" {
			return patience + gangPatience
		}
	}
	return patience
}

// waitingPods returns the pods that wait for a node and are this scheduler's.
func (s *Sim) waitingPods() []*v1.Pod {
	unbound, _ := kindFor[*v1.Pod](s.store).indexer.ByIndex(nodeIndex, "") // the index is there
	var out []*v1.Pod
	for _, obj := range unbound {
		pod := obj.(*v1.Pod) //nolint:forcetypeassert // nothing else is put in
		if pod.DeletionTimestamp == nil && s.scheduler.Profiles[pod.Spec.SchedulerName] != nil {
			out = append(out, pod)
		}
	}
	return out
}

func podsByKey(pods []*v1.Pod) map[string]*v1.Pod {
	out := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		out[keyOf(pod)] = pod
	}
	return out
}
