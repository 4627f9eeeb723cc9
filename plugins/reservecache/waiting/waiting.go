package waiting

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// The defaults of podInitialBackoffSeconds and podMaxBackoffSeconds.
const (
	initialBackoff = time.Second
	maxBackoff     = 10 * time.Second
)

// Pods are the pods that holds keep out. Make one with New.
type Pods struct {
	size         atomic.Int64 // the length of pods
	refusedAgain atomic.Int64 // how many were chosen and refused again

	mu sync.Mutex // guards all fields below and everything that they lead to
	// pods are replaced by a new record with each refusal: Pick reads what it has outside of the lock.
	pods     map[types.UID]*pod
	openings map[string]*opening
	// serial counts the openings and the refusals.
	serial uint64
	// inCycle is the pod whose scheduling cycle began last. There is one cycle at a time.
	inCycle types.UID
	// openedInCycle are the nodes that were opened since then: what the cycle is judged by may be older.
	openedInCycle map[string]struct{}
	// version is that of the owners at the last Reowned, and outdated are the pods that were refused at another since.
	version  any
	outdated map[types.UID]struct{}
}

// Terms are those on which a pod was refused: the claim that it may use, and how, at a version of the owners.
type Terms struct {
	Claim   types.UID
	Use     holds.Use
	Version any
}

// pod is a pod that was refused and has no node.
type pod struct {
	object  *v1.Pod
	request ledger.Resources
	terms   Terms
	// attempts counts the refusals. refused is the number of the last one, after which the backoff ends at due.
	attempts int
	refused  uint64
	due      time.Time
	// waits is set until the pod is chosen or tried.
	waits bool
	// chosen is the node for which it was chosen and has not been tried yet, and since when; empty otherwise.
	chosen string
	since  time.Time
	// lastOpening is the opening for which it was last chosen, and lastNode that one's node. Only Pick changes them.
	lastOpening  uint64
	lastNode     string
	refusedAgain bool
}

// opening is a node that has got room.
type opening struct {
	serial uint64
	// chosen are the pods that were chosen and have not been tried yet.
	chosen map[types.UID]*pod
}

// New returns a Pods without any.
func New() *Pods {
	return &Pods{pods: map[types.UID]*pod{}, openings: map[string]*opening{}, openedInCycle: map[string]struct{}{}, outdated: map[types.UID]struct{}{}}
}

// Empty reports whether no pod waits. It takes no lock.
func (p *Pods) Empty() bool { return p.size.Load() == 0 }

// Refused records that holds kept a pod off some node at this attempt. It reports whether the worker is to look at the
// pod: nodes got room after the attempt began, which are opened once more, or the pod may belong to another claim by
// now.
func (p *Pods) Refused(object *v1.Pod, request *ledger.Resources, terms Terms, now time.Time) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var w pod
	if earlier := p.pods[object.UID]; earlier != nil {
		p.unchooseLocked(earlier)
		w = *earlier
	}
	p.serial++
	w.object, w.request, w.terms, w.refused, w.waits = object, request.Clone(), terms, p.serial, true
	w.due = now.Add(min(maxBackoff, initialBackoff<<min(w.attempts, 10)))
	w.attempts++
	if w.lastOpening != 0 && !w.refusedAgain {
		w.refusedAgain = true
		p.refusedAgain.Add(1)
	}
	p.pods[object.UID] = &w
	p.size.Store(int64(len(p.pods)))
	for name := range p.openedInCycle {
		p.openLocked(name)
	}
	if terms.Version != p.version {
		p.outdated[object.UID] = struct{}{}
	}
	return len(p.openedInCycle) > 0 || len(p.outdated) > 0
}

// Reowned returns the pods, by namespace and name, that were refused on other terms than they have now. requesterOf
// returns a pod as holds see it; it is called under the lock, for all pods if the version of the owners is another than
// at the last call.
func (p *Pods) Reowned(version any, requesterOf func(pod *v1.Pod) holds.Requester) map[string]*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := map[string]*v1.Pod{}
	check := func(w *pod) {
		now := requesterOf(w.object)
		if w.terms.Claim != now.Claim || w.terms.Use != now.Use {
			w.terms.Claim, w.terms.Use = now.Claim, now.Use
			changed[w.object.Namespace+"/"+w.object.Name] = w.object
		}
	}
	if version != p.version {
		for _, w := range p.pods {
			check(w)
		}
	} else {
		for uid := range p.outdated {
			if w := p.pods[uid]; w != nil {
				check(w)
			}
		}
	}
	p.version = version
	clear(p.outdated)
	return changed
}

// AttemptBegins records that an attempt to schedule a pod begins, and that the previous one has ended. It comes before
// the attempt reads what is held. It reports whether the previous pod had been chosen but was refused for other reasons
// than holds, so that another may have its room.
func (p *Pods) AttemptBegins(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.openedInCycle) > 0 {
		p.openedInCycle = map[string]struct{}{} // clearing one that was large would cost as much each time
	}
	refused := false
	if last := p.pods[p.inCycle]; last != nil && last.chosen != "" && p.inCycle != uid {
		p.unchooseLocked(last)
		refused = true
	}
	p.inCycle = uid
	if w := p.pods[uid]; w != nil {
		w.waits = false
	}
	return refused
}

// Placed records that a pod got a node. It reports whether the room for which the pod had been chosen is elsewhere, and
// so free for another.
func (p *Pods) Placed(uid types.UID, node string) bool { return p.forgetPod(uid, node) }

// Gone records that a pod is gone, or that someone else has bound it. It reports as Placed does.
func (p *Pods) Gone(uid types.UID) bool { return p.forgetPod(uid, "") }

func (p *Pods) forgetPod(uid types.UID, node string) bool {
	if p.Empty() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.pods[uid]
	if w == nil {
		return false
	}
	delete(p.pods, uid)
	p.size.Store(int64(len(p.pods)))
	if w.refusedAgain {
		p.refusedAgain.Add(-1)
	}
	elsewhere := w.chosen != "" && w.chosen != node
	p.unchooseLocked(w)
	return elsewhere
}

// Waits reports whether a pod was chosen for a node, was refused, and waits. The scheduler may not have heard then of
// what made the room; an event of that node is worth a try.
func (p *Pods) Waits(uid types.UID, node string) bool {
	if p.refusedAgain.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.pods[uid]
	return w != nil && w.refusedAgain && w.lastNode == node
}

// Opened records that nodes may have got room.
func (p *Pods) Opened(nodes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range nodes {
		p.openedInCycle[name] = struct{}{}
		if len(p.pods) > 0 {
			p.openLocked(name)
		}
	}
}

func (p *Pods) openLocked(node string) {
	p.serial++
	o := p.openings[node]
	if o == nil {
		o = &opening{chosen: map[types.UID]*pod{}}
		p.openings[node] = o
	}
	o.serial = p.serial
}

// unchooseLocked ends that a pod is chosen.
func (p *Pods) unchooseLocked(w *pod) {
	if o := p.openings[w.chosen]; o != nil {
		delete(o.chosen, w.object.UID)
	}
	w.chosen = ""
}
