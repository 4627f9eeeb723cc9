package worlds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/crdtest"
)

// The invariants, by the names of which failures speak.
const (
	NoPanic             = "NoPanic"             // no object and no order of events ends the process
	NoOvercommit        = "NoOvercommit"        // allocated never exceeds allocatable through this scheduler
	HeldRoomIsThere     = "HeldRoomIsThere"     // what a status says is held fits beside the pods of its node
	HeldRoomIsKept      = "HeldRoomIsKept"      // a pod that may not use slots leaves room for as many as are held
	FreedRoomIsSlots    = "FreedRoomIsSlots"    // room of which a reservation is short goes to no other pod
	RoomIsHeld          = "RoomIsHeld"          // a reservation is not short of slots while there is room for one
	GangsBindWhole      = "GangsBindWhole"      // a gang is bound whole or not at all
	GangsHoldNothing    = "GangsHoldNothing"    // a gang that waits holds nothing for more than a tenth of the time
	WhatFitsIsBound     = "WhatFitsIsBound"     // a pod or a gang that fits does not wait
	VictimsGo           = "VictimsGo"           // a pod or a gang that would fit without pods of a lower priority does not wait
	EvictionsEnd        = "EvictionsEnd"        // a cluster at rest stays as it is: what has found its place is not evicted
	LedgerIsCluster     = "LedgerIsCluster"     // once events have settled, the ledger has the pods and the sums of the scheduler's own cache
	SpreadHolds         = "SpreadHolds"         // a pod is given a node only where its own hard constraint admits it
	CountsAreRecounts   = "CountsAreRecounts"   // what ZoneSpread counts in a cycle is what a recount of the cycle's pods says
	RestChangesNothing  = "RestChangesNothing"  // a restart at rest changes no decision
	DevicesAreUsedOnce  = "DevicesAreUsedOnce"  // a device is allocated to one ResourceClaim, whose pods are bound to the device's node
	DevicesAreGivenBack = "DevicesAreGivenBack" // a gang that waits leaves no device allocated
	CertificatesHold    = "CertificatesHold"    // after the loss of a zone all pods run again of which a certificate said so
	MovesEnd            = "MovesEnd"            // a cluster at rest in which all moves of plans are made has soon nothing to move, and no fewer pods run
	AttemptsAreBounded  = "AttemptsAreBounded"  // a cluster at rest causes few scheduling cycles
)

// Limits of how long something that should happen may take.
const (
	// podWaits is for a pod that fits: its backoff, a sweep, a status.
	podWaits = 90 * time.Second
	// flushed is after how long kube-scheduler tries a pod again about which it has heard nothing: it looks every half
	// minute.
	flushed = 5*time.Minute + 30*time.Second
	// podWaitsBesideCollectors is the same where a gang may collect room, and then leaves it to others for as long.
	podWaitsBesideCollectors = 11 * time.Minute
	// gangWaits is for a gang that fits: ten times the longest round of others, and its backoff.
	gangWaits = 13 * time.Minute
	// victimsGo is for what needs victims: grace periods, and five minutes for those that did not go.
	victimsGo = 15 * time.Minute
	// evictionsEnd is how long pods may be evicted in a cluster at rest: for gangs that wait for long, too.
	evictionsEnd = 12 * time.Minute
	// shortFor is how long a reservation must have been short before its room counts as owed.
	shortFor = 15 * time.Second
	// idleFor is how long room may be idle while a reservation is short.
	idleFor = 90 * time.Second
)

// invariants is what the checks remember.
type invariants struct {
	reservations map[string]Reservation
	policies     map[string]Policy
	atRest       bool
	restsFrom    time.Time            // when that began
	collects     *atomic.Bool         // some gang has begun to collect room
	made         map[string]time.Time // when reservations were made
	debts        []debt
	leftDevices  map[string]time.Time            // since when ResourceClaims of gangs that wait have a device
	nominated    map[string]bool                 // nodes to which pods were nominated at the last look
	short        map[string]map[string]time.Time // since when a reservation is short, by zone
	overheld     map[string]time.Time            // since when nodes have less room than the statuses say
	idle         map[string]time.Time            // since when it is short although there is room, by reservation and zone
	fits         map[string]time.Time            // since when a pod or a gang has fitted without a break
	preempts     map[string]time.Time            // the same with victims
	choosesAnew  bool                            // see Report
	// devicesMoved are the last two nodes of the devices of ResourceClaims.
	devicesMoved      map[string]move
	reservesElsewhere bool // see Report
}

func newInvariants() invariants {
	return invariants{
		devicesMoved: map[string]move{}, nominated: map[string]bool{}, overheld: map[string]time.Time{}, reservations: map[string]Reservation{}, policies: map[string]Policy{}, made: map[string]time.Time{}, collects: &atomic.Bool{},
		short: map[string]map[string]time.Time{}, idle: map[string]time.Time{}, fits: map[string]time.Time{}, preempts: map[string]time.Time{},
	}
}

// check checks what must be true whenever there is nothing left to do at this time.
func (p *player) check() {
	c := p.view()
	p.noteNominations(c)
	p.checkNodes(c)
	p.checkShort(c)
	p.checkGangs(c)
	p.checkFits(c)
	p.checkHoldings(c)
	p.checkDevices(c)
	p.checkDebts(c)
	if p.atRest {
		p.checkHeld(c)
	}
}

// checkNodes: no node has more than it can have.
func (p *player) checkNodes(c *view) {
	for _, n := range c.nodes {
		if n.used > n.CPU {
			p.fail(NoOvercommit, "node %s has %d CPUs, and pods for %d", n.Name, n.CPU, n.used)
		}
	}
}

// status returns what a reservation says is held.
func (p *player) status(name string) v1alpha1.ZoneReservationStatus {
	object, _ := crdtest.Get(p.custom, &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return object.Status
}

func (p *player) heldByReservation() map[string]int64 {
	held := map[string]int64{}
	for name := range p.reservations {
		for _, zone := range p.status(name).Zones {
			held[name] += zone.Held
		}
	}
	return held
}

// checkHeld: at rest, all that is held on a node by what the statuses say fits beside its pods, but for what outranks
// it, as soon as the statuses are written.
func (p *player) checkHeld(c *view) {
	if time.Since(p.changedAt) < settling {
		clear(p.overheld)
		return
	}
	for _, n := range c.nodes {
		if n.used+n.heldFrom(minPriority, "") <= n.CPU {
			delete(p.overheld, n.Name)
			continue
		}
		if p.overheld[n.Name].IsZero() {
			p.overheld[n.Name] = time.Now()
		}
		if time.Since(p.overheld[n.Name]) > statusDelay {
			p.fail(HeldRoomIsThere, "node %s has %d CPUs, pods for %d, and %s say that they hold %d beside these", n.Name, n.CPU, n.used, n.holders(), n.heldFrom(minPriority, ""))
		}
	}
}

// forgetDebts is called when a node of a zone may have no slots any more: those that it had are lacking instead.
func (p *player) forgetDebts(zone string) {
	p.debts = slices.DeleteFunc(p.debts, func(d debt) bool { return d.zone == zone })
}

func (p *player) forgetShort(reservation string) {
	delete(p.short, reservation)
	p.debts = slices.DeleteFunc(p.debts, func(d debt) bool { return d.reservation == reservation })
}

// checkShort notes which reservations are short in which zones, and finds room that they could have.
func (p *player) checkShort(c *view) {
	now := time.Now()
	for name, r := range p.reservations {
		known := p.short[name]
		p.short[name] = map[string]time.Time{}
		if !p.lacksSlots(name) { // some of its slots are in other zones than desired
			maps.DeleteFunc(p.idle, func(key string, _ time.Time) bool { return strings.HasPrefix(key, name+"/") })
			continue
		}
		for _, zone := range p.status(name).Zones {
			if zone.Held >= zone.Desired {
				delete(p.idle, name+"/"+zone.Name)
				continue
			}
			since, before := known[zone.Name]
			if !before {
				since = now
			}
			p.short[name][zone.Name] = since
			node := c.roomForSlot(r, zone.Name)
			if node == nil || now.Sub(p.changedAt) < idleFor {
				delete(p.idle, name+"/"+zone.Name)
				continue
			}
			if p.idle[name+"/"+zone.Name].IsZero() {
				p.idle[name+"/"+zone.Name] = now
			}
			if lasts := now.Sub(p.idle[name+"/"+zone.Name]); lasts > idleFor {
				p.fail(RoomIsHeld, "%s holds %d of %d slots in zone %s, and for %v node %s has had room for one", name, zone.Held, zone.Desired, zone.Name, lasts, node.Name)
			}
		}
	}
}

// lacksSlots reports whether fewer slots are held than desired, in all zones together.
func (p *player) lacksSlots(reservation string) bool {
	var held, desired int64
	for _, zone := range p.status(reservation).Zones {
		held, desired = held+zone.Held, desired+zone.Desired
	}
	return held < desired
}

// checkBind is called when the API server has just bound a pod: it must not have taken room that a reservation was
// short of.
func (p *player) checkBind(podName string) {
	c := p.view()
	pod := c.pod(podName)
	if pod == nil {
		return
	}
	n := c.byName[pod.Spec.NodeName]
	if n == nil || !n.usable() || n.Pool != "" {
		return
	}
	decided, known := p.decisionsSoFar()[pod.UID]
	if !known {
		return
	}
	// The oldest reservation that is short in the zone is to have a slot there now, or as soon as its status is
	// written. What younger ones are owed depends on that, and is not asked.
	for _, r := range p.byAge() {
		since, short := p.short[r.Name][n.Zone]
		status, known := zoneOf(p.status(r.Name), n.Zone)
		if !short || !known || status.Held >= status.Desired {
			if !known || status.Held < status.Desired || p.lacksSlots(r.Name) {
				return // it may be given slots here that it lacks, or holds, elsewhere
			}
			continue
		}
		free := decided.free - n.heldFrom(minPriority, "")
		switch {
		case time.Since(since) < shortFor, r.SlotsPerNode > 0, p.ownerOf(pod) != "", priorityOf(pod) > r.Priority:
		case c.fractionReached(n.Zone, r.CPU), free < r.CPU:
		case pod.Status.NominatedNodeName == n.Name, n.nominated > 0, p.nominated[n.Name]: // room that is kept for pods, which comes and goes while cycles run
			// Nor is it asked of owners, which may use slots of their own whose status is not written yet.
		default:
			p.debts = append(p.debts, debt{
				reservation: r.Name, zone: n.Zone, missing: status.Desired - status.Held, since: decided.at, until: time.Now().Add(statusDelay),
				node: n.Name, spare: free - r.CPU, others: n.heldFrom(minPriority, r.Name),
				message: fmt.Sprintf("pod %s of priority %d took room on %s, of which %s had been short for %v", podName, priorityOf(pod), n.Name, r.Name, time.Since(since)),
			})
		}
		return
	}
}

// noteNominations notes to which nodes pods are nominated.
func (p *player) noteNominations(c *view) {
	clear(p.nominated)
	for _, n := range c.nodes {
		if n.nominated > 0 {
			p.nominated[n.Name] = true
		}
	}
}

// byAge returns the reservations, the oldest first, as they are given room.
func (p *player) byAge() []Reservation {
	return slices.SortedFunc(maps.Values(p.reservations), func(a, b Reservation) int {
		return cmp.Or(p.made[a.Name].Compare(p.made[b.Name]), cmp.Compare(a.Name, b.Name))
	})
}

// ownerOf returns the reservation that a pod belongs to, the oldest that selects it; "" without one.
func (p *player) ownerOf(pod *v1.Pod) string {
	owner := ""
	for name, r := range p.reservations {
		if r.App != pod.Labels["app"] {
			continue
		}
		if owner == "" || cmp.Or(p.made[name].Compare(p.made[owner]), cmp.Compare(name, owner)) < 0 {
			owner = name
		}
	}
	return owner
}

// debt is room that a reservation may not have been given.
type debt struct {
	reservation, zone string
	missing           int64     // slots, when a pod took the room
	since             time.Time // when it was given the room
	until             time.Time
	message           string
	// node is where the room was, spare how many CPUs it had beyond a slot, and others what statuses said that other
	// reservations held there.
	node          string
	spare, others int
}

// statusDelay is how old a status may be.
const statusDelay = 12 * time.Second

// takenSince returns how many slots of a reservation may have been taken since a time by pods that may use them, its
// owners and those that outrank it: on a node or, for "", in any zone, since what one has no room for is held in others.
func (p *player) takenSince(reservation string, since time.Time, node string) (slots int64) {
	r := p.reservations[reservation]
	for _, given := range p.decisionsSoFar() {
		mayUse := p.ownerOf(given.pod) == r.Name || priorityOf(given.pod) > r.Priority
		if mayUse && !given.at.Before(since) && (node == "" || node == given.node) {
			slots += int64((requestOf(given.pod) + r.CPU - 1) / r.CPU)
		}
	}
	return slots
}

// othersHad reports whether other reservations may have held so much that the node had no room for the slot, or the zone
// no more of what may be held. Where room becomes free bit by bit, those with smaller slots get it, and the status that
// says so may have been written later.
func (p *player) othersHad(d *debt, c *view) bool {
	n := c.byName[d.node]
	if n == nil {
		return true
	}
	more := n.heldFrom(minPriority, d.reservation) - d.others
	for name, r := range p.reservations {
		if name != d.reservation {
			more += int(p.takenSince(name, d.since, d.node)) * r.CPU
		}
	}
	return more > d.spare || more > 0 && c.fractionReached(d.zone, p.reservations[d.reservation].CPU)
}

// checkDebts: a reservation that was short when a pod took room of its zone is less short soon after, but for the slots
// that pods have taken meanwhile which may: slots come and go between two looks at a status.
func (p *player) checkDebts(c *view) {
	p.debts = slices.DeleteFunc(p.debts, func(d debt) bool {
		status, ok := zoneOf(p.status(d.reservation), d.zone)
		if !ok || status.Desired-status.Held < d.missing+p.takenSince(d.reservation, d.since, "") {
			return true
		}
		if time.Now().After(d.until) {
			if !p.othersHad(&d, c) {
				p.fail(FreedRoomIsSlots, "%s, and %v later it lacked %d slots as before", d.message, statusDelay, d.missing)
			}
			return true
		}
		return false
	})
}

func zoneOf(status v1alpha1.ZoneReservationStatus, name string) (v1alpha1.ReservationZoneStatus, bool) {
	i := slices.IndexFunc(status.Zones, func(z v1alpha1.ReservationZoneStatus) bool { return z.Name == name })
	if i < 0 {
		return v1alpha1.ReservationZoneStatus{}, false
	}
	return status.Zones[i], true
}

// partlyBound reports whether some of a gang's members are bound, and fewer than its quorum.
func (p *player) partlyBound(w *workload) bool {
	bound := 0
	for _, pod := range p.listPods() {
		if pod.Labels[workloadLabel] == w.Name && pod.Spec.NodeName != "" {
			bound++
		}
	}
	return bound > 0 && bound < w.quorum()
}

// noteLosses marks gangs that have lost members to preemption, or one whose bind was sent before the scheduler had
// heard that it is deleted: the others' binds were sent with it.
func (p *player) noteLosses() {
	p.mu.Lock()
	lost := slices.Clone(p.unseen)
	for _, v := range p.victims {
		lost = append(lost, v.pod)
	}
	p.mu.Unlock()
	for _, w := range p.workloads {
		if w.gang() && slices.ContainsFunc(lost, func(pod string) bool { return strings.HasPrefix(pod, w.Name+"-") }) {
			w.disturbed = true
		}
	}
}

// checkGangs: a gang that nothing has happened to is bound whole or not at all.
func (p *player) checkGangs(*view) {
	p.noteLosses()
	for _, w := range p.workloads {
		if w.gang() && !w.disturbed && p.partlyBound(w) {
			p.fail(GangsBindWhole, "some members of gang %s are bound, and fewer than %d", w.Name, w.quorum())
		}
	}
}

// checkHoldings: what a gang that waits holds and does not use is at most a tenth of the time, but for one time that
// may be the last. Members beyond a quorum that is bound are scheduled as other pods. A change of a gang's members has
// it tried again, so that begins the account again.
func (p *player) checkHoldings(c *view) {
	p.probe.mu.Lock()
	defer p.probe.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.probe.held)) {
		h := p.probe.held[name]
		if w := p.workloads[name]; w != nil {
			h.note(c.boundOf(w) >= w.quorum(), c.membersOf(w))
		}
		age := time.Since(h.began)
		if inVain := h.inVain - h.longest; age > 20*time.Minute && inVain > age/10 {
			p.fail(GangsHoldNothing, "gang %s has held room for %v of %v without a bind, and once for %v beside that", name, inVain, age, h.longest)
		}
	}
}

// checkFits: what fits, with or without victims, does not wait for long.
func (p *player) checkFits(c *view) {
	now := time.Now()
	note := func(since map[string]time.Time, key string, holds bool) time.Duration {
		if !holds {
			delete(since, key)
			return 0
		}
		if since[key].IsZero() {
			since[key] = now
		}
		return now.Sub(since[key])
	}
	present := map[string]bool{}
	for _, u := range c.waiting(p) {
		present[u.key] = true
		if lasts := note(p.fits, u.key, u.fits(c, nil)); lasts > u.limit(p, c) {
			p.fail(WhatFitsIsBound, "%s has fitted for %v and waits", u, lasts)
		}
		if lasts := note(p.preempts, u.key, u.preempts() && !u.waitsForStuck(p, c) && u.fits(c, u.pods[0].Spec.Priority)); lasts > u.victimsLimit(p) {
			p.fail(VictimsGo, "%s would have fitted for %v without pods of a lower priority, and waits", u, lasts)
		}
	}
	for _, since := range []map[string]time.Time{p.fits, p.preempts} {
		maps.DeleteFunc(since, func(key string, _ time.Time) bool { return !present[key] })
	}
}

// checkAttempts: a cluster at rest has few cycles.
func (p *player) checkAttempts(before map[string]int, rest time.Duration) {
	if time.Since(p.changedAt) < rest {
		return
	}
	after := p.cyclesSoFar()
	for _, pod := range p.listPods() {
		// The queue's flush comes every five minutes. The backoff of a gang that waits for time and not for events is
		// 15 s to 30 s, and a member that fits nowhere has three cycles then: on the nodes of its plan, on the others,
		// and on all when the gang is admitted.
		limit := 3 * int(rest/(15*time.Second))
		if pod.Spec.SchedulingGroup != nil {
			// A native gang that failed is in kube-scheduler's backoff, of at most 10 s. Then its cycle runs twice:
			// without some pods, too.
			limit = 2*int(rest/(10*time.Second)) + 10
		}
		if n := after[pod.Name] - before[pod.Name]; n > limit {
			p.fail(AttemptsAreBounded, "pod %s has had %d cycles within %v in which nothing happened", pod.Name, n, rest)
		}
	}
}

func (p *player) boundPods() map[types.UID]string {
	bound := map[types.UID]string{}
	for _, pod := range p.listPods() {
		if pod.Spec.NodeName != "" {
			bound[pod.UID] = pod.Name
		}
	}
	return bound
}

// restState is what a restart must not change.
type restState struct {
	bound map[types.UID]string // pods, by their names
	held  map[string]int64     // by reservation
	// stalled are the workloads of pods that are nominated to a node where a pod never ends to terminate.
	stalled map[string]bool
}

func (p *player) restStateNow() restState {
	now := restState{p.boundPods(), p.heldByReservation(), map[string]bool{}}
	pods, stuckOn := p.listPods(), map[string]bool{}
	for _, pod := range pods {
		if p.stuck[pod.UID] && pod.Spec.NodeName != "" {
			stuckOn[pod.Spec.NodeName] = true
		}
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && stuckOn[pod.Status.NominatedNodeName] {
			now.stalled[pod.Labels[workloadLabel]] = true
		}
	}
	return now
}

// checkRestart: after a restart at rest, the same pods are bound, and not less is held, but for what those have taken
// that are bound rightly.
//
// Of pods that are alike kube-scheduler preempts those that its cache has last, and after a restart the cache has another
// order. So pods that wait for one that never ends to terminate may have another one evicted then, and come to its room.
func (p *player) checkRestart(before *restState, restarted time.Time) {
	var late []string
	for _, pod := range p.listPods() {
		if pod.Spec.NodeName != "" && before.bound[pod.UID] == "" {
			late = append(late, pod.Name)
			p.choosesAnew = p.choosesAnew || before.stalled[pod.Labels[workloadLabel]]
		}
	}
	if !p.choosesAnew && !p.collects.Load() { // which nodes a gang keeps from others is forgotten
		for _, name := range late {
			p.fail(RestChangesNothing, "pod %s waited at rest, and was bound after a restart", name)
		}
	}
	for name, n := range p.heldByReservation() {
		if taken := p.takenSince(name, restarted, ""); n+taken < before.held[name] {
			p.fail(RestChangesNothing, "%s held %d slots at rest, and %d after a restart, and pods that may use them took %d", name, before.held[name], n, taken)
		}
	}
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func requestOf(pod *v1.Pod) int {
	return int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
}

func (u unit) String() string { return fmt.Sprintf("%s %s", u.kind, u.key) }
