package worlds

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/crdtest"
	"zonewise.dev/test/fakeapi"
)

var (
	podResource  = v1.SchemeGroupVersion.WithResource("pods")
	nodeResource = v1.SchemeGroupVersion.WithResource("nodes")
)

// Failure says which invariant did not hold, and how.
type Failure struct {
	Invariant string
	Message   string
	// At is how long after the start of the world.
	At time.Duration
}

func (f Failure) String() string {
	return fmt.Sprintf("%s: %s (after %v)", f.Invariant, f.Message, f.At)
}

// Report is what became of a world.
type Report struct {
	Failures []Failure
	// Cycles counts scheduling cycles, Bound pods.
	Cycles, Bound int
	// Displaced counts pods that lost their zone in the end and were certified to run again, Moved those that were moved
	// back to another zone.
	Displaced, Moved int
	// EvictsForEver is true if kube-scheduler itself evicts pods without end, see returnsFirst.
	EvictsForEver bool
	// ChoosesAnew is true if kube-scheduler itself preempts other pods after a restart, see checkRestart.
	ChoosesAnew bool
	// ReservesElsewhere is true if kube-scheduler itself has bound a pod to another node than its claim's, see checkDevices.
	ReservesElsewhere bool
	// Lived is the world's own time.
	Lived time.Duration
}

// Has returns the first failure of an invariant, of any for "".
func (r Report) Has(invariant string) (Failure, bool) {
	for _, f := range r.Failures {
		if invariant == "" || f.Invariant == invariant {
			return f, true
		}
	}
	return Failure{}, false
}

// Play carries out a world in a bubble of time, with the real scheduler in the shipped profile, and then lets it come
// to rest. It ends at the first failure. No other world may be played meanwhile: feature gates and panic handlers are
// those of the process.
func Play(t *testing.T, w World) Report {
	t.Helper()
	return play(t, w, false)
}

// PlayAlone is Play with kube-scheduler in its default profile, without our plugins: what breaks an invariant then is
// its own doing. Reservations and policies are nothing to it.
func PlayAlone(t *testing.T, w World) Report {
	t.Helper()
	return play(t, w, true)
}

func play(t *testing.T, w World, alone bool) (report Report) {
	t.Helper()
	if w.Native {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	}
	var panicked func(any)
	utilruntime.ReallyCrash = false // a panic ends its goroutine's work, and is a failure
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, r any) { panicked(r) })
	defer func() {
		utilruntime.ReallyCrash = true
		utilruntime.PanicHandlers = utilruntime.PanicHandlers[:len(utilruntime.PanicHandlers)-1]
	}()
	calls := newOutside()
	defer close(calls)
	rand.Seed(1) //nolint:staticcheck // the scheduler chooses among equal nodes by the generator that all share
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(t, w)
		p.outside, p.alone = calls, alone
		panicked = func(r any) { p.fail(NoPanic, "%v, at %s", r, placeOf(debug.Stack())) }
		defer func() { report = p.report() }()
		p.start()
		defer p.stop()
		if p.carryOut(w.Steps); !p.failed() {
			p.rest()
		}
	})
	return report
}

// carryOut carries steps out, up to a failure.
func (p *player) carryOut(steps []Step) {
	for _, step := range steps {
		if p.failed() {
			return
		}
		p.traceStep(step)
		step.apply(p)
		p.observe()
	}
}

// placeOf returns where a panic began, by the stack of its handler.
func placeOf(stack []byte) string {
	_, after, _ := bytes.Cut(stack, []byte("panic("))
	for line := range bytes.Lines(after) {
		if place := strings.TrimSpace(string(line)); strings.Contains(place, ".go:") && !strings.HasPrefix(place, "runtime/") {
			return place
		}
	}
	return "an unknown place"
}

// player plays one world: it is the API server's users, the controllers and the kubelets. But for what mu guards it
// belongs to one goroutine, that of the bubble.
type player struct {
	t       *testing.T
	world   World
	alone   bool // see PlayAlone
	outside outside
	began   time.Time
	server  *fakeapi.Server
	custom  *crdtest.Source
	*scheduling
	standby *scheduling // follows and does not lead; nil for none

	nodes     map[string]*node
	workloads map[string]*workload
	stuck     map[types.UID]bool
	leaving   map[types.UID]time.Time // since when pods terminate, or are on nodes that are gone
	boundAt   map[types.UID]time.Time
	created   int
	displaced int // see Report
	moved     int
	blind     span      // when the leader did not know yet what its predecessor had bound
	changedAt time.Time // when the last step was carried out that was no wait
	succeeded time.Time // when the last pod did
	traced    tracer
	invariants

	mu       sync.Mutex // guards everything below
	refusals map[string]int
	// bindsTake and preBindsTake are how long binds of a workload's pods take, and what comes before.
	bindsTake, preBindsTake map[string]time.Duration
	binding                 map[string]int          // binds that are on their way, by the pod's name
	victims                 []victim                // pods that the scheduler has deleted
	knownFrom               map[types.UID]time.Time // when schedulers hear at the latest that a pod is deleted
	unseen                  []string                // pods whose bind was sent before that
	decisions               map[types.UID]decision
	unreservedAt            time.Time                // when a pod last lost the node that it had been given
	endedAt                 map[string]time.Time     // when a pod of an app last left its node
	deviceFreed             time.Time                // when a device was last free again that a pod was to have
	stirred                 time.Time                // when a node or a reservation last changed
	breaks                  map[string]time.Duration // pods that fail to be prepared, and after which time
	found                   []Failure
}

// node is a node and what it is like when it answers.
type node struct {
	Node
	object   *v1.Node
	lost     bool
	cordoned bool
	// outOfService: somebody has said that a lost node has ended, so that pods go whose controllers wait for that.
	outOfService bool
}

func newPlayer(t *testing.T, w World) *player {
	p := &player{
		t: t, world: w, began: time.Now(), server: fakeapi.New(), custom: crdtest.New(),
		nodes: map[string]*node{}, workloads: map[string]*workload{}, stuck: map[types.UID]bool{},
		leaving: map[types.UID]time.Time{}, boundAt: map[types.UID]time.Time{}, refusals: map[string]int{},
		bindsTake: map[string]time.Duration{}, preBindsTake: map[string]time.Duration{}, binding: map[string]int{}, breaks: map[string]time.Duration{},
		endedAt:   map[string]time.Time{},
		decisions: map[types.UID]decision{}, knownFrom: map[types.UID]time.Time{},
	}
	p.invariants = newInvariants()
	p.server.Graceful.Store(true)
	p.server.Conflicts.Store(true)
	p.addDeviceClass()
	p.server.BeforeBind(p.refusesBind)
	p.server.AfterBind(func(pod string) error { p.checkBind(pod); return nil })
	return p
}

// fail notes a failure. It may be called from any goroutine.
func (p *player) fail(invariant, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = append(p.found, Failure{invariant, fmt.Sprintf(format, args...), time.Since(p.began)})
}

func (p *player) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.found) > 0
}

func (p *player) report() Report {
	forEver := p.evictsForEver()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Report{
		Failures: slices.Clone(p.found), Displaced: p.displaced, Moved: p.moved, EvictsForEver: forEver, ChoosesAnew: p.choosesAnew, ReservesElsewhere: p.reservesElsewhere, Cycles: int(p.cycles.Load()), Bound: len(p.server.Binds()), Lived: time.Since(p.began),
	}
}

// wait lets time pass, in steps that grow, and looks at the world after each.
func (p *player) wait(d time.Duration) {
	step := time.Second
	for end := time.Now().Add(d); !p.failed(); step = min(step*5/4, 15*time.Second) {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(step, left))
		p.observe()
	}
}

// observe lets everybody do what there is to do at this time, and checks what must always be true.
func (p *player) observe() {
	synctest.Wait()
	p.checkSettled()
	for p.actAsKubelets(); p.actAsControllers(); {
		synctest.Wait()
	}
	synctest.Wait()
	p.traceChanges()
	p.check()
}

const (
	// settling is how long the cluster may take after the last change.
	settling = 3 * time.Minute
	// resting is how long it is watched then: longer than what a gang collects room for and then leaves it to others.
	resting = 25 * time.Minute
	// restingLong is the same for worlds in which something fails without end.
	restingLong = 2 * time.Hour
)

// rest lets the world come to rest, and checks what must be true then, before and after a restart. Then it carries out
// the steps for that time.
func (p *player) rest() {
	Watches{}.apply(p)
	p.changedAt = time.Now()
	p.wait(settling)
	p.atRest, p.restsFrom = true, time.Now()
	cycles := p.cyclesSoFar()
	if p.fallsBackForLong() {
		p.wait(restingLong)
	} else {
		p.wait(resting)
		if !p.failsForEver() {
			p.checkAttempts(cycles, resting)
			p.checkVictims()
		}
	}
	if p.failed() || p.failsForEver() || p.evictsForEver() {
		return // what fails at a time is tried again at another
	}
	before := p.restStateNow()
	p.restart()
	restarted := time.Now()
	p.wait(2 * time.Minute)
	if p.succeeded.Before(restarted.Add(-podWaits)) { // otherwise the room of pods that have ended has others bound
		p.checkRestart(&before, restarted)
	}
	p.carryOut(p.world.AtRest)
}

// fallsBackForLong reports whether preparations fail after a time in which others wait.
func (p *player) fallsBackForLong() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, after := range p.breaks {
		if after >= time.Minute {
			return true
		}
	}
	return false
}

// failsForEver reports whether a fault of the history has no end.
func (p *player) failsForEver() bool {
	for _, w := range p.workloads {
		if p.fails(w) {
			return true
		}
	}
	return false
}

// fails reports whether binds or preparations of a workload's pods fail without end.
func (p *player) fails(w *workload) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pod := range p.breaks {
		if strings.HasPrefix(pod, w.Name+"-") {
			return true
		}
	}
	return w.bindsFail
}

func (p *player) changed() { p.changedAt = time.Now() }

// stir notes that a node or a reservation changes.
func (p *player) stir() {
	p.changed()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stirred = time.Now()
}

// put stores an object of a built-in kind.
func (p *player) put(o runtime.Object, exists bool) {
	p.server.SetVersion(o)
	var err error
	if exists {
		gvr := nodeResource
		err = p.server.Client.Tracker().Update(gvr, o, "")
	} else {
		err = p.server.Client.Tracker().Add(o)
	}
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err)) // a fault of the player
	}
}

func (p *player) addNode(n Node) {
	if p.nodes[n.Name] != nil {
		return
	}
	p.stir()
	object := n.build()
	p.nodes[n.Name] = &node{Node: n, object: object}
	p.put(object.DeepCopy(), false)
	p.addDevices(&n)
}

func (p *player) removeNode(name string) {
	if p.nodes[name] == nil {
		return
	}
	p.stir()
	p.forgetDebts(p.nodes[name].Zone)
	p.removeDevices(&p.nodes[name].Node)
	delete(p.nodes, name)
	if err := p.server.Client.Tracker().Delete(nodeResource, "", name); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// writeNode stores what a node is like now.
func (p *player) writeNode(n *node) {
	p.stir()
	object := n.build()
	object.Spec.Unschedulable = n.cordoned
	if n.lost {
		object.Status.Conditions[0].Status = v1.ConditionUnknown
		for _, effect := range []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute} {
			object.Spec.Taints = append(object.Spec.Taints, v1.Taint{Key: v1.TaintNodeUnreachable, Effect: effect, TimeAdded: &metav1.Time{Time: time.Now()}})
		}
	}
	object.Status.Conditions[0].LastTransitionTime = metav1.Now()
	n.object = object
	p.put(object.DeepCopy(), true)
}

func (p *player) setLost(n *node, lost bool) {
	if n.lost != lost {
		n.lost = lost
		p.forgetDebts(n.Zone)
		p.writeNode(n)
	}
}

func (p *player) cordon(name string, cordoned bool) {
	if n := p.nodes[name]; n != nil && n.cordoned != cordoned {
		n.cordoned = cordoned
		p.forgetDebts(n.Zone)
		p.writeNode(n)
	}
}

func (p *player) relabel(name, zone string) {
	if n := p.nodes[name]; n != nil && n.Zone != zone {
		p.forgetDebts(n.Zone)
		n.Zone = zone
		p.writeNode(n)
	}
}

func (p *player) allNodes() (nodes []*node) {
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		nodes = append(nodes, p.nodes[name])
	}
	return nodes
}

// nodesOf returns the nodes of a zone, or the one of a name.
func (p *player) nodesOf(zone, name string) (nodes []*node) {
	return slices.DeleteFunc(p.allNodes(), func(n *node) bool { return n.Zone != zone && n.Name != name })
}

func (p *player) reserve(r Reservation) {
	p.stir()
	object := r.build()
	if known, exists := crdtest.Get(p.custom, object); exists {
		known.Spec = object.Spec
		object = known
	} else {
		object.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	}
	p.custom.Put(object)
	p.made[r.Name] = object.CreationTimestamp.Time
	p.reservations[r.Name] = r
	p.forgetShort(r.Name)
}

func (p *player) unreserve(name string) {
	p.stir()
	p.custom.Delete(&v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
	delete(p.reservations, name)
}

func (p *player) applyPolicy(policy Policy) {
	p.changed()
	object := policy.build()
	if known, exists := crdtest.Get(p.custom, object); exists {
		known.Spec = object.Spec
		object = known
	} else {
		object.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	}
	p.custom.Put(object)
	p.policies[policy.Name] = policy
}

func (p *player) deletePolicy(name string) {
	p.changed()
	p.custom.Delete(&v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}})
	delete(p.policies, name)
}

// listPods returns all pods, in the order of their names.
func (p *player) listPods() []v1.Pod {
	o, err := p.server.Client.Tracker().List(podResource, v1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	return o.(*v1.PodList).Items
}

// podAt returns a pod of a workload that does not terminate, by its number; nil if it has none.
func (p *player) podAt(workload string, i int) *v1.Pod {
	var mine []v1.Pod
	for _, pod := range p.listPods() {
		if pod.Labels[workloadLabel] == workload && pod.DeletionTimestamp == nil && !finished(&pod) {
			mine = append(mine, pod)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	return &mine[i%len(mine)]
}

// bound reports whether a pod has a node, or its bind is on its way.
func (p *player) bound(pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pod.Spec.NodeName != "" || p.binding[pod.Name] > 0
}

// deletePod asks for the deletion of a pod, as users and controllers do.
func (p *player) deletePod(pod *v1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	p.changed()
	if w := p.workloads[pod.Labels[workloadLabel]]; w != nil && p.bound(pod) {
		w.disturbed = true
	}
	p.noteDeleted(pod.UID)
	if err := p.server.Client.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// noteDeleted notes by when all schedulers have heard that a pod is deleted.
func (p *player) noteDeleted(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.knownFrom[uid] = time.Now().Add(time.Duration(p.server.EventDelay.Load()))
}

// noteUnseen notes a pod whose bind is sent although it is deleted, if the scheduler need not have heard of that.
func (p *player) noteUnseen(uid types.UID, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, deleted := p.knownFrom[uid]; deleted && !time.Now().After(known) {
		p.unseen = append(p.unseen, name)
	}
}
