package permitgate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate"
)

// groups stands for the API server's PodGroups and the watch of them.
type groups struct {
	mu        sync.Mutex // guards everything below
	installed bool
	objects   map[string]*v1alpha1.PodGroup
	handler   toolscache.ResourceEventHandler
	onChange  func(bool)
	uids      int
	deaf      bool // updates of the status are not delivered
	conflicts int
	muffled   *v1alpha1.PodGroup // what the watch does not show
}

func newGroups(installed bool) *groups {
	return &groups{installed: installed, objects: map[string]*v1alpha1.PodGroup{}}
}

// forget drops the watch of a scheduler that has stopped.
func (g *groups) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handler, g.onChange = nil, nil
}

// watch is a permitgate.PodGroupSource: it delivers what exists, from another goroutine.
func (g *groups) watch(_ context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (permitgate.PodGroupWatch, error) {
	g.mu.Lock()
	g.handler, g.onChange = handler, onChange
	g.mu.Unlock()
	go g.replay()
	return g, nil
}

func (g *groups) replay() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.installed {
		return
	}
	for _, o := range g.objects {
		g.handler.OnAdd(o, true)
	}
}

func (g *groups) Available() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.installed
}

func (g *groups) HasSynced() bool { return g.Available() }

// uninstall takes the CRD away, before a scheduler starts.
func (g *groups) uninstall() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.installed = false
}

// install brings the CRD.
func (g *groups) install() {
	g.mu.Lock()
	g.installed = true
	onChange := g.onChange
	g.mu.Unlock()
	onChange(true)
	g.replay()
}

// set creates or changes a PodGroup; a timeout is optional, in seconds.
func (g *groups) set(name string, minMember int32, timeout ...int32) {
	g.mu.Lock()
	old := g.objects[name]
	group := &v1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1alpha1.PodGroupSpec{MinMember: minMember},
	}
	if len(timeout) > 0 {
		group.Spec.ScheduleTimeoutSeconds = ptr.To(timeout[0])
	}
	g.uids++
	group.ResourceVersion = fmt.Sprint(g.uids)
	if old != nil {
		group.UID, group.Status = old.UID, old.Status
	} else {
		group.UID = types.UID(fmt.Sprintf("group-%d", g.uids))
	}
	g.objects[name] = group
	handler, installed := g.handler, g.installed
	g.mu.Unlock()
	switch {
	case !installed || handler == nil:
	case old == nil:
		handler.OnAdd(group, false)
	default:
		handler.OnUpdate(old, group)
	}
}

// annotate changes a PodGroup's annotations.
func (g *groups) annotate(name string, annotations map[string]string) {
	g.mu.Lock()
	old := g.objects[name]
	group := old.DeepCopy()
	group.Annotations = annotations
	g.uids++
	group.ResourceVersion = fmt.Sprint(g.uids)
	g.objects[name] = group
	handler := g.handler
	g.mu.Unlock()
	handler.OnUpdate(old, group)
}

// muffle changes a quorum without the watch's telling.
func (g *groups) muffle(name string, minMember int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.objects[name].DeepCopy()
	group.Spec.MinMember = minMember
	g.muffled = group
}

// ReadPodGroup is a permitgate.PodGroupReader.
func (g *groups) ReadPodGroup(_ context.Context, _, name string) (*v1alpha1.PodGroup, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.muffled != nil && g.muffled.Name == name {
		return g.muffled, nil
	}
	if group := g.objects[name]; group != nil {
		return group, nil
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource("podgroups"), name)
}

// PatchStatus is a permitgate.StatusPatcher: it refuses a patch for another version, as an API server.
func (g *groups) PatchStatus(_ context.Context, _, name string, patch []byte) error {
	g.mu.Lock()
	old := g.objects[name]
	var wanted v1alpha1.PodGroup
	if err := json.Unmarshal(patch, &wanted); err != nil || old == nil || wanted.ResourceVersion != old.ResourceVersion {
		g.conflicts++
		g.mu.Unlock()
		return fmt.Errorf("conflict: %w", err)
	}
	group := old.DeepCopy()
	group.Status = wanted.Status
	g.uids++
	group.ResourceVersion = fmt.Sprint(g.uids)
	g.objects[name] = group
	if g.deaf {
		g.mu.Unlock()
		return nil
	}
	handler := g.handler
	g.mu.Unlock()
	handler.OnUpdate(old, group)
	return nil
}

// status returns a PodGroup's status.
func (g *groups) status(name string) v1alpha1.PodGroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[name].Status
}

func (g *groups) delete(name string) {
	g.mu.Lock()
	old, handler := g.objects[name], g.handler
	delete(g.objects, name)
	g.mu.Unlock()
	handler.OnDelete(old)
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
	require.Never(t, func() bool { return r.count(prefix, words) > 1 }, aWhile, tick, "%s ... %s", prefix, words)
}

const mishapName = "Mishap"

// mishap is a plugin behind PermitGate that fails pods as a test wants. Its functions get a pod's name
// and are set before the pods are created.
type mishap struct {
	handle fwk.Handle

	mu        sync.Mutex // guards everything below
	preFilter func(pod string) *fwk.Status
	reserve   func(pod string) *fwk.Status
	permit    func(pod string) *fwk.Status
	preBind   func(ctx context.Context, pod string) *fwk.Status // called without the lock
	permitted []string                                          // pods that reached this plugin's Permit
}

var (
	_ fwk.PreFilterPlugin = &mishap{}
	_ fwk.ReservePlugin   = &mishap{}
	_ fwk.PermitPlugin    = &mishap{}
	_ fwk.PreBindPlugin   = &mishap{}
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

func (m *mishap) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, m.call(&m.preFilter, pod)
}

func (*mishap) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (m *mishap) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	return m.call(&m.reserve, pod)
}

func (*mishap) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

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
