package worlds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shipped "zonewise.dev/config"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins"
	"zonewise.dev/test/fakeapi"
	"zonewise.dev/test/informertest"
	"zonewise.dev/test/schedulertest"
)

// profile is the file of config that the scheduler runs with.
const profile = "zonewise.yaml"

// scheduling is the scheduler that runs now.
type scheduling struct {
	scheduler *scheduler.Scheduler
	pack      *plugins.Pack
	probe     *probe
	dead      *atomic.Bool // set when this scheduler has ended: the API server hears no more of it
	lead      func()       // has the scheduler begin to schedule
	end       func()
	cycles    *atomic.Int64 // of all schedulers of the world
}

var errDead = errors.New("the scheduler has ended")

// start starts a scheduler, which leads.
func (p *player) start() {
	p.scheduling = p.newScheduling()
	p.lead()
}

// newScheduling starts a scheduler that does not lead yet: its informers run.
func (p *player) newScheduling() *scheduling {
	cycles := &atomic.Int64{}
	if p.scheduling != nil {
		cycles = p.cycles
	}
	dead := &atomic.Bool{}
	s := &scheduling{pack: plugins.NewPack(plugins.WithSource(mortalSource{p.custom, dead})), dead: dead, cycles: cycles}
	s.pack.ZoneSpread().CompareCounts(func(difference string) { p.fail(CountsAreRecounts, "%s", difference) })
	s.probe = &probe{cycles: cycles, player: p, held: map[string]*holding{}}
	registry := frameworkruntime.Registry{probeName: s.probe.new}
	maps.Copy(registry, s.pack.Factories())
	alive := func() error {
		if dead.Load() {
			return errDead
		}
		return nil
	}
	api := p.server.SchedulerClient(fakeapi.Answers{Write: alive, Delete: p.noteVictim, Bind: func(binding *v1.Binding) error {
		p.noteUnseen(binding.UID, binding.Name)
		p.delayBind(binding.Name)
		return alive() // a request of a process that has ended since is lost
	}})
	ctx, cancel := context.WithCancel(context.Background())
	factory := schedulertest.NewInformerFactory(api)
	cfg := loadProfile(p.alone)
	var err error
	s.scheduler, err = scheduler.New(ctx, api, factory, nil,
		func(string) events.EventRecorderLogger { return recorder{p} },
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
	)
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	informertest.Start(ctx, p.t, factory, p.server.Client)
	if err := s.scheduler.WaitForHandlersSync(ctx); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	done := make(chan struct{})
	leads := false
	s.lead = func() {
		leads = true
		leader.Of(ctx, s.probe.handle).Cycle() // what the leader would find out within half a second
		go func() {
			defer close(done)
			s.scheduler.Run(ctx)
		}()
	}
	s.end = func() {
		dead.Store(true)
		cancel()
		if leads {
			<-done
		}
		factory.Shutdown()
		for _, profile := range s.scheduler.Profiles {
			profile.IterateOverWaitingPods(func(pod fwk.WaitingPod) { pod.Reject(probeName, errDead.Error()) })
		}
	}
	return s
}

// stop ends the scheduler as a kill does: nothing that it still does reaches the API server.
func (p *player) stop() {
	p.end()
	if p.standby != nil {
		p.standby.end()
		p.standby = nil
	}
	time.Sleep(time.Minute) // the bubble waits for slow binds to end, but has no time of its own any more
}

// noteInterrupted marks gangs that a scheduler has ended between two binds of.
func (p *player) noteInterrupted() {
	p.changed()
	for _, w := range p.workloads {
		w.disturbed = w.disturbed || w.gang() && p.partlyBound(w)
	}
}

func (p *player) restart() {
	p.noteInterrupted()
	p.end()
	p.start()
}

// startStandby starts a scheduler that follows the cluster, unless there is one.
func (p *player) startStandby() {
	if p.standby == nil {
		p.standby = p.newScheduling()
	}
}

// leaseDuration is how long a scheduler that stands by waits for one that has ended without giving its lease back.
const leaseDuration = 15 * time.Second

// failOver ends the scheduler that leads and has the one that stands by lead after a time, if there is one. When that
// is until the lease has ended, it has the events of what the other did by then.
func (p *player) failOver(after time.Duration) {
	if p.standby == nil {
		return
	}
	p.noteInterrupted()
	p.end()
	p.scheduling, p.standby = p.standby, nil
	for i := range p.debts {
		p.debts[i].until = time.Now().Add(after + statusDelay) // nobody writes statuses until then
	}
	p.wait(after)
	p.lead()
	if after < leaseDuration {
		p.blind = span{time.Now(), time.Now().Add(time.Duration(p.server.EventDelay.Load()))}
	}
}

// span is the time between two instants.
type span struct{ from, to time.Time }

// givenBlindly reports whether a pod was given its node by a leader that did not know yet what its predecessor had
// bound, as kube-scheduler does. Its kubelet refuses the pod if the node has no room for it.
func (p *player) givenBlindly(pod *v1.Pod) bool {
	given, known := p.decisionsSoFar()[pod.UID]
	return known && !given.at.Before(p.blind.from) && !given.at.After(p.blind.to)
}

// loadProfile returns the shipped configuration, or with alone kube-scheduler's own, with the probe behind all other
// plugins, and ahead of ours in PreBind.
func loadProfile(alone bool) *config.KubeSchedulerConfiguration {
	content, err := shipped.FS.ReadFile(profile)
	if err != nil {
		panic(err)
	}
	if alone {
		content = []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration")
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		panic(err)
	}
	cfg := object.(*config.KubeSchedulerConfiguration)
	plugins := cfg.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, config.Plugin{Name: probeName})
	plugins.PreBind.Enabled = append(plugins.PreBind.Enabled, config.Plugin{Name: probeName})
	return cfg
}

const probeName = "Probe"

// holding is the room that a gang has been given and not used.
type holding struct {
	pods    map[string]bool // that have a node and are not bound
	since   time.Time
	bound   bool          // one of them has been bound since
	inVain  time.Duration // in all, of times that ended without a bind
	longest time.Duration // the longest of these times
	began   time.Time     // the first of all
	// whole and members are what the gang was like at the last look: whether its quorum was bound, and which members it
	// had.
	whole   bool
	members string
}

// note takes in what the gang is like now. A change of its members ends its pause, so what is held is counted from then
// on.
func (h *holding) note(whole bool, members string) {
	h.whole = whole
	if h.members != "" && h.members != members {
		h.inVain, h.longest, h.began = 0, 0, time.Now()
	}
	h.members = members
}

// probe is a plugin behind all others that counts cycles, measures how long gangs hold room, and fails pods as the
// history says.
type probe struct {
	handle fwk.Handle
	cycles *atomic.Int64
	player *player

	mu       sync.Mutex // guards everything below
	attempts map[string]int
	held     map[string]*holding // by gang
}

// decision is that a pod was given a node. It stands until the pod is unreserved.
type decision struct {
	at   time.Time
	pod  *v1.Pod
	node string
	free int // CPUs that pods left of the node in the cycle, without this one
}

var (
	_ fwk.PreFilterPlugin = &probe{}
	_ fwk.ReservePlugin   = &probe{}
	_ fwk.PreBindPlugin   = &probe{}
	_ fwk.PostBindPlugin  = &probe{}
	_ fwk.SignPlugin      = &probe{}
)

func (m *probe) new(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	m.handle = h
	return m, nil
}

func (*probe) Name() string { return probeName }

// SignPod has pods batched as without this plugin.
func (*probe) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

func (m *probe) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if hypothetical.Marked(state) { // a question of a search, and no cycle
		return nil, nil
	}
	m.cycles.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attempts == nil {
		m.attempts = map[string]int{}
	}
	m.attempts[pod.Name]++
	return nil, nil
}

func (*probe) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// gangOf returns the name of the gang of a pod, "" without one.
func gangOf(pod *v1.Pod) string {
	if name := pod.Labels["scheduling.x-k8s.io/pod-group"]; name != "" {
		return name
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return *group.PodGroupName
	}
	return ""
}

func (m *probe) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if hypothetical.Marked(state) {
		return nil
	}
	if nodes, err := m.handle.SnapshotSharedLister().NodeInfos().List(); err == nil && !state.IsPodGroupSchedulingCycle() {
		m.player.checkDecision(nodes, pod, node)
	}
	m.player.noteDecision(pod, &decision{at: time.Now(), pod: pod, node: node, free: m.freeOn(node, pod)})
	gang := gangOf(pod)
	if gang == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[gang]
	if h == nil {
		h = &holding{pods: map[string]bool{}, began: time.Now()}
		m.held[gang] = h
	}
	if len(h.pods) == 0 {
		h.since, h.bound = time.Now(), false
	}
	h.pods[pod.Name] = true
	return nil
}

// freeOn returns how many CPUs pods leave of a node in this cycle, without one of them.
func (m *probe) freeOn(node string, pod *v1.Pod) int {
	info, err := m.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return 0 // it has just gone
	}
	return freeOf(info, pod)
}

// freeOf returns how many CPUs pods leave of a node, without one of them.
func freeOf(info fwk.NodeInfo, but *v1.Pod) int {
	free := info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU()
	for _, there := range info.GetPods() {
		if there.GetPod().UID == but.UID {
			free += there.CalculateResource().Resource.GetMilliCPU()
		}
	}
	return int(free / 1000)
}

func (m *probe) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if hypothetical.Marked(state) {
		return
	}
	m.release(pod, false)
}

func (m *probe) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	m.release(pod, true)
}

func (m *probe) release(pod *v1.Pod, bound bool) {
	if !bound {
		m.player.noteDecision(pod, nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[gangOf(pod)]
	if h == nil || !h.pods[pod.Name] {
		return
	}
	delete(h.pods, pod.Name)
	h.bound = h.bound || bound
	if len(h.pods) == 0 && !h.bound && !h.whole {
		lasted := min(time.Since(h.since), time.Since(h.began)) // the account may have begun again meanwhile
		h.inVain += lasted
		h.longest = max(h.longest, lasted)
	}
}

// PreBindPreFlight says that there is nothing to prepare for pods that the history has nothing for.
func (m *probe) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if take, fails := m.player.preBindOf(pod.Name); take == 0 && !fails {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind comes before PermitGate's.
func (m *probe) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	take, fails := m.player.preBindOf(pod.Name)
	select {
	case <-time.After(take):
	case <-ctx.Done():
		return fwk.AsStatus(ctx.Err())
	}
	if fails {
		return fwk.NewStatus(fwk.Error, "the history has it fail")
	}
	return nil
}

// preBindOf returns how long a pod takes to be prepared, and whether that fails then.
func (p *player) preBindOf(pod string) (take time.Duration, fails bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if take, fails = p.breaks[pod]; !fails {
		take = takes(p.preBindsTake, pod)
	}
	return take, fails
}

// noteDecision notes which node a pod was given, or with nil that it has none any more.
func (p *player) noteDecision(pod *v1.Pod, d *decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d != nil {
		p.decisions[pod.UID] = *d
		return
	}
	delete(p.decisions, pod.UID)
	p.unreservedAt = time.Now()
	if len(pod.Spec.ResourceClaims) > 0 {
		p.deviceFreed = p.unreservedAt
	}
}

// decisionsSoFar returns what the schedulers of the world have decided about pods.
func (p *player) decisionsSoFar() map[types.UID]decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.decisions)
}

// cyclesSoFar returns how many cycles each pod has had of this scheduler.
func (s *scheduling) cyclesSoFar() map[string]int {
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	return maps.Clone(s.probe.attempts)
}

// mortalSource is the source of custom resources of a scheduler, until it is dead.
type mortalSource struct {
	crd.Source
	dead *atomic.Bool
}

func (s mortalSource) Watch(ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(bool)) (crd.Kind, error) {
	unlessDead := func(f func()) {
		if !s.dead.Load() {
			f()
		}
	}
	return s.Source.Watch(ctx, obj, toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { unlessDead(func() { handler.OnAdd(obj, initial) }) },
		UpdateFunc: func(before, after any) { unlessDead(func() { handler.OnUpdate(before, after) }) },
		DeleteFunc: func(obj any) { unlessDead(func() { handler.OnDelete(obj) }) },
	}, func(available bool) {
		if onChange != nil {
			unlessDead(func() { onChange(available) })
		}
	})
}

func (s mortalSource) PatchStatus(ctx context.Context, before, after client.Object) error {
	if s.dead.Load() {
		return errDead
	}
	return s.Source.PatchStatus(ctx, before, after)
}

// keepers are the reasons of events with which a gang that waits for long begins to keep nodes or room from others.
var keepers = []string{"GangKeepsNodes", "GangCollectsRoom"}

// recorder notes when a gang begins to collect room, and for which pods kube-scheduler evicts others.
type recorder struct{ player *player }

func (r recorder) Eventf(regarding, related runtime.Object, _, reason, _, _ string, _ ...any) {
	if slices.Contains(keepers, reason) {
		r.player.collects.Store(true)
	}
	if victim, isPod := regarding.(*v1.Pod); isPod && reason == "Preempted" {
		r.player.notePreemptors(victim, r.player.podsOf(related))
	}
}

// podsOf returns the pods that an event is related to. A pod that preempts is of a type of kube-scheduler's own.
func (p *player) podsOf(related runtime.Object) (pods []*v1.Pod) {
	switch o := related.(type) {
	case interface{ Pods() map[string]*v1.Pod }:
		return slices.Collect(maps.Values(o.Pods()))
	case *schedulingv1beta1.PodGroup:
		for _, pod := range p.listPods() {
			if gangOf(&pod) == o.Name {
				pods = append(pods, &pod)
			}
		}
	}
	return pods
}

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }
