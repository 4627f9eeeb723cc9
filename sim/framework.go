package sim

import (
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/upstream"
)

// profile wraps the framework of one profile for the scheduler. It reports to the Sim what runs outside of the
// scheduling cycle, and leaves everything else to the framework, which also stays the handle of the plugins.
type profile struct {
	framework.Framework
	sim *Sim
}

// wrapFramework wraps a framework in a profile, and stops two plugins from polling and from making random choices.
func (s *Sim) wrapFramework(f framework.Framework) *profile {
	for _, plugin := range f.EnqueueExtensions() { // all plugins that can refuse a pod
		switch p := plugin.(type) {
		case *defaultpreemption.DefaultPreemption:
			p.Evaluator.Interface = &seededPreemption{Interface: p.Evaluator.Interface, options: &s.options}
			s.inFlight.preemption = append(s.inFlight.preemption, p.Executor)
		case *volumebinding.VolumeBinding:
			p.Binder = volumeBinder{p.Binder}
		}
	}
	return &profile{Framework: f, sim: s}
}

// inFlightWork counts what a scheduler has under way outside of its scheduling cycle: binding cycles, which end with a
// binding or in the failure handler, and preemptions.
type inFlightWork struct {
	preemption []interface{ IsPodRunningPreemption(uid types.UID) bool }

	mu         sync.Mutex // guards everything below
	binding    map[types.UID]bool
	deadlines  map[types.UID]time.Time  // of pods that have to wait in Permit
	waiting    map[types.UID]permitWait // those that do by now
	preempting map[types.UID]bool       // pods and groups
}

// permitWait is a pod that waits in Permit.
type permitWait struct {
	fwk.WaitingPod
	until time.Time
}

// isDecided reports whether the pod has been allowed or rejected, and so is about to continue. The framework does not
// export that: its fields are read under its lock.
func (w permitWait) isDecided() bool {
	pod := reflect.ValueOf(w.WaitingPod).Elem()
	mu := (*sync.RWMutex)(pod.FieldByName("mu").Addr().UnsafePointer())
	mu.Lock() // a rejection writes under a read lock
	defer mu.Unlock()
	return pod.FieldByName("done").Bool()
}

func newInFlightWork() *inFlightWork {
	return &inFlightWork{
		binding: map[types.UID]bool{}, deadlines: map[types.UID]time.Time{}, waiting: map[types.UID]permitWait{},
		preempting: map[types.UID]bool{},
	}
}

// hasWork reports whether anything is under way that does not wait for other pods.
func (f *inFlightWork) hasWork() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.preempting {
		running := false
		for _, executor := range f.preemption {
			running = running || executor.IsPodRunningPreemption(uid)
		}
		if running {
			return true
		}
		delete(f.preempting, uid)
	}
	undecided := 0
	for _, pod := range f.waiting {
		if !pod.isDecided() {
			undecided++
		}
	}
	return len(f.binding) > undecided
}

// overduePods returns the pods whose time in Permit is over, and when that of the next one is.
func (f *inFlightWork) overduePods(now time.Time) (pods []fwk.WaitingPod, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(f.waiting)) {
		pod := f.waiting[uid]
		switch {
		case !pod.until.After(now):
			pods = append(pods, pod.WaitingPod)
		case next.IsZero() || pod.until.Before(next):
			next = pod.until
		}
	}
	return pods, next
}

// RunReservePluginsReserve implements framework.Framework. After Reserve a binding cycle or a failure follows.
func (p *profile) RunReservePluginsReserve(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string,
) *fwk.Status {
	if !state.IsPodGroupSchedulingCycle() {
		p.sim.inFlight.mu.Lock()
		p.sim.inFlight.binding[pod.UID] = true
		p.sim.inFlight.mu.Unlock()
	}
	return p.Framework.RunReservePluginsReserve(ctx, state, pod, nodeName)
}

// AddWaitingPod implements framework.Framework. The framework's timers run on the machine's clock, but a pod waits in
// the copy's time. So the timers are set never to fire, and the Sim keeps the time.
func (p *profile) AddWaitingPod(pod *v1.Pod, waits map[string]time.Duration) {
	const never = 24 * time.Hour
	shortest := never
	endless := make(map[string]time.Duration, len(waits))
	for plugin, wait := range waits {
		shortest = min(shortest, wait)
		endless[plugin] = never
	}
	p.sim.inFlight.mu.Lock()
	p.sim.inFlight.deadlines[pod.UID] = p.sim.clock.Now().Add(shortest)
	p.sim.inFlight.mu.Unlock()
	p.Framework.AddWaitingPod(pod, endless)
}

// WaitOnPermit implements framework.Framework.
func (p *profile) WaitOnPermit(ctx context.Context, pod *v1.Pod) *fwk.Status {
	f := p.sim.inFlight
	f.mu.Lock()
	if until, ok := f.deadlines[pod.UID]; ok {
		f.waiting[pod.UID] = permitWait{p.GetWaitingPod(pod.UID), until}
	}
	f.mu.Unlock()
	status := p.Framework.WaitOnPermit(ctx, pod)
	f.mu.Lock()
	delete(f.waiting, pod.UID)
	delete(f.deadlines, pod.UID)
	f.mu.Unlock()
	return status
}

// RunPostFilterPlugins implements framework.Framework. Preemption continues after it has returned.
func (p *profile) RunPostFilterPlugins(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := p.Framework.RunPostFilterPlugins(ctx, state, pod, statuses)
	if status.IsSuccess() {
		p.sim.inFlight.preempts(pod.UID)
	}
	return result, status
}

// preempts notes that a pod or a group preempts.
func (f *inFlightWork) preempts(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.preempting[uid] = true
}

// RunPostBindPlugins implements framework.Framework. The binding cycle's context ends with it.
func (p *profile) RunPostBindPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	p.Framework.RunPostBindPlugins(ctx, state, pod, nodeName)
	context.AfterFunc(ctx, func() { p.sim.inFlight.endBinding(pod.UID) })
}

func (f *inFlightWork) endBinding(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.binding, uid)
}

// onSchedulingFailure is the scheduler's failure handler. The context is that of the binding cycle, or of the
// scheduling cycle if there was no binding cycle. For a member of a group whose cycle ends before its binding cycle
// begins it is the scheduler's own, which does not end.
func (s *Sim) onSchedulingFailure(
	ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
	nominating *fwk.NominatingInfo, start time.Time,
) {
	uid := pod.Pod.UID
	s.handleFailure(ctx, f, pod, status, nominating, start)
	s.noteFailure(uid, status)
	if ctx.Done() == s.ctx.Done() {
		s.inFlight.endBinding(uid)
	} else {
		context.AfterFunc(ctx, func() { s.inFlight.endBinding(uid) })
	}
}

// GetNodeHint implements framework.Framework. It gives the hint of the options and none of the framework's, so that
// pods are not batched.
func (p *profile) GetNodeHint(_ context.Context, pod *v1.Pod, _ fwk.PodSignature, _ fwk.CycleState, _ int64) string {
	return p.sim.hintFor(pod)
}

func (s *Sim) hintFor(pod *v1.Pod) string {
	if s.options.Hint == nil || gangOf(pod) != "" {
		return ""
	}
	s.mu.Lock()
	replaced := s.replaced[pod.UID]
	s.mu.Unlock()
	if replaced == nil {
		return ""
	}
	hint := s.options.Hint(replaced)
	if _, exists := get[*v1.Node](s.store, hint); !exists {
		return "" // to the scheduler it would be an error
	}
	return hint
}

// StoreScheduleResults implements framework.Framework: as GetNodeHint.
func (p *profile) StoreScheduleResults(
	context.Context, fwk.PodSignature, string, string, framework.SortedScoredNodes, int64,
) {
}

// RunPreFilterPlugins implements framework.Framework. Of one cycle in ten the scheduler measures how long each call of a
// plugin takes, for metrics that a copy does not export.
func (p *profile) RunPreFilterPlugins(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	if s, ok := state.(*framework.CycleState); ok {
		s.SetRecordPluginMetrics(false)
	}
	return p.Framework.RunPreFilterPlugins(ctx, state, pod)
}

// RunFilterPluginsWithNominatedPods implements framework.Framework. For a node without nominated pods the framework
// runs the filters in a context that names them in logs, which a copy does not write.
func (p *profile) RunFilterPluginsWithNominatedPods(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	if len(upstream.NominatedTo(p, node.Node().Name)) == 0 {
		return p.RunFilterPlugins(ctx, state, pod, node)
	}
	return p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
}

// RunScorePlugins implements framework.Framework. The seed decides between nodes with equal scores; with seed 0
// the scheduler takes the first one.
func (p *profile) RunScorePlugins(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := p.Framework.RunScorePlugins(ctx, state, pod, nodes)
	options := &p.sim.options
	preferred := options.preferred(pod, false)
	ofPod := seededNumber(options.Seed, string(pod.UID))
	for i := range scores {
		switch {
		case scores[i].Name == preferred:
			scores[i].Randomizer = math.MaxInt
		case options.Seed != 0:
			scores[i].Randomizer = int(numberWith(ofPod, scores[i].Name) >> 2) //nolint:gosec // fits
		case gangOf(pod) != "":
			// PreFilter names nodes for members, which the framework then looks at in random order.
			scores[i].Randomizer = int(seededNumber(0, scores[i].Name) >> 2) //nolint:gosec // fits
		}
	}
	return scores, status
}

// seededNumber returns a number that depends only on the seed and on names: the hash FNV-1a of them.
func seededNumber(seed int64, names ...string) uint64 {
	number := uint64(14695981039346656037)
	var digits [16]byte
	for _, digit := range strconv.AppendInt(digits[:0], seed, 36) {
		number = (number ^ uint64(digit)) * fnvPrime
	}
	for _, name := range names {
		number = numberWith(number, name)
	}
	return number
}

const fnvPrime = 1099511628211

// numberWith is the seeded number of the names that a number is of and another name.
func numberWith(number uint64, name string) uint64 {
	number *= fnvPrime // of a byte 0 between names
	for i := range len(name) {
		number = (number ^ uint64(name[i])) * fnvPrime
	}
	return number
}

// seededPreemption is upstream's preemption without its random choices: where it begins to look, and which of equal
// nodes it takes.
type seededPreemption struct {
	preemption.Interface
	options *Options
	// preferred is the node that the pod of this cycle prefers. A cycle evaluates its nodes one after the other.
	preferred string
}

// GetOffsetAndNumCandidates implements preemption.Interface.
func (p *seededPreemption) GetOffsetAndNumCandidates(nodes int32) (offset, candidates int32) {
	_, candidates = p.Interface.GetOffsetAndNumCandidates(nodes)
	return int32(seededNumber(p.options.Seed) % uint64(max(1, nodes))), candidates //nolint:gosec // less than nodes
}

// PodEligibleToPreemptOthers implements preemption.Interface. Preemption begins with it.
func (p *seededPreemption) PodEligibleToPreemptOthers(
	ctx context.Context, pod *v1.Pod, status *fwk.Status,
) (bool, string) {
	p.preferred = p.options.preferred(pod, true)
	return p.Interface.PodEligibleToPreemptOthers(ctx, pod, status)
}

// CandidatesToVictimsMap implements preemption.Interface. For candidates that are otherwise equal, the last criterion
// is the victims' start time, in whole seconds as in the API server; this adds a fraction of a second.
func (p *seededPreemption) CandidatesToVictimsMap(candidates []preemptionCandidate) map[string]*extenderv1.Victims {
	const fractions = uint64(time.Second) - 1
	out := p.Interface.CandidatesToVictimsMap(candidates)
	for node, victims := range out {
		fraction := seededNumber(p.options.Seed, node) % fractions
		if node == p.preferred {
			fraction = fractions
		}
		distinct := *victims
		distinct.Pods = make([]*v1.Pod, len(victims.Pods))
		for i, pod := range victims.Pods {
			c := *pod
			start := ptr.Deref(c.Status.StartTime, metav1.Time{})
			c.Status.StartTime = &metav1.Time{Time: start.Truncate(time.Second).Add(time.Duration(fraction))} //nolint:gosec // below a second
			distinct.Pods[i] = &c
		}
		out[node] = &distinct
	}
	return out
}

// preferred returns the node that a pod takes if no other is better, empty if it does not matter.
func (o *Options) preferred(pod *v1.Pod, evicts bool) string {
	if o.Prefer == nil {
		return ""
	}
	return o.Prefer(pod, evicts)
}

// volumeWrites counts the requests for one pod's volumes, and ends its waiting after the last answer.
type volumeWrites struct {
	done   context.CancelFunc
	wanted int
	made   atomic.Int32
	// failed is set when a provisioner cannot make a volume.
	failed atomic.Bool
}

type volumeWritesKey struct{}

func (w *volumeWrites) allMade() bool { return int(w.made.Load()) >= w.wanted }

// noteVolumeWrite is called for each write that a request with this context makes, with whether the volume controllers
// did their part.
func noteVolumeWrite(ctx context.Context, done bool) {
	w, ok := ctx.Value(volumeWritesKey{}).(*volumeWrites)
	if !ok {
		return
	}
	if !done {
		w.failed.Store(true)
	}
	if int(w.made.Add(1)) == w.wanted {
		time.AfterFunc(time.Millisecond, w.done) // when the client has the answer
	}
}

// volumeBinder is upstream's binder without its polling: here the volume controllers are done when its requests return.
type volumeBinder struct {
	volumebinding.SchedulerVolumeBinder
}

// BindPodVolumes implements volumebinding.SchedulerVolumeBinder.
func (b volumeBinder) BindPodVolumes(ctx context.Context, pod *v1.Pod, volumes *volumebinding.PodVolumes) error {
	asked := &volumeWrites{wanted: len(volumes.StaticBindings) + len(volumes.DynamicProvisions)}
	ctx, asked.done = context.WithCancel(context.WithValue(ctx, volumeWritesKey{}, asked))
	defer asked.done()
	err := b.SchedulerVolumeBinder.BindPodVolumes(ctx, pod, volumes)
	switch {
	case asked.failed.Load():
		return fmt.Errorf("provisioning failed for a PVC of pod %q: its driver has not enough capacity there", pod.Name)
	case asked.allMade():
		return nil
	}
	return err
}
