package framework

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
)

const mishapName = "Mishap"

// mishap is a plugin behind all others that counts cycles, and fails pods as a test wants. Its functions get a pod's
// name, and are called without its lock: who waits for a lock in a bubble has time stand still.
type mishap struct {
	handle fwk.Handle
	cycles *atomic.Int64 // counts the cycles of all pods

	mu         sync.Mutex                   // guards everything below
	preEnqueue func(pod string) *fwk.Status // called under the scheduling queue's lock
	preFilter  func(pod string) *fwk.Status
	reserve    func(pod string) *fwk.Status
	permit     func(pod string) *fwk.Status
	preBind    func(ctx context.Context, pod string) *fwk.Status
	unreserve  func(pod string)
	permitted  []string       // pods that reached this plugin's Permit
	attempts   map[string]int // cycles, by pod
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
	decide := *f
	m.mu.Unlock()
	if decide == nil {
		return nil
	}
	return decide(pod.Name)
}

// PreEnqueue comes after all others.
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

// SignPod implements fwk.SignPlugin: pods are batched as without this plugin.
func (*mishap) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

func (m *mishap) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if hypothetical.Marked(state) {
		return nil
	}
	return m.call(&m.reserve, pod)
}

func (m *mishap) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if hypothetical.Marked(state) {
		return
	}
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
