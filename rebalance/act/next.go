package act

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// bindWithin is how long a pod in place of an evicted one may have no node, beside the time that the evicted one
	// takes to end.
	bindWithin = 5 * time.Minute
	// readyWithin is how much longer it may take to be ready.
	readyWithin = 10 * time.Minute
	// refusedWithin is how long the API server may refuse an eviction.
	refusedWithin = 5 * time.Minute
	// AskWithin is how long after a status is written the evictions are asked for that it says; the rest is left to
	// the next look. Two controllers may work at a time, and one of them may have stood still: what it has written is
	// then no longer true.
	AskWithin = 5 * time.Second
	// retryAfter is when a refused eviction is tried again.
	retryAfter = 10 * time.Second
	// PlanLife is how old a plan may be and still be carried out.
	PlanLife = time.Hour
	// clockSkew is how much the clock of the API server, from which pods have their time, may be behind.
	clockSkew = 10 * time.Second
	// longestStop is the longest time until a plan is made anew.
	longestStop = 24 * time.Hour
)

// Pod is what of a pod decides.
type Pod struct {
	UID types.UID
	// Name is the pod's, which that in place of a StatefulSet's pod has too.
	Name       string
	Controller types.UID
	// Node and Zone are empty while it has none that is seen. Nominated is the node that room is made on for it.
	Node, Zone, Nominated string
	Ready                 bool
	// Ending: it is being deleted, or has ended.
	Ending bool
	// Grace is how long it may take to end.
	Grace   time.Duration
	Created time.Time
	// Preempted is when it was made to give way to another pod; zero if it was not.
	Preempted time.Time
}

// Observed is what is seen of the cluster.
type Observed struct {
	Now time.Time
	// Hash is that of status.cluster.
	Hash string
	// Pods are those that moves name, those with the same controllers, members of gangs, and those that were preempted.
	Pods map[types.UID]Pod
	// Excess returns how many pods are more than the rules of a workload allow, and Stays why a pod may not be moved,
	// empty if it may.
	Excess func(workload string) int64
	Stays  func(uid types.UID) string
	// Follows says why the moves that are about to begin would not go as planned in the cluster as it is now, empty
	// if they would, and from when on it can be asked; zero is now.
	Follows func(moves []v1alpha1.RebalanceMove) (why string, from time.Time)
	// Gangs are those whose PodGroups ask for the eviction of their bound members, and those of moves.
	Gangs map[types.UID]Gang
	// Try finds out whether the API server would let all bound members of a gang be evicted, as the cluster is now. It
	// returns from when on it can, zero if it has. Tried has what was found last.
	Try   func(gang types.UID) (from time.Time)
	Tried func(gang types.UID) Tried
	// Held says why no further move may begin; empty if one may.
	Held string
}

// Step is what to do once the status is written.
type Step struct {
	// Evict are the moves whose pods are to be evicted.
	Evict []v1alpha1.RebalanceMove
	// Replan: nothing is under way, and a plan is to be made.
	Replan bool
	// Again is when to look again although nothing changes; zero is never.
	Again time.Time
	// Waits says in words what is waited for; empty if nothing is.
	Waits string
}

// next is one decision.
type next struct {
	*v1alpha1.ZoneRebalance
	*Observed
	step Step
}

// Next brings the status up to date and returns what to do.
func Next(r *v1alpha1.ZoneRebalance, o *Observed) Step {
	n := &next{ZoneRebalance: r, Observed: o}
	n.notePartlyBound()
	n.follow()
	n.forgetGangStop()
	if n.stopped() {
		drop(r)
	}
	switch {
	case n.underWay() > 0:
		n.noteWhy("moves that are under way")
	case n.stopped():
		n.again(r.Status.Stop.ResumesAt.Time)
		n.noteWhy("the end of the stop, " + r.Status.Stop.ResumesAt.UTC().Format(time.RFC3339))
	default:
		n.begin()
	}
	Prune(r, o.Now)
	return n.step
}

// follow looks at what has come of the moves that are under way. Those that are evicted come first: they may stop the
// plan, and then no further pod is evicted.
func (n *next) follow() {
	for i := range n.Status.Moves {
		if m := &n.Status.Moves[i]; m.State == v1alpha1.MoveEvicting && n.gone(m) {
			n.enter(m, v1alpha1.MoveEvicted)
		}
	}
	for i := range n.Status.Moves {
		if m := &n.Status.Moves[i]; m.State == v1alpha1.MoveEvicted && m.PodGroup == "" {
			n.followEvicted(m)
		}
	}
	n.followGangs()
	for i := range n.Status.Moves {
		if m := &n.Status.Moves[i]; m.State == v1alpha1.MoveEvicting {
			n.followEvicting(m)
		}
	}
}

// gone reports whether a pod is evicted, by whomever.
func (n *next) gone(m *v1alpha1.RebalanceMove) bool {
	pod, ok := n.Pods[m.UID]
	return !ok || pod.Ending
}

// followEvicting has a pod evicted that still runs.
func (n *next) followEvicting(m *v1alpha1.RebalanceMove) {
	g, exists := n.Gangs[m.PodGroup]
	switch {
	case n.Spec.Mode != v1alpha1.RebalanceEvict:
		m.Why = "the mode is not Evict any more"
		n.enter(m, v1alpha1.MoveRefused)
	case n.stopped() || m.PodGroup != "" && n.gangsStopped():
		m.Why = "the plan was stopped"
		n.enter(m, v1alpha1.MoveRefused)
	case m.PodGroup != "" && !exists:
		m.Why = "the PodGroup is gone"
		n.enter(m, v1alpha1.MoveRefused)
	case n.whole(m.PodGroup):
		m.Why = "the gang is whole by now"
		n.enter(m, v1alpha1.MoveRefused)
	case g.Stays != "":
		m.Why = ShortReason(g.Stays)
		n.enter(m, v1alpha1.MoveRefused)
	case n.Now.Sub(m.Begun.Time) > refusedWithin:
		n.stop(v1alpha1.ReasonEvictionRefused, m, cmp.Or(m.Why, "its eviction was not answered"))
		n.enter(m, v1alpha1.MoveRefused)
	default:
		if why := n.whyNotMoved(m); why != "" {
			m.Why = ShortReason(why)
			n.enter(m, v1alpha1.MoveRefused)
			return
		}
		n.step.Evict = append(n.step.Evict, *m)
		n.step.Waits = "the eviction of " + m.Namespace + "/" + m.Name
		n.again(n.Now.Add(retryAfter))
	}
}

// whyNotMoved says why a pod is not to be moved as planned; empty if it is. For a member of a gang it is empty: its
// gang decides.
func (n *next) whyNotMoved(m *v1alpha1.RebalanceMove) string {
	switch pod, exists := n.Pods[m.UID]; {
	case m.PodGroup != "":
		return ""
	case !exists || pod.Ending:
		return "is gone"
	case pod.Zone != m.From:
		return "is not in zone " + m.From
	}
	if why := n.Stays(m.UID); why != "" {
		return why
	}
	if n.Excess(m.Workload) == 0 {
		return "is not too many any more"
	}
	return ""
}

// followEvicted looks for the pod in place of one that is evicted.
func (n *next) followEvicted(m *v1alpha1.RebalanceMove) {
	_, ends := n.Pods[m.UID]
	planned, other := n.replacements(m)
	best := slices.IndexFunc(planned, func(p Pod) bool { return p.Ready })
	preempted := n.preemptedFor(slices.Concat(planned, other))
	switch {
	case preempted != "":
		n.fail(v1alpha1.ReasonPreemption, m, fmt.Sprintf(
			"pod %s was preempted on the node of the pod in its place", preempted,
		))
	case best >= 0 && n.Excess(m.Workload) < m.Excess:
		m.ReplacedBy = planned[best].UID
		m.Why = "runs in zone " + planned[best].Zone + " as " + planned[best].Name
		n.enter(m, v1alpha1.MoveMoved)
		n.finishRound()
	case best >= 0 && !ends:
		n.fail(v1alpha1.ReasonNotBetter, m, fmt.Sprintf("%s runs in zone %s, and still %d pods of %s are too many",
			planned[best].Name, planned[best].Zone, n.Excess(m.Workload), m.Workload))
	case len(planned) > 0 && n.Now.After(m.Due.Add(readyWithin)):
		n.fail(v1alpha1.ReasonPodNotReady, m, fmt.Sprintf("%s in its place is not ready", planned[0].Name))
	case len(planned) == 0 && n.allBound(other):
		n.fail(v1alpha1.ReasonOtherZone, m, fmt.Sprintf(
			"%s in its place is in zone %s, not in %s", other[0].Name, other[0].Zone, strings.Join(m.To, " or "),
		))
	case len(planned) == 0 && n.Now.After(m.Due.Time):
		n.fail(v1alpha1.ReasonNotBound, m, "no pod in its place has a node")
	default:
		n.step.Waits = "the pod in place of " + m.Namespace + "/" + m.Name
		if len(planned) > 0 {
			n.again(m.Due.Add(readyWithin + time.Second))
		} else {
			n.again(m.Due.Add(time.Second))
		}
	}
}

// replacements are the pods that may be in place of an evicted one: in zones of the plan, and elsewhere or nowhere.
func (n *next) replacements(m *v1alpha1.RebalanceMove) (planned, other []Pod) {
	taken := n.replacedBy()
	for uid, pod := range n.Pods {
		switch {
		case uid == m.UID || taken[uid] || pod.Controller != m.Controller || pod.Ending ||
			pod.Created.Before(m.Begun.Add(-clockSkew)):
		case pod.Node != "" && slices.Contains(m.To, pod.Zone):
			planned = append(planned, pod)
		default:
			other = append(other, pod)
		}
	}
	byName := func(a, b Pod) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(planned, byName)
	slices.SortFunc(other, byName)
	return planned, other
}

func (n *next) allBound(pods []Pod) bool {
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p Pod) bool { return p.Node == "" })
}

// preemptedFor names a pod that has given way on the node of another one, since that was made.
func (n *next) preemptedFor(made []Pod) string {
	for _, victim := range n.Pods {
		if victim.Preempted.IsZero() || victim.Node == "" {
			continue
		}
		for _, p := range made {
			if (victim.Node == p.Node || victim.Node == p.Nominated) && !victim.Preempted.Before(p.Created) {
				return victim.Name
			}
		}
	}
	return ""
}

// fail ends a move that has not gone as planned, and stops the plan, or for a member of a gang the evictions of gangs.
func (n *next) fail(reason string, m *v1alpha1.RebalanceMove, why string) {
	m.Why = ShortReason(why)
	n.stop(reason, m, why)
	n.enter(m, v1alpha1.MoveFailed)
}

// stop stops what a move belongs to. Of several reasons at once the first counts.
func (n *next) stop(reason string, m *v1alpha1.RebalanceMove, why string) {
	stop := &n.Status.Stop
	if m.PodGroup != "" {
		stop = &n.Status.GangStop
	}
	note(n.ZoneRebalance, stop, reason, fmt.Sprintf("pod %s/%s: %s", m.Namespace, m.Name, why), n.Now)
}

// Stop drops what is left of a plan and says until when none is made.
func Stop(r *v1alpha1.ZoneRebalance, reason, message string, now time.Time) {
	note(r, &r.Status.Stop, reason, message, now)
	drop(r)
}

// note says what has stopped a plan, or the evictions of gangs, and until when, unless that is said already.
func note(r *v1alpha1.ZoneRebalance, stop **v1alpha1.RebalanceStop, reason, message string, now time.Time) {
	times := int64(1)
	if last := *stop; last != nil {
		if lasts(r, last, now) {
			return
		}
		times = last.Times + 1
	}
	pause := Cooldown(r)
	for range min(times, 12) - 1 {
		pause = min(2*pause, longestStop)
	}
	*stop = &v1alpha1.RebalanceStop{
		Reason: reason, Message: shortened(message, maxMessage), At: second(now), ResumesAt: second(now.Add(pause)),
		Generation: r.Generation, Times: times,
	}
}

// drop forgets the moves that have not begun.
func drop(r *v1alpha1.ZoneRebalance) {
	planned := func(m v1alpha1.RebalanceMove) bool { return m.State == v1alpha1.MovePlanned }
	r.Status.Moves = slices.DeleteFunc(slices.Clone(r.Status.Moves), planned)
}

// stopped reports whether no plan is carried out now, and gangsStopped whether no gang is evicted although one could
// be.
func (n *next) stopped() bool { return Stopped(n.ZoneRebalance, n.Now) }

func (n *next) gangsStopped() bool { return GangsStopped(n.ZoneRebalance, n.Now) }

// Stopped reports whether the stop of a plan lasts. No gang is evicted then, either.
func Stopped(r *v1alpha1.ZoneRebalance, now time.Time) bool { return lasts(r, r.Status.Stop, now) }

// GangsStopped reports whether a stop of the evictions of gangs lasts. Other moves go on.
func GangsStopped(r *v1alpha1.ZoneRebalance, now time.Time) bool {
	return lasts(r, r.Status.GangStop, now)
}

func lasts(r *v1alpha1.ZoneRebalance, s *v1alpha1.RebalanceStop, now time.Time) bool {
	return s != nil && !s.Resumed && s.Generation == r.Generation && now.Before(s.ResumesAt.Time)
}

// enter gives a move another state.
func (n *next) enter(m *v1alpha1.RebalanceMove, state v1alpha1.RebalanceMoveState) {
	enter(m, state, n.Now)
}

func enter(m *v1alpha1.RebalanceMove, state v1alpha1.RebalanceMoveState, now time.Time) {
	if state == v1alpha1.MoveEvicted { // the time for its replacement begins
		m.Due = second(now.Add(m.Due.Sub(m.Begun.Time)))
	}
	m.State, m.At = state, second(now)
}

// finishRound forgets an earlier stop when a plan has been carried out.
func (n *next) finishRound() {
	if n.underWay() == 0 && n.left() == 0 && n.Status.Complete {
		n.Status.Stop = nil
	}
}

func (n *next) underWay() (moves int) { return UnderWay(n.ZoneRebalance) }

// UnderWay counts the moves that have begun and are not over.
func UnderWay(r *v1alpha1.ZoneRebalance) (moves int) {
	for i := range r.Status.Moves {
		if m := &r.Status.Moves[i]; m.State == v1alpha1.MoveEvicting || m.State == v1alpha1.MoveEvicted {
			moves++
		}
	}
	return moves
}

func (n *next) left() int { return Left(n.ZoneRebalance) }

// Left counts the moves that have not begun.
func Left(r *v1alpha1.ZoneRebalance) (moves int) {
	for i := range r.Status.Moves {
		if r.Status.Moves[i].State == v1alpha1.MovePlanned {
			moves++
		}
	}
	return moves
}

// begin begins the evictions of a gang that is bound in part, or else the next moves of the plan, if it is still that
// of this cluster.
func (n *next) begin() {
	if n.Held != "" {
		n.step.Waits = n.Held
		n.noteWhy(n.Held)
		return
	}
	if end := n.mayBeAskedUntil(); n.Now.Before(end) {
		n.step.Waits = "evictions that another replica of the controller may be asking for"
		n.noteWhy(n.step.Waits)
		n.again(end)
		return
	}
	var gang *Gang
	waits := ""
	if n.gangsStopped() {
		n.again(n.Status.GangStop.ResumesAt.Time)
		n.noteWhy("the end of the stop, " + n.Status.GangStop.ResumesAt.UTC().Format(time.RFC3339))
	} else {
		gang, waits = n.dueGang()
	}
	switch {
	case gang != nil:
		n.beginGang(gang)
	case n.left() == 0 || n.Spec.Mode != v1alpha1.RebalanceEvict || n.Status.Cluster.Hash != n.Hash ||
		n.Now.Sub(n.Status.PlannedAt.Time) > PlanLife:
		n.step.Replan = true
	case waits != "":
		n.step.Waits = waits
	default:
		n.beginBatch()
	}
}

// mayBeAskedUntil returns until when the eviction of a pod may be asked for by a controller that has read the
// status before its move was refused.
func (n *next) mayBeAskedUntil() (end time.Time) {
	for i := range n.Status.Moves {
		m := &n.Status.Moves[i]
		if until := m.At.Add(AskWithin + time.Second); m.State == v1alpha1.MoveRefused && until.After(end) {
			end = until
		}
	}
	return end
}

// beginBatch begins as many moves of the first batch as the budget allows.
func (n *next) beginBatch() {
	room, free := n.roomThisHour()
	if room <= 0 {
		n.step.Waits = fmt.Sprintf("the hour: maxPerHour is %d", MaxPerHour(n.ZoneRebalance))
		n.again(free)
		return
	}
	room = min(room, int(ptr.Deref(n.Spec.MaxAtOnce, v1alpha1.DefaultMaxAtOnce)))
	batch := int64(0)
	var begun []*v1alpha1.RebalanceMove
	for i := range n.Status.Moves {
		m := &n.Status.Moves[i]
		if m.State != v1alpha1.MovePlanned {
			continue
		}
		batch = cmp.Or(batch, m.Batch)
		if m.Batch != batch || len(begun) == room {
			break
		}
		if n.whyNotMoved(m) != "" {
			n.step.Replan = true // the cluster is not that of the plan any more
			return
		}
		if young, old := n.youngSibling(m); young != "" {
			n.step.Waits = "pod " + m.Namespace + "/" + young + ", which could be taken for the one in place of " + m.Name
			n.again(old)
			return
		}
		begun = append(begun, m)
	}
	if !n.follows(begun) {
		return
	}
	for _, m := range begun {
		n.enter(m, v1alpha1.MoveEvicting)
		m.Begun, m.Due = m.At, second(n.Now.Add(n.Pods[m.UID].Grace+bindWithin))
		m.Excess = n.Excess(m.Workload)
		n.step.Evict = append(n.step.Evict, *m)
	}
	n.step.Waits = "the eviction of " + begun[0].Namespace + "/" + begun[0].Name
	n.again(n.Now.Add(retryAfter))
}

// follows reports whether the cluster as it is now would follow moves of the plan. Otherwise there is to be another
// plan.
func (n *next) follows(moves []*v1alpha1.RebalanceMove) bool {
	asked := make([]v1alpha1.RebalanceMove, 0, len(moves))
	for _, m := range moves {
		asked = append(asked, *m)
	}
	why, from := n.Follows(asked)
	switch {
	case !from.IsZero():
		n.step.Waits = "the copy of the cluster on which its next moves are tried"
		n.again(from)
	case why != "":
		n.Status.Cluster.Hash = "" // it is for another cluster
		n.step.Replan = true
	default:
		return true
	}
	return false
}

// youngSibling names a pod of the controller that is so young that it would be taken for the one in place of the
// evicted pod, and returns from when on it would not; empty if there is none.
func (n *next) youngSibling(m *v1alpha1.RebalanceMove) (name string, old time.Time) {
	now := second(n.Now)
	taken := n.replacedBy()
	for uid, pod := range n.Pods {
		if pod.Controller != m.Controller || uid == m.UID || taken[uid] || pod.Ending ||
			pod.Created.Before(now.Add(-clockSkew)) {
			continue
		}
		end := pod.Created.Add(clockSkew + time.Second)
		// the same one each time, or the status changes with each look
		if end.After(old) || end.Equal(old) && pod.Name < name {
			name, old = pod.Name, end
		}
	}
	return name, old
}

// replacedBy are the pods that are in place of moved ones.
func (n *next) replacedBy() map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range n.Status.Moves {
		if uid := n.Status.Moves[i].ReplacedBy; uid != "" {
			out[uid] = true
		}
	}
	return out
}

// roomThisHour is how many moves may begin, and if there are none, when one may.
func (n *next) roomThisHour() (moves int, free time.Time) {
	moves = int(MaxPerHour(n.ZoneRebalance))
	for i := range n.Status.Moves {
		m := &n.Status.Moves[i]
		if m.State == v1alpha1.MovePlanned || !counts(m, n.Now) {
			continue
		}
		moves--
		if end := m.At.Add(time.Hour + time.Second); free.IsZero() || end.Before(free) {
			free = end
		}
	}
	return moves, free
}

// counts reports whether a move that has begun counts among those of this hour. Times are of whole seconds.
func counts(m *v1alpha1.RebalanceMove, now time.Time) bool {
	return now.Sub(m.At.Time) <= time.Hour+time.Second
}

// again asks to look again at a time.
func (n *next) again(at time.Time) {
	if n.step.Again.IsZero() || at.Before(n.step.Again) {
		n.step.Again = at
	}
}

// Record enters what the API server has answered to the eviction of a pod: nil is that it ends, or is gone.
func Record(r *v1alpha1.ZoneRebalance, uid types.UID, refused error, now time.Time) {
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		switch {
		case m.UID != uid || m.State != v1alpha1.MoveEvicting:
		case refused != nil:
			m.Why = ShortReason(refused.Error())
		default:
			m.Why = ""
			enter(m, v1alpha1.MoveEvicted, now)
		}
	}
}

// second is a time as the API server keeps it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// How many bytes the API lets a reason have, and a message.
const (
	maxReason  = 512
	maxMessage = 1024
)

// ShortReason returns a text that fits status.moves and status.stays.
func ShortReason(text string) string { return shortened(text, maxReason) }

// shortened returns a text, cut between two characters if it is too long.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
