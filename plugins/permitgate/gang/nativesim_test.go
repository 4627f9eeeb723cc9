package gang_test

import (
	"slices"
	"time"

	"zonewise.dev/plugins/permitgate/gang"
)

// nativeWorld is what kube-scheduler does with native gangs: its queue has whole groups, whose members are placed in
// one cycle and then submitted one after the other.
type nativeWorld struct {
	units  []*unit // the groups in the queue
	gang   string  // in the cycle; empty without one
	submit []*pod  // members that the cycle has placed, and that have still to be submitted
	// pending are members that came to the queue during the cycle.
	pending []*pod
}

// unit is the members of a group that are in the queue.
type unit struct {
	gang     string
	place    place // gated, active or backoffQ
	members  []*pod
	retry    time.Time // for backoffQ
	refused  bool      // the gang's gate keeps it
	reopened bool      // the gate has let it in since its last cycle
}

func (w *world) unit(name string) *unit {
	for _, u := range w.native.units {
		if u.gang == name {
			return u
		}
	}
	return nil
}

// enqueueNative adds a member to its group in the queue. One that is kept there asks no other.
func (w *world) enqueueNative(p *pod) {
	u := w.unit(p.gang)
	switch {
	case u != nil:
		u.members = append(u.members, p)
		p.place = u.place
		if u.place != gated {
			w.move(u, u.place)
		}
	case w.native.gang == p.gang:
		p.place = parked
		w.native.pending = append(w.native.pending, p)
	default:
		w.addUnit(p.gang, []*pod{p}, active)
	}
}

func (w *world) addUnit(name string, members []*pod, to place) {
	u := &unit{gang: name, members: members, retry: w.now.Add(time.Second)}
	w.native.units = append(w.native.units, u)
	w.move(u, to)
}

// move has a group enter a queue, if its members may.
func (w *world) move(u *unit, to place) {
	before := u.refused
	u.place, u.refused = to, false
	w.askMembers(u)
	u.reopened = u.reopened || before && !u.refused
	for _, p := range u.members {
		p.place, p.retry = u.place, u.retry
	}
}

// ask asks whether a member may enter the queue, and keeps its group out if not.
func (w *world) ask(u *unit, p *pod) (may bool) {
	w.inform(p)
	g := w.gang(u.gang)
	if reason, _, _ := g.Enqueue(p.uid, w.now); reason != gang.ReasonNone {
		u.refused = u.refused || g.Closed()
		u.place = gated
	} else if p.held {
		u.place = gated
	}
	return u.place != gated
}

// requeue ends the way of a member that has given back its node: it is in the queue.
func (w *world) requeue(p *pod) {
	p.place = nowhere
	if p.exists && !p.bound {
		w.enqueueNative(p)
	}
}

// checkAllBack is what keeps a rollback from repeating itself: the group is placed when no member is on its way back
// any more. The last step of that way takes the scheduler a moment; the gate does not wait for ever.
func (w *world) checkAllBack(u *unit) {
	for _, p := range w.pods {
		late := p.place == returning && p.exists && w.now.Sub(p.unreserved) < time.Second
		if p.gang == u.gang && (p.place == rejecting || p.place == stopped || late) {
			w.check.Fatalf("gang %s comes back without %s", u.gang, p.uid)
		}
	}
}

// noteOpened notes that a gate was opened by an Act. Without a valid PodGroup, of which kube-scheduler places no
// member, it waits for none.
func (w *world) noteOpened(name string, valid bool) {
	for _, p := range w.pods {
		if p.gang == name && !valid {
			p.unreserved = time.Time{}
		}
	}
}

// inform tells the plugin what its listers show of a pod that it does not know.
func (w *world) inform(p *pod) {
	g := w.gang(p.gang)
	if spec := w.groups[p.gang]; spec != nil && g.MinMember() == 0 {
		g.SetGroup(*spec, w.now)
	}
	if p.exists && !p.toldLive {
		p.toldLive, p.toldBound = true, p.bound
		g.SetPod(p.uid, gang.Pod{Bound: p.bound, Held: p.held && !p.bound, Template: p.template}, w.now)
	}
}

func (w *world) dequeueNative(p *pod) {
	switch p.place {
	case gated, active, backoffQ, parked:
		p.place = nowhere
	default:
		return
	}
	drop := func(other *pod) bool { return other == p }
	w.native.pending = slices.DeleteFunc(w.native.pending, drop)
	for _, u := range w.native.units {
		u.members = slices.DeleteFunc(u.members, drop)
	}
	w.native.units = slices.DeleteFunc(w.native.units, func(u *unit) bool { return len(u.members) == 0 })
	if u := w.unit(p.gang); u != nil && u.place == gated && !u.refused {
		w.move(u, active) // kube-scheduler's flush, which comes within minutes
	}
}

func (w *world) activateNative(name string) {
	switch u := w.unit(name); {
	case u == nil:
	case u.place == gated:
		w.move(u, active)
	case u.place == backoffQ: // its members were asked when it came there
		u.place = active
		for _, p := range u.members {
			p.place = active
		}
	}
}

// retryNative ends the backoff of groups, and lets other plugins' events ask for those that are kept.
func (w *world) retryNative() (moved bool) {
	for _, u := range w.native.units {
		if u.place == backoffQ && !u.retry.After(w.now) {
			w.activateNative(u.gang)
			moved = true
		}
	}
	return moved
}

// popNative runs the cycle of the first group: all members that fit are placed, if they are enough.
func (w *world) popNative() bool {
	at := slices.IndexFunc(w.native.units, func(u *unit) bool { return u.place == active })
	if w.native.gang != "" || at < 0 {
		return false
	}
	u := w.native.units[at]
	w.native.units = slices.Delete(w.native.units, at, at+1)
	w.now = w.now.Add(time.Millisecond)
	scheduled := 0
	for _, p := range w.pods {
		if p.gang == u.gang && (p.exists && p.bound || p.holds() || p.place == binding || p.place == failing) {
			scheduled++
		}
	}
	fit := max(0, min(len(u.members), w.capacity-w.used()))
	if !w.allBack(u) {
		fit = 0
	}
	if spec := w.groups[u.gang]; spec == nil || fit == 0 || scheduled+fit < spec.MinMember {
		w.addUnit(u.gang, u.members, backoffQ)
		return true
	}
	if u.reopened {
		w.checkAllBack(u)
	}
	w.native.gang, w.native.submit, w.native.pending = u.gang, u.members[:fit], u.members[fit:]
	for _, p := range w.native.submit {
		p.place = entered
	}
	for _, p := range w.native.pending {
		p.place = parked
	}
	return true
}

// submitNative takes the next of the placed members to Permit.
func (w *world) submitNative(o outcome) bool {
	if len(w.native.submit) == 0 || w.cycle != "" {
		return false
	}
	p := w.native.submit[0]
	w.native.submit = w.native.submit[1:]
	g := w.gang(p.gang)
	w.inform(p)
	if o == refusedNode || o == refusedHints {
		g.Unreserved(p.uid, w.now)
		w.comeBack(p, true)
		w.endNative()
		return true
	}
	before := g.RoundNumber()
	wait, reason, _ := g.Permit(p.uid, "node", w.now)
	if g.RoundNumber() != before {
		w.passed[p.gang] = map[gang.Template]bool{}
	}
	switch {
	case reason != gang.ReasonNone || o == lateRefusal:
		g.Unreserved(p.uid, w.now)
		w.comeBack(p, false)
	case wait:
		p.place, w.cycle = permitted, p.uid
		return true
	default:
		p.place = preparing
	}
	w.endNative()
	return true
}

// endNative ends the cycle when all have been submitted: the others come back to the queue at once.
func (w *world) endNative() {
	if len(w.native.submit) > 0 {
		return
	}
	name, pending := w.native.gang, w.native.pending
	w.native.gang, w.native.pending = "", nil
	if len(pending) > 0 {
		w.addUnit(name, pending, active)
	}
}
