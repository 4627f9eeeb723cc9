package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

const (
	// gangsNamespace has the pods that are recorded; in turns, those of each turn are in a namespace whose name begins with it.
	// In a case that does not use it the recorder sees nothing.
	gangsNamespace = "gangs"
	// batchLabel tells which pods of no gang are taken together.
	batchLabel = "batch"
)

// recorder sees, by a watch of its own, when the members of gangs come to exist and are bound.
type recorder struct {
	mu    sync.Mutex // guards everything below
	gangs map[string]*gang
	bound map[types.UID]bool
	err   error // why the watch could not go on
}

// recordMembers starts a recorder, which at the end of the workload leaves its summary beside scheduler_perf's own
// measurements. The scheduler runs, and nothing has been created yet.
func recordMembers(tCtx ktesting.TContext) error {
	before, err := apiWrites()
	if err != nil {
		return err
	}
	pods := tCtx.Client().CoreV1().Pods(metav1.NamespaceAll)
	none, err := pods.List(tCtx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r := &recorder{gangs: map[string]*gang{}, bound: map[types.UID]bool{}}
	ctx, cancel := context.WithCancel(tCtx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx, pods, none.ResourceVersion)
	}()
	tCtx.TB().Cleanup(func() {
		defer func() {
			cancel()
			<-done
		}()
		if tCtx.TB().Failed() || !r.seen() {
			return
		}
		if err := r.finish(tCtx, before); err != nil {
			tCtx.Errorf("members of gangs: %v", err)
		}
	})
	return nil
}

// run watches the pods until ctx ends. The API server ends the watch of a client that does not keep up with it on a busy machine:
// it is taken up again where it ended, so that nothing is missed.
func (r *recorder) run(ctx context.Context, pods corev1.PodInterface, version string) {
	for ctx.Err() == nil {
		events, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err == nil {
			version, err = r.follow(events, version)
			events.Stop()
		}
		if err != nil && ctx.Err() == nil {
			r.mu.Lock()
			r.err = fmt.Errorf("watch of pods: %w", err)
			r.mu.Unlock()
			return
		}
	}
}

// follow takes the events of a watch until it ends, and returns the version of the last one.
func (r *recorder) follow(events watch.Interface, version string) (string, error) {
	for event := range events.ResultChan() {
		now := time.Now()
		pod, ok := event.Object.(*v1.Pod)
		if !ok {
			return version, apierrors.FromObject(event.Object)
		}
		version = pod.ResourceVersion
		r.mu.Lock()
		r.takeLocked(event.Type, pod, now)
		r.mu.Unlock()
	}
	return version, nil
}

func (r *recorder) takeLocked(kind watch.EventType, pod *v1.Pod, now time.Time) {
	if !namespaceIsOf(pod.Namespace, gangsNamespace) {
		return
	}
	name := pod.Namespace + "/" + gangName(pod)
	g := r.gangs[name]
	if g == nil {
		g = &gang{}
		r.gangs[name] = g
	}
	if kind == watch.Added {
		g.created++
		g.lastCreated = now
	}
	if pod.Spec.NodeName != "" && !r.bound[pod.UID] {
		r.bound[pod.UID] = true
		g.bound++
		g.lastBound = now
	}
}

// gangName returns which pods a pod belongs to.
func gangName(pod *v1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return *group.PodGroupName
	}
	if name := pod.Labels[podgroupv1alpha1.PodGroupLabel]; name != "" {
		return name
	}
	return pod.Labels[batchLabel]
}

func (r *recorder) seen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.gangs) > 0
}

// complete reports whether there is nothing more to be seen.
func (r *recorder) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gangs {
		if g.bound < g.created && r.err == nil {
			return false
		}
	}
	return true
}

// finish waits for what comes after the last bind, events and status for example, and writes the summary.
func (r *recorder) finish(ctx context.Context, before map[string]float64) error {
	const quiet = 2 * time.Second
	var (
		last  map[string]float64
		since time.Time
		m     members
	)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		writes, err := apiWrites()
		if err != nil {
			return false, err
		}
		if !maps.Equal(writes, last) {
			last, since = writes, time.Now()
		}
		return time.Since(since) >= quiet && r.complete(), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the last binds to be seen, and for the API server to have nothing more to write: %w", err)
	}
	for kind := range last {
		last[kind] -= before[kind]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if m, err = summary(r.gangs, last); err != nil {
		return err
	}
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	dir := flag.Lookup("data-items-dir").Value.String()
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, membersFile), content, 0o600)
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

// inTurn makes one hook of several.
func inTurn(hooks ...perf.HookFn) perf.HookFn {
	return func(tCtx ktesting.TContext) error {
		for _, hook := range hooks {
			if err := hook(tCtx); err != nil {
				return err
			}
		}
		return nil
	}
}
