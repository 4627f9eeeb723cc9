package permitgate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crd/crdtest"
)

// groups are the PodGroups.
type groups struct {
	*crdtest.Source

	mu      sync.Mutex // guards everything below
	created int
}

func newGroups() *groups { return &groups{Source: crdtest.New()} }

func (g *groups) get(name string) (*v1alpha1.PodGroup, bool) {
	return crdtest.Get(g.Source, &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}

// set creates or changes a PodGroup; a timeout is optional, in seconds.
func (g *groups) set(name string, minMember int32, timeout ...int32) {
	g.edit(name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = minMember
		if len(timeout) > 0 {
			group.Spec.ScheduleTimeoutSeconds = &timeout[0]
		}
	})
}

// edit creates or changes a PodGroup.
func (g *groups) edit(name string, f func(group *v1alpha1.PodGroup)) {
	group, exists := g.get(name)
	if !exists {
		g.mu.Lock()
		g.created++
		group.UID = types.UID(fmt.Sprintf("group-%d", g.created))
		group.CreationTimestamp = metav1.Time{Time: time.Unix(int64(g.created), 0)}
		g.mu.Unlock()
	}
	f(group)
	g.Put(group)
}

// annotate changes a PodGroup's annotations.
func (g *groups) annotate(name string, annotations map[string]string) {
	g.edit(name, func(group *v1alpha1.PodGroup) { group.Annotations = annotations })
}

func (g *groups) delete(name string) {
	group, _ := g.get(name)
	g.Delete(group)
}

// status returns a PodGroup's status.
func (g *groups) status(name string) v1alpha1.PodGroupStatus {
	group, _ := g.get(name)
	return group.Status
}

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
func (r *recorder) requireEvent(t *testing.T, prefix, words string) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return r.count(prefix, words) > 0 }, soon, tick) {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Fatalf("no event %q with %q among:\n%s", prefix, words, strings.Join(r.events, "\n"))
	}
	require.Equal(t, 1, r.count(prefix, words), "%s ... %s", prefix, words)
}

const mishapName = "Mishap"

// mishap is a plugin behind PermitGate that fails pods as a test wants. Its functions get a pod's name
// and are set before the pods are created.
type mishap struct {
	handle fwk.Handle
	cycles *atomic.Int64 // counts the cycles of all pods

	mu         sync.Mutex                   // guards everything below
	preEnqueue func(pod string) *fwk.Status // called under the scheduling queue's lock
	preFilter  func(pod string) *fwk.Status
	reserve    func(pod string) *fwk.Status
	permit     func(pod string) *fwk.Status
	preBind    func(ctx context.Context, pod string) *fwk.Status // called without the lock
	unreserve  func(pod string)                                  // called without the lock
	permitted  []string                                          // pods that reached this plugin's Permit
	attempts   map[string]int                                    // cycles, by pod
}

var (
	_ fwk.PreEnqueuePlugin = &mishap{}
	_ fwk.PreFilterPlugin  = &mishap{}
	_ fwk.ReservePlugin    = &mishap{}
	_ fwk.PermitPlugin     = &mishap{}
	_ fwk.PreBindPlugin    = &mishap{}
)

func (m *mishap) new(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	m.handle = h
	return m, nil
}

func (*mishap) Name() string { return mishapName }

func (m *mishap) set(f func(m *mishap)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *mishap) call(f *func(string) *fwk.Status, pod *v1.Pod) *fwk.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *f == nil {
		return nil
	}
	return (*f)(pod.Name)
}

// PreEnqueue comes after PermitGate's.
func (m *mishap) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	return m.call(&m.preEnqueue, pod)
}

func (m *mishap) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	m.cycles.Add(1)
	m.set(func(m *mishap) {
		if m.attempts == nil {
			m.attempts = map[string]int{}
		}
		m.attempts[pod.Name]++
	})
	return nil, m.call(&m.preFilter, pod)
}

func (*mishap) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (m *mishap) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	return m.call(&m.reserve, pod)
}

func (m *mishap) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	var f func(string)
	m.set(func(m *mishap) { f = m.unreserve })
	if f != nil {
		f(pod.Name)
	}
}

func (m *mishap) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	m.set(func(m *mishap) { m.permitted = append(m.permitted, pod.Name) })
	return m.call(&m.permit, pod), time.Minute
}

// PreBindPreFlight says that there is nothing to prepare as long as the test has no mishap for it.
func (m *mishap) PreBindPreFlight(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preBind == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind comes before PermitGate's.
func (m *mishap) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	m.mu.Lock()
	f := m.preBind
	m.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, pod.Name)
}

// tried returns how many cycles a pod has had.
func (m *mishap) tried(pod string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempts[pod]
}

func (m *mishap) forget(pod string) { m.set(func(m *mishap) { delete(m.attempts, pod) }) }

// times returns how often a pod has reached Permit.
func (m *mishap) times(pod string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.permitted {
		if name == pod {
			n++
		}
	}
	return n
}

// waiting lists the names of the pods that wait in Permit.
func (m *mishap) waiting() []string {
	var names []string
	m.handle.IterateOverWaitingPods(func(wp fwk.WaitingPod) { names = append(names, wp.GetPod().Name) })
	return names
}
