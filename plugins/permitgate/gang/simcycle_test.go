package gang_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// The scheduling cycle.

func (w *world) used() int {
	n := w.others
	for _, p := range w.pods {
		switch {
		case p.exists && p.bound:
			n++
		case p.holds() || p.place == binding || p.place == failing:
			n++
		}
	}
	return n
}

// holds reports whether the pod has something that a rejection would free.
func (p *pod) holds() bool {
	switch p.place {
	case permitted, waiting, rejecting, preparing, barrier, stopped:
		return true
	}
	return false
}

// pop starts the cycle of the first pod in the active queue.
func (w *world) pop() bool {
	if w.config.Native {
		return w.popNative()
	}
	if w.cycle != "" || len(w.queue) == 0 {
		return false
	}
	p := w.pods[w.queue[0]]
	w.queue = w.queue[1:]
	w.now = w.now.Add(time.Millisecond) // a cycle takes its time
	w.cycle, p.place = p.uid, entered
	g := w.gang(p.gang)
	scout, reason, _ := g.Enter(p.uid, w.now)
	switch {
	case scout && reason != gang.ReasonNone:
		w.check.Fatalf("%s is the scout, and refused: %q", p.uid, reason)
	case reason != gang.ReasonNone || scout && !w.propose(p):
		w.comeBack(p, false)
	}
	return true
}

// propose answers a scout: a round where there is room for the quorum, or hope; or else a refusal. It reports which.
func (w *world) propose(p *pod) (gathers bool) {
	g := w.gang(p.gang)
	members, need := g.Missing(), g.Lacking()
	slices.Sort(members)
	room := max(0, min(len(members), w.capacity-w.used()-w.hints("")))
	hopes := w.hopeful && len(members) >= need
	if room < need && !hopes {
		g.Refuse(gang.Rollback{Cause: gang.CauseNoRoom, Member: p.uid, Detail: "no room"}, 0, 0, w.now)
		if g.Phase() == gang.Queued {
			w.check.Fatalf("gang %s is queued, and was refused", p.gang)
		}
		return false
	}
	if room < need {
		room = len(members)
	}
	round := gang.Round{Members: members[:room], First: []types.UID{p.uid, members[0]}}
	if !slices.Contains(round.Members, p.uid) {
		round.Members[room-1] = p.uid
	}
	w.passed[p.gang] = map[gang.Template]bool{}
	if !g.Gather(round, w.now) {
		w.check.Fatalf("gang %s does not take a round of %d for %d", p.gang, room, need)
	}
	for _, uid := range round.Members {
		w.pods[uid].hint = w.hinted
	}
	return true
}

// hints is how many nodes are proposed to members that have none yet, but for one of them.
func (w *world) hints(but types.UID) (n int) {
	for _, p := range w.pods {
		if p.hint && w.gang(p.gang).RoundNumber() == 0 {
			p.hint = false
		}
		if p.hint && p.uid != but {
			n++
		}
	}
	return n
}

// outcome is what befalls a pod in a cycle.
type outcome int

const (
	fine outcome = iota
	refusedNode
	refusedHints // by a plugin of which the hints know nothing
	lateRefusal  // by a Permit plugin that comes after this one
	bindFails
	bindFailsButBinds
)

// fit ends the cycle that pop started, up to Permit.
func (w *world) fit(o outcome) bool {
	if w.config.Native {
		return w.submitNative(o)
	}
	p := w.pods[w.cycle]
	if p == nil || p.place != entered {
		return false
	}
	g := w.gang(p.gang)
	hints := w.hints(p.uid)
	if o == refusedHints && !p.hint {
		o = fine
	}
	if o == refusedHints || w.used()+hints >= w.capacity {
		phase, again := g.Phase(), p.hint
		p.hint = false
		if g.Unschedulable(p.uid, again, "no room", "no room", w.now) && phase == gang.Waiting {
			w.check.Fatalf("%s may preempt while others wait", p.uid)
		}
		p.noRoom = true
		w.comeBack(p, false)
		return true
	}
	p.hint = false
	p.noRoom = false
	if o == refusedNode {
		g.Unreserved(p.uid, w.now)
		w.comeBack(p, true)
		return true
	}
	wait, reason, _ := g.Permit(p.uid, "node", w.now)
	switch {
	case reason != gang.ReasonNone:
		g.Unreserved(p.uid, w.now)
		w.comeBack(p, false)
	case o == lateRefusal:
		g.Unreserved(p.uid, w.now)
		w.comeBack(p, true) // by the events of the plugin that refused it
	case wait:
		p.place = permitted
	default:
		p.place = preparing
		w.cycle = ""
	}
	return true
}

// list ends the cycle of a pod that waits.
func (w *world) list() bool {
	p := w.pods[w.cycle]
	if p == nil || p.place != permitted {
		return false
	}
	p.place = waiting
	w.cycle = ""
	if w.config.Native {
		w.endNative()
	}
	return true
}

// checkQuorum is invariant 4: whoever passes the barrier does so together with a quorum that is bound, or
// prepared and past it too, as far as can be known.
func (w *world) checkQuorum(name string, passed []types.UID) {
	n := 0
	for _, p := range w.pods {
		if p.gang == name && p.toldDone {
			n++
		} else if p.gang == name && p.toldLive && (p.place == binding || p.place == failing || p.place == postBind || p.toldBound) {
			n++
		}
	}
	if quorum := w.gangs[name].MinMember(); n < quorum || quorum < 1 {
		w.check.Fatalf("%v pass the barrier with %d of %d members", passed, n, quorum)
	}
}

// The binding cycles.

// unreserve ends the binding cycle of a pod that was rejected or could not be bound.
func (w *world) unreserve(p *pod) {
	byError := p.place == failing || p.place == stopped
	p.place = nowhere
	w.gang(p.gang).Unreserved(p.uid, w.now)
	if w.config.Native {
		p.place, p.unreserved = returning, w.now
	} else {
		w.comeBack(p, byError)
	}
	w.roomOf(p.gang)
}

// prepare ends what other plugins do to a pod before its bind.
func (w *world) prepare(p *pod, o outcome) {
	if o != fine {
		p.place = stopped
		return
	}
	p.place = barrier
	g := w.gang(p.gang)
	if commit := g.Arrive(p.uid, w.now); len(commit) > 0 {
		var sure, lost []types.UID
		for _, uid := range commit {
			if w.pods[uid].place == barrier {
				sure = append(sure, uid)
			} else {
				lost = append(lost, uid)
			}
		}
		g.Commit(sure, lost, w.now)
	}
	w.answer()
}

// answer takes those away from the barrier for whom their gangs have decided.
func (w *world) answer() {
	passed := map[string][]types.UID{}
	for _, p := range w.at(barrier) {
		switch arrival, detail := w.gang(p.gang).ArrivalOf(p.uid); arrival {
		case gang.ArrivalPass:
			p.place = binding
			passed[p.gang] = append(passed[p.gang], p.uid)
		case gang.ArrivalRefused:
			if detail == "" {
				w.check.Fatalf("%s is refused at the barrier without a word", p.uid)
			}
			p.place = stopped
		}
	}
	for name, uids := range passed {
		w.checkQuorum(name, uids)
	}
}

// bind ends a binding cycle; a bound pod's PostBind comes later.
func (w *world) bind(p *pod, o outcome) {
	p.place = failing
	if !p.exists || o == bindFails {
		return
	}
	p.bound = true
	w.announce(p)
	if o != bindFailsButBinds {
		p.place = postBind
	}
}

func (w *world) bound(p *pod) {
	p.toldBound = p.toldLive
	w.gang(p.gang).Bound(p.uid, w.now)
	p.place = nowhere
}

// at lists the pods at a place, in the order of their creation.
func (w *world) at(where place) []*pod {
	var ps []*pod
	for _, uid := range w.order {
		if w.pods[uid].place == where {
			ps = append(ps, w.pods[uid])
		}
	}
	return ps
}

// The plugin's worker.

// act carries out what the gangs decide, and returns when they are to be asked again.
func (w *world) act() (did bool, next time.Time) {
	for _, name := range slices.Sorted(maps.Keys(w.gangs)) {
		g := w.gangs[name]
		g.Admit(w.now)
		valid, closed := g.MinMember() >= 1, g.Closed()
		a := g.Act(w.now)
		if closed && !g.Closed() {
			w.noteOpened(name, valid)
		}
		// The gang keeps no order, and a run is to be repeated as it was.
		slices.Sort(a.Reject)
		slices.Sort(a.Probe)
		slices.SortFunc(a.Rehearse, func(x, y gang.Rehearsal) int { return strings.Compare(string(x.UID), string(y.UID)) })
		if slices.Contains(a.Rollbacks, "") {
			w.check.Fatalf("rollback without a cause: %v", a.Rollbacks)
		}
		if !a.Next.IsZero() && !a.Next.After(w.now) {
			w.check.Fatalf("%s is to be looked at again at %v, which is not after %v", name, a.Next, w.now)
		}
		w.rollbacks[name] += len(a.Rollbacks)
		for _, uid := range a.Reject {
			switch p := w.pods[uid]; p.place {
			case waiting:
				p.place = rejecting
				did = true
			case preparing, barrier:
				p.place = stopped
				did = true
			}
		}
		for _, r := range a.Rehearse {
			template := w.pods[r.UID].template
			if w.passed[name][template] {
				w.check.Fatalf("%s is rehearsed, and a copy of it has passed", r.UID)
			}
			for _, other := range w.rehearsals {
				if other.gang == name && w.pods[other.UID].template == template && g.Rehearsing(other.Rehearsal) {
					w.check.Fatalf("%s is rehearsed while %s is", r.UID, other.UID)
				}
			}
			w.rehearsals = append(w.rehearsals, running{name, r})
			did = true
		}
		for _, uid := range a.Reject {
			if where := w.pods[uid].place; where == binding || where == postBind {
				w.check.Fatalf("%s is to be rejected, and was let go", uid)
			}
		}
		var ready []types.UID
		for _, uid := range a.Probe {
			if w.pods[uid].place == waiting {
				ready = append(ready, uid)
			}
		}
		if released := g.Release(ready, w.now); len(released) > 0 {
			for _, uid := range released {
				if w.config.Rehearse && !w.passed[name][w.pods[uid].template] {
					w.check.Fatalf("%s is let go without a rehearsal of its template", uid)
				}
				w.pods[uid].place = preparing
			}
			did = true
		}
		slices.Sort(a.Activate)
		for _, uid := range a.Activate {
			before := w.pods[uid].place
			w.activate(w.pods[uid])
			did = did || w.pods[uid].place != before
		}
		if !a.Next.IsZero() && (next.IsZero() || a.Next.Before(next)) {
			next = a.Next
		}
	}
	return did, next
}

// verify checks what must be true between any two steps.
func (w *world) verify() {
	w.answer()
	for name, g := range w.gangs {
		_, nWaiting, nBound := g.Counts()
		told, done := 0, 0
		for _, p := range w.pods {
			if p.gang != name {
				continue
			}
			switch {
			case p.toldDone:
				done++
			case p.toldLive && p.toldBound:
				told++
			}
			if p.holds() != g.Holds(p.uid) {
				w.check.Fatalf("%s holds: %t, and its gang says %t", p.uid, p.holds(), g.Holds(p.uid))
			}
		}
		if nBound < told || nBound > told+done {
			w.check.Fatalf("gang %s counts %d bound members, there are %d, and %d have succeeded", name, nBound, told, done)
		}
		if phase := g.Phase(); phase != gang.Waiting && phase != gang.Releasing && phase != gang.Whole && nWaiting != 0 {
			w.check.Fatalf("gang %s is in %s, and %d members wait", name, phase, nWaiting)
		}
		if phase := g.Phase(); phase != gang.Gathering && phase != gang.Waiting && g.RoundNumber() != 0 {
			w.check.Fatalf("gang %s is in %s, and in a round", name, phase)
		}
		if phase := g.Phase(); phase != gang.Releasing && phase != gang.Whole && g.Preparing() != 0 {
			w.check.Fatalf("gang %s is in %s, and %d members are on their way to the barrier", name, phase, g.Preparing())
		}
	}
}

// run lets everything take its course without mishaps, for at most the given time, until done.
func (w *world) run(limit time.Duration, done func() bool) bool {
	end := w.now.Add(limit)
	for !w.now.After(end) {
		for progress := true; progress; {
			progress = false
			for deliver(&w.plugin) || deliver(&w.history) || deliver(&w.sched) {
				progress = true
			}
			for w.pop() || w.fit(fine) || w.list() {
				progress = true
			}
			for _, where := range []place{rejecting, stopped, failing} {
				for _, p := range w.at(where) {
					w.unreserve(p)
					progress = true
				}
			}
			for _, p := range w.at(returning) {
				w.requeue(p)
				progress = true
			}
			for w.rehearsed("") {
				progress = true
			}
			for _, p := range w.at(preparing) {
				w.prepare(p, fine)
				progress = true
			}
			for _, p := range w.at(binding) {
				w.bind(p, fine)
				progress = true
			}
			for _, p := range w.at(postBind) {
				w.bound(p)
				progress = true
			}
			did, _ := w.act()
			progress = progress || did || w.retryErrors()
			w.verify()
		}
		if done() {
			return true
		}
		_, next := w.act()
		for _, p := range w.at(backoffQ) {
			if next.IsZero() || p.retry.Before(next) {
				next = p.retry
			}
		}
		if next.IsZero() {
			return false // nothing will ever happen again
		}
		if !next.After(w.now) {
			next = w.now.Add(time.Millisecond)
		}
		w.now = next
	}
	return false
}
