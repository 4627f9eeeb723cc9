package gang_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/gang"
)

// world is a small model of what surrounds gangs: an API server, the two event streams that come from
// it (the plugin's and the scheduler's own, in no order to each other), the scheduling queue, one
// scheduling cycle at a time, binding cycles, and capacity that is counted in pods. It calls a gang as
// the plugin does, and checks what must always be true.
type world struct {
	check    check
	now      time.Time
	config   gang.Config
	gangs    map[string]*gang.Gang
	groups   map[string]*gang.Spec // as the API server has them
	pods     map[types.UID]*pod
	order    []types.UID // of creation
	plugin   []func()    // events on their way to the plugin
	history  []func()    // those of its other watch, which shows pods that have succeeded
	sched    []func()    // events on their way to the scheduler
	queue    []types.UID // the active queue
	cycle    types.UID   // the pod in the scheduling cycle
	capacity int
	hinted   bool // rounds have hints
	hopeful  bool // rounds are begun that do not fit
	others   int  // capacity used by pods of no gang
	made     int

	native nativeWorld // used if config.Native is set

	rehearsals []running // those that run
	// passed has, by gang, the templates of which a rehearsal has passed in the round.
	passed    map[string]map[gang.Template]bool
	rollbacks map[string]int
}

// running is a rehearsal that runs.
type running struct {
	gang string
	gang.Rehearsal
}

// check is the part of a test that the world needs.
type check interface {
	Helper()
	Fatalf(format string, args ...any)
}

// place is where a pod is in the scheduler.
type place int

const (
	nowhere   place = iota // the scheduler does not know it, or is done with it
	gated                  // kept by PreEnqueue
	active                 // in the active queue
	parked                 // unschedulable: nothing but an activation moves it
	backoffQ               // retried at its time, after an error
	entered                // in the cycle, past PreFilter
	permitted              // Permit answered Wait, the framework has not listed it as waiting yet
	waiting                // listed
	rejecting              // rejected; its binding cycle has not called Unreserve yet
	preparing              // allowed; other plugins prepare it for its bind
	barrier                // prepared, waits for the others
	stopped                // stopped on its way to the bind; Unreserve has not been called yet
	binding                // past the barrier
	failing                // its binding failed; Unreserve has not been called yet
	returning              // unreserved, and not back in the queue yet
	postBind               // bound; PostBind has not been called yet
)

// pod is one pod in the model.
type pod struct {
	uid    types.UID
	gang   string
	place  place
	exists bool // in the API server
	bound  bool // in the API server
	held   bool
	retry  time.Time // for backoffQ
	// unreserved is since when it is on its way back.
	unreserved time.Time
	// activated: an activation came while it was in flight.
	activated bool
	template  gang.Template
	// noRoom: the plugin that counts resources refused it last, and moves it when room is made.
	noRoom bool
	hint   bool // a node is proposed to it, and it has none
	// what the plugin has been told
	toldLive, toldBound, toldDone bool
	done                          bool // succeeded; gone from the scheduler's view
}

func newWorld(c check, capacity int, jitter func() float64) *world {
	return &world{
		check: c,
		now:   time.Unix(1_000_000, 0),
		config: gang.Config{
			Timeout: 60 * time.Second, InitialBackoff: time.Second, MaxBackoff: 30 * time.Second,
			PrepareTimeout: 20 * time.Second, RecoveryTimeout: 40 * time.Second, Jitter: jitter,
		},
		gangs:     map[string]*gang.Gang{},
		groups:    map[string]*gang.Spec{},
		pods:      map[types.UID]*pod{},
		capacity:  capacity,
		rollbacks: map[string]int{},
		passed:    map[string]map[gang.Template]bool{},
	}
}

func (w *world) gang(name string) *gang.Gang {
	g, ok := w.gangs[name]
	if !ok {
		g = gang.New(w.config)
		w.gangs[name], w.passed[name] = g, map[gang.Template]bool{}
	}
	return g
}

// The API server.

func (w *world) createPod(name string, held bool) *pod {
	w.made++
	p := &pod{uid: types.UID(fmt.Sprintf("%s-%d", name, w.made)), gang: name, exists: true, held: held, template: gang.Template{Needs: fmt.Sprint(w.made % 2)}}
	w.pods[p.uid] = p
	w.order = append(w.order, p.uid)
	w.announce(p)
	return p
}

// announce sends a pod's present state down both streams.
func (w *world) announce(p *pod) {
	bound, held := p.bound, p.held
	w.plugin = append(w.plugin, func() {
		p.toldLive, p.toldBound = true, p.toldBound || bound
		w.gang(p.gang).SetPod(p.uid, gang.Pod{Bound: bound, Held: held && !bound, Template: p.template}, w.now)
	})
	w.sched = append(w.sched, func() {
		switch {
		case bound:
			w.dequeue(p)
		case p.place == nowhere && p.exists && !p.bound:
			w.enqueue(p)
		case w.config.Native && p.place == gated: // the plugin of scheduling gates wakes it
			w.activate(p)
		}
	})
}

func (w *world) deletePod(p *pod) {
	if !p.exists {
		return
	}
	roomy := p.bound
	p.exists, p.bound = false, false
	w.plugin = append(w.plugin, func() {
		p.toldLive, p.toldBound = false, false
		w.gang(p.gang).DeletePod(p.uid, w.now)
		if roomy {
			w.room()
		}
	})
	w.sched = append(w.sched, func() {
		w.dequeue(p)
		if p.place == waiting {
			p.place = rejecting
		}
	})
}

// finish lets a bound pod succeed: the scheduler's view and the plugin's lose it.
func (w *world) finish(p *pod) {
	if w.config.Native {
		w.deletePod(p) // it counts no more
		return
	}
	p.done = true
	w.deletePod(p)
	w.history = append(w.history, func() {
		p.toldDone = true
		w.announceSucceeded(p.gang)
	})
}

// announceSucceeded tells a gang which of its pods have succeeded.
func (w *world) announceSucceeded(name string) {
	done := sets.New[types.UID]()
	for uid, p := range w.pods {
		if p.gang == name && p.toldDone {
			done.Insert(uid)
		}
	}
	w.gang(name).SetSucceeded(done, w.now)
}

// purge deletes a pod that has succeeded.
func (w *world) purge(p *pod) {
	p.done = false
	w.history = append(w.history, func() {
		if p.toldDone {
			p.toldDone, p.toldLive, p.toldBound = false, false, false
		}
		w.announceSucceeded(p.gang)
	})
}

func (w *world) unhold(p *pod) {
	if p.exists && p.held {
		p.held = false
		w.announce(p)
	}
}

func (w *world) setGroup(name string, spec *gang.Spec) {
	w.groups[name] = spec
	w.plugin = append(w.plugin, func() {
		if spec == nil {
			w.gang(name).DeleteGroup(w.now)
		} else {
			w.gang(name).SetGroup(*spec, w.now)
		}
	})
}

func (w *world) room() { w.roomOf("") }

// roomOf is room that a gang has left, which is news to the others.
func (w *world) roomOf(name string) {
	for _, other := range slices.Sorted(maps.Keys(w.gangs)) {
		if other != name {
			w.gangs[other].RoomFreed(w.now)
		}
	}
	w.hintRoom()
}

// loseNode has a node go.
func (w *world) loseNode(node string) {
	for _, name := range slices.Sorted(maps.Keys(w.gangs)) {
		w.gangs[name].LoseNode(node, w.now)
	}
}

// hintRoom is what the scheduler's other plugins do when room is made.
func (w *world) hintRoom() {
	for _, p := range w.at(parked) {
		if p.noRoom {
			w.enqueue(p)
		}
	}
}

func (w *world) setOthers(n int) {
	less := n < w.others
	w.others = n
	if less {
		w.room()
	}
}

// rehearsed ends the rehearsal that was started first.
func (w *world) rehearsed(refused string) bool {
	if len(w.rehearsals) == 0 {
		return false
	}
	r := w.rehearsals[0]
	w.rehearsals = w.rehearsals[1:]
	g := w.gang(r.gang)
	if g.Rehearsing(r.Rehearsal) && refused == "" {
		w.passed[r.gang][w.pods[r.UID].template] = true
	}
	g.Rehearsed(r.Rehearsal, refused, w.now)
	return true
}

// deliver hands on the oldest event of a stream.
func deliver(stream *[]func()) bool {
	if len(*stream) == 0 {
		return false
	}
	event := (*stream)[0]
	*stream = (*stream)[1:]
	event()
	return true
}

// restart loses everything that is not in the API server.
func (w *world) restart() {
	w.plugin, w.history, w.sched, w.queue, w.cycle, w.rehearsals = nil, nil, nil, nil, "", nil
	w.gangs, w.native = map[string]*gang.Gang{}, nativeWorld{}
	for _, uid := range w.order {
		p := w.pods[uid]
		p.place, p.activated, p.toldLive, p.toldBound, p.toldDone = nowhere, false, false, false, false
		if p.exists {
			w.announce(p)
		}
		if p.done {
			w.history = append(w.history, func() {
				p.toldDone = true
				w.announceSucceeded(p.gang)
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		if spec := w.groups[name]; spec != nil {
			w.setGroup(name, spec)
		}
	}
}

// The scheduling queue.

func (w *world) enqueue(p *pod) {
	if w.config.Native {
		w.enqueueNative(p)
		return
	}
	if p.held {
		p.place = gated
		return
	}
	if reason, _, _ := w.gang(p.gang).Enqueue(p.uid, w.now); reason != gang.ReasonNone {
		p.place = gated
		return
	}
	p.place = active
	w.queue = append(w.queue, p.uid)
}

func (w *world) dequeue(p *pod) {
	if w.config.Native {
		w.dequeueNative(p)
		return
	}
	switch p.place {
	case active:
		w.queue = slices.DeleteFunc(w.queue, func(uid types.UID) bool { return uid == p.uid })
		p.place = nowhere
	case gated, parked, backoffQ:
		p.place = nowhere
	}
}

func (w *world) activate(p *pod) {
	if w.config.Native {
		w.activateNative(p.gang)
		return
	}
	switch p.place {
	case gated, parked, backoffQ:
		w.enqueue(p)
	case entered, permitted, waiting, rejecting, preparing, barrier, stopped, failing:
		p.activated = true
	}
}

// comeBack returns a pod whose cycle failed to the queue.
func (w *world) comeBack(p *pod, byError bool) {
	if w.cycle == p.uid {
		w.cycle = ""
	}
	p.place = nowhere
	if !p.exists || p.bound {
		return
	}
	if w.config.Native {
		w.enqueueNative(p)
		return
	}
	p.place = parked
	if byError || p.activated {
		p.place, p.retry = backoffQ, w.now.Add(time.Second)
	}
	p.activated = false
}

func (w *world) retryErrors() bool {
	moved := w.retryNative()
	for _, uid := range w.order {
		if p := w.pods[uid]; p.place == backoffQ && !w.config.Native && !p.retry.After(w.now) {
			w.enqueue(p)
			moved = true
		}
	}
	return moved
}
