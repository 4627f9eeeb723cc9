package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// batchLabel tells which pods of no gang are taken together when they are compared with gangs.
const batchLabel = "batch"

// turnTimeout is how long pods are waited for.
const turnTimeout = 10 * time.Minute

// turnTaker is the measured process's side of turns: see goOn.
type turnTaker struct {
	turns, left int
	in          *bufio.Reader
	running     *turnMeter // the turn whose pods are being bound; nil before the first one
}

// takerFromEnv returns what the driver asked for.
func takerFromEnv() (*turnTaker, error) {
	turns, err := strconv.Atoi(os.Getenv(turnsEnv))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: the benchmark is run by the driver", turnsEnv, err)
	}
	return &turnTaker{turns: turns, left: turns, in: bufio.NewReader(os.Stdin)}, nil
}

// afterNodes is called by scheduler_perf after each step that creates nodes. One that parts two turns ends the one, if
// it is not the first, and begins the other when the driver says so.
func (t *turnTaker) afterNodes(tCtx ktesting.TContext, s *scheduler.Scheduler, _ *perf.Workload, nodes *v1.NodeList) error {
	partsTurns := slices.ContainsFunc(nodes.Items, func(n v1.Node) bool { return strings.HasPrefix(n.Name, turnNodePrefix) })
	if !partsTurns {
		return waitForHolds(tCtx, s)
	}
	pods := s.Profiles[v1.DefaultSchedulerName].SharedInformerFactory().Core().V1().Pods().Informer()
	var figures string
	var err error
	if t.running != nil {
		if figures, err = t.running.finish(tCtx); err != nil {
			return err
		}
		t.running = nil
	}
	if err := errors.Join(waitForPods(tCtx, pods), waitForHolds(tCtx, s)); err != nil {
		return err
	}
	runtime.GC() // every turn begins alike
	if _, err := fmt.Printf("\n%s %s\n", readyPrefix, figures); err != nil || t.left == 0 {
		return err
	}
	t.left--
	if answer, err := t.in.ReadString('\n'); err != nil || answer != goOn {
		return fmt.Errorf("waiting for the next turn: the driver says %q: %w", answer, err)
	}
	if t.running, err = startTurn(pods); err == nil {
		// scheduler_perf looks for goroutines that a failed workload left behind, for minutes.
		m := t.running
		tCtx.TB().Cleanup(func() { _ = m.stop() })
	}
	return err
}

// waitForPods waits until the pods of the warm-up are bound: scheduler_perf does not where there are others in their
// namespace.
func waitForPods(ctx context.Context, pods cache.SharedIndexInformer) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, turnTimeout, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(pods.GetStore().List(), func(obj any) bool { return obj.(*v1.Pod).Spec.NodeName == "" }), nil
	})
}

// gang is what was seen of one, or of pods of no gang with the same batchLabel.
type gang struct {
	created, bound time.Time // of the last member
}

// turnMeter sees, through the scheduler's own informer, when the pods of a turn are created and bound.
type turnMeter struct {
	informer cache.SharedIndexInformer
	before   int          // pods in the informer
	profile  bytes.Buffer // of the CPU
	writes   map[string]float64
	cpu      time.Duration // used before
	stop     func() error  // ends the profile and what the informer calls

	mu             sync.Mutex // guards everything below
	created, bound int
	first, last    time.Time
	cpuLast        time.Duration // used at the last binding
	gangs          map[string]*gang
}

// startTurn begins to measure. The pods are still to be created.
func startTurn(pods cache.SharedIndexInformer) (*turnMeter, error) {
	m := &turnMeter{informer: pods, before: len(pods.GetStore().ListKeys()), cpu: cpuUsed(), gangs: map[string]*gang{}}
	var err error
	if m.writes, err = apiWrites(); err != nil {
		return nil, err
	}
	handle, err := m.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				m.take(nil, obj)
			}
		},
		UpdateFunc: m.take,
	})
	if err != nil {
		return nil, err
	}
	m.stop = sync.OnceValue(func() error {
		pprof.StopCPUProfile()
		return m.informer.RemoveEventHandler(handle)
	})
	// A profile of 100 samples a second costs about a percent, and all variants pay it.
	return m, pprof.StartCPUProfile(&m.profile)
}

func (m *turnMeter) take(before, obj any) {
	now := time.Now()
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.gangs[gangName(pod)]
	if g == nil {
		g = &gang{}
		m.gangs[gangName(pod)] = g
	}
	old, updated := before.(*v1.Pod)
	if !updated {
		if m.created == 0 {
			m.first = now
		}
		m.created++
		g.created = now
	}
	if pod.Spec.NodeName == "" || updated && old.Spec.NodeName != "" {
		return
	}
	m.bound++
	m.last, g.bound, m.cpuLast = now, now, cpuUsed()
}

// gangName returns which pods a pod belongs to, "" when it is of no gang.
func gangName(pod *v1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return *group.PodGroupName
	}
	if name := pod.Labels[podgroupv1alpha1.PodGroupLabel]; name != "" {
		return name
	}
	return pod.Labels[batchLabel]
}

// finish waits until all pods are bound, and returns what was measured.
func (m *turnMeter) finish(tCtx ktesting.TContext) (string, error) {
	err := wait.PollUntilContextTimeout(tCtx, 10*time.Millisecond, turnTimeout, true, func(context.Context) (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.bound > 0 && m.bound == len(m.informer.GetStore().ListKeys())-m.before, nil
	})
	if err = errors.Join(err, m.stop()); err != nil {
		return "", fmt.Errorf("waiting for the last bind: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	perPod := 1000 * (m.cpuLast - m.cpu).Seconds() / float64(m.bound)
	figures := fmt.Sprintf("%.5g pods/s %.5g cpu-ms/pod", float64(m.bound)/m.last.Sub(m.first).Seconds(), perPod)
	all, schedulers, pack, err := cpuTimes(m.profile.Bytes())
	if err != nil {
		return "", err
	}
	if all > 0 { // a turn may be too short for a sample
		// The profile goes on until the last binding has been noticed: its shares count.
		figures += fmt.Sprintf(" %.5g scheduler-cpu-ms/pod %.5g ours-%%cpu", perPod*float64(schedulers)/float64(all), 100*float64(pack)/float64(all))
	}
	err = os.WriteFile(filepath.Join(flag.Lookup("data-items-dir").Value.String(), "turn-cpu.prof"), m.profile.Bytes(), 0o600)
	if delete(m.gangs, ""); len(m.gangs) == 0 || err != nil {
		return figures, err
	}
	ofGangs, err := m.gangFigures(tCtx)
	return figures + ofGangs, err
}

// gangFigures returns the figures about gangs, once events and statuses that follow the last bind are written, too.
func (m *turnMeter) gangFigures(ctx context.Context) (string, error) {
	const quiet = 2 * time.Second
	var writes map[string]float64
	var since time.Time
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		now, err := apiWrites()
		if !maps.Equal(now, writes) {
			writes, since = now, time.Now()
		}
		return time.Since(since) >= quiet, err
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the API server to have nothing more to write: %w", err)
	}
	var whole []float64
	for _, g := range m.gangs {
		whole = append(whole, g.bound.Sub(g.created).Seconds())
	}
	figures := fmt.Sprintf(" %.5g whole-p50-s %.5g whole-p99-s", percentile(whole, 50), percentile(whole, 99))
	for _, kind := range slices.Sorted(maps.Keys(writes)) {
		figures += fmt.Sprintf(" %.5g writes-%s/pod", (writes[kind]-m.writes[kind])/float64(m.bound), kind)
	}
	return figures, nil
}

// percentile returns the smallest of at least one value that p percent of them do not exceed.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// apiWrites returns how many writes the API server in this process has answered, by what they were about.
func apiWrites() (map[string]float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, err
	}
	writes := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_request_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if kind := writeKind(labels); kind != "" {
				writes[kind] += metric.GetCounter().GetValue()
			}
		}
	}
	return writes, nil
}

// writeKind names a request after the labels of apiserver_request_total; it is empty for one that only reads, and for
// those that have nothing to do with scheduling pods.
func writeKind(labels map[string]string) string {
	verb, resource, subresource := labels["verb"], labels["resource"], labels["subresource"]
	switch {
	case !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb),
		!slices.Contains([]string{"pods", "podgroups", "events"}, resource),
		resource != "events" && subresource == "" && verb == "POST":
		return ""
	case resource == "events":
		return "events"
	case labels["dry_run"] != "":
		subresource += "-dry-run"
	}
	return strings.TrimSuffix(resource+"/"+subresource, "/")
}

// cpuTimes returns the CPU time in a profile, and the part of it that has the scheduler or a plugin of ours on its
// stack, and of that what has a function of ours.
func cpuTimes(content []byte) (all, schedulers, pack time.Duration, err error) {
	p, err := profile.ParseData(content)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("CPU profile: %w", err)
	}
	for _, sample := range p.Sample {
		spent := time.Duration(sample.Value[len(sample.Value)-1])
		all += spent
		ours := onStack(sample, "zonewise.dev/plugins/", "zonewise.dev/internal/")
		if ours {
			pack += spent
		}
		if ours || onStack(sample, "k8s.io/kubernetes/pkg/scheduler") {
			schedulers += spent
		}
	}
	return all, schedulers, pack, nil
}

// onStack tells whether a function of one of the packages was running or waiting for one it had called.
func onStack(sample *profile.Sample, packages ...string) bool {
	for _, location := range sample.Location {
		for _, line := range location.Line {
			ofPackage := func(p string) bool { return line.Function != nil && strings.HasPrefix(line.Function.Name, p) }
			if slices.ContainsFunc(packages, ofPackage) {
				return true
			}
		}
	}
	return false
}

// cpuUsed returns the CPU time that this process has used.
func cpuUsed() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // only for a wrong argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
