package gang

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// What has to be repeated until it is seen to have worked is repeated after retryMin, then after
	// twice as long each time, up to retryMax.
	retryMin = 5 * time.Millisecond
	retryMax = time.Second
	// maxWakes bounds how often a member is activated that is not seen in a cycle: about ten seconds.
	// It may be in the active queue already, or be kept by another plugin, whose events then move it.
	maxWakes = 16
)

// retry spaces the repetitions of an action.
type retry struct {
	at    time.Time
	tries int
}

// start makes the action due at once.
func (r *retry) start(now time.Time) { *r = retry{at: now} }

// due reports whether the action is to be done now, and then sets the time of the next repetition.
func (r *retry) due(now time.Time) bool {
	if now.Before(r.at) {
		return false
	}
	pause := retryMax
	if r.tries < 8 {
		pause = min(retryMin<<r.tries, retryMax)
	}
	r.tries++
	r.at = now.Add(pause)
	return true
}

// Act returns what is to be done now, and when to ask again. It reports each rollback and each
// completion once, and repeats the other actions, at growing intervals, until inputs show that they
// have worked.
func (g *Gang) Act(now time.Time) Actions {
	g.settle(now)
	actions := g.report
	g.report = Actions{}

	next := func(t time.Time) {
		if actions.Next.IsZero() || t.Before(actions.Next) {
			actions.Next = t
		}
	}
	if g.complete() {
		if g.probe.due(now) {
			actions.Probe = g.inState(memberWaiting)
			actions.Probe = slices.DeleteFunc(actions.Probe, func(uid types.UID) bool { return !g.rehearsed(g.members[uid]) })
		}
		next(g.probe.at)
	}
	if g.prepared() {
		if g.commit.due(now) {
			actions.Commit = g.inState(memberPrepared)
		}
		next(g.commit.at)
	}
	if g.onTheClock() && (g.phase == Waiting || g.phase == Gathering) {
		next(g.deadline)
	}
	if g.preparing() > 0 && g.sure() < g.MinMember() && !g.prepareBy.IsZero() {
		next(g.prepareBy)
	}
	if g.phase == Backoff {
		next(g.until)
	}
	switch {
	case g.Stranded(now) && !g.stranded:
		g.stranded, actions.Stranded = true, true
	case !g.stranded && !g.partialSince.IsZero() && g.config.RecoveryTimeout > 0 && now.Before(g.strandedAt()):
		next(g.strandedAt())
	}
	admits := g.phase != Pending && g.phase != Backoff
	if admits && g.scouting() {
		// One is enough to make the plan, and the others would only be refused if there is none.
		admits = false
		if uid, m := g.pickScout(); m != nil && m.wake.tries < maxWakes {
			if g.planning.scout.due(now) {
				m.wake.tries++
				actions.Activate = append(actions.Activate, uid)
			}
			next(g.planning.scout.at)
		}
	}
	for uid, m := range g.members {
		if g.rehearse && m.state == memberWaiting && m.rehearsal == rehearsalDue {
			m.rehearsal = rehearsalRuns
			actions.Rehearse = append(actions.Rehearse, Rehearsal{uid, m.turn})
		}
		if m.holds && !m.going() {
			if m.reject.due(now) {
				actions.Reject = append(actions.Reject, uid)
			}
			next(m.reject.at)
		}
		if m.wanted && admits && m.wake.tries < maxWakes {
			if m.wake.due(now) {
				actions.Activate = append(actions.Activate, uid)
			}
			next(m.wake.at)
		}
	}
	return actions
}

// complete reports whether members wait although the quorum has a node, and the rehearsals that it needs.
func (g *Gang) complete() bool {
	waiting := g.count[memberWaiting]
	if !g.valid() || waiting == 0 || g.letGo()+waiting < g.spec.MinMember {
		return false
	}
	if g.rehearse {
		waiting = 0
		for _, m := range g.members {
			if m.state == memberWaiting && g.rehearsed(m) {
				waiting++
			}
		}
	}
	return waiting > 0 && g.letGo()+waiting >= g.spec.MinMember
}

func (g *Gang) inState(state memberState) []types.UID {
	uids := make([]types.UID, 0, g.count[state])
	for uid, m := range g.members {
		if m.state == state {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Release lets go those of uids that wait, if with them the quorum is complete, and returns them: each
// is to be allowed in Permit. uids are the members that the caller has seen waiting there for nothing
// but this gang. It returns nil, and changes nothing, when they do not complete the quorum.
func (g *Gang) Release(uids []types.UID, now time.Time) []types.UID {
	g.settle(now)
	if !g.complete() {
		return nil
	}
	var released []types.UID
	for _, uid := range uids {
		if m, known := g.members[uid]; known && m.state == memberWaiting && g.rehearsed(m) {
			released = append(released, uid)
		}
	}
	if g.letGo()+len(released) < g.spec.MinMember {
		return nil
	}
	for _, uid := range released {
		g.release(g.members[uid], now)
	}
	g.settle(now)
	return released
}
