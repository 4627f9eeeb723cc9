package worlds

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// Wait lets time pass.
type Wait struct{ For time.Duration }

// Add has nodes come, or come back.
type Add struct{ Node Node }

// Remove takes a node away, as an autoscaler does that has lost it: its pods go a little later.
type Remove struct{ Node string }

// Lose has nodes stop answering: those of a zone, or the one that is named. The objects stay, not ready and tainted,
// and so do their pods, which are marked for deletion after a while.
type Lose struct{ Zone, Node string }

// Recover has such nodes answer again.
type Recover struct{ Zone, Node string }

// Cordon closes a node for new pods, or opens it again.
type Cordon struct {
	Node string
	Open bool
}

// Drain cordons a node and deletes its pods.
type Drain struct{ Node string }

// Relabel moves a node to another zone.
type Relabel struct{ Node, Zone string }

// Reserve makes a reservation or changes the one of this name.
type Reserve struct{ Reservation Reservation }

// Unreserve deletes a reservation.
type Unreserve struct{ Name string }

// Apply makes a policy or changes the one of this name.
type Apply struct{ Policy Policy }

// Revoke deletes a policy.
type Revoke struct{ Name string }

// Run starts a workload.
type Run struct{ Workload Workload }

// Scale gives a workload another number of replicas. A gang keeps its quorum.
type Scale struct {
	Workload string
	Replicas int
}

// RollOut replaces the pods of a Deployment one by one, and those of a StatefulSet from the last to the first.
type RollOut struct{ Workload string }

// Stop deletes a workload and its pods.
type Stop struct{ Workload string }

// Evict deletes a pod, the one of this number among those of a workload.
type Evict struct {
	Workload string
	Pod      int
}

// Stick has a pod of a workload terminate and never go.
type Stick struct {
	Workload string
	Pod      int
}

// DropClaim deletes the ResourceClaim of a pod of a workload that waits, unless it has a device.
type DropClaim struct {
	Workload string
	Pod      int
}

// RefuseBinds has the API server refuse binds of a workload's pods: so many, or without end if Times is 0. Rehearsals
// pass.
type RefuseBinds struct {
	Workload string
	Times    int
}

// FailPreBind has a pod of a workload, by the number in its name, fail to be prepared after a while, each time. The
// workload may come later.
type FailPreBind struct {
	Workload string
	Pod      int
	After    time.Duration
}

// SlowPreBinds has each pod of a workload take so long to be prepared, as one whose volume is attached; 0 is at once.
// The workload may come later.
type SlowPreBinds struct {
	Workload string
	Take     time.Duration
}

// SlowBinds has each bind of a workload's pods take so long to reach the API server; 0 is at once. The workload may
// come later.
type SlowBinds struct {
	Workload string
	Take     time.Duration
}

// Watches has the events of watches be late, and those of changes come twice. At rest they are as usual again.
type Watches struct {
	Late  time.Duration
	Twice bool
}

// Restart ends the scheduler, whatever it is doing, and starts another.
type Restart struct{}

// StandBy starts a second scheduler that follows the cluster and does not lead.
type StandBy struct{}

// FailOver ends the scheduler, whatever it is doing, and has the one that stands by lead: so long after, as when the
// lease is given back, or for 0 when it has run out.
type FailOver struct{ After time.Duration }

// LoseCertified loses a zone if a certificate says that displaced pods run again: for good, or as Lose does. It is for
// a world at rest.
type LoseCertified struct {
	Zone      string
	NodesStay bool
}

// Rebalance has the moves made that plans consist of, until there are none. It is for a world at rest.
type Rebalance struct{}

func (s Wait) apply(p *player)      { p.wait(s.For) }
func (s Add) apply(p *player)       { p.addNode(s.Node) }
func (s Remove) apply(p *player)    { p.removeNode(s.Node) }
func (s Cordon) apply(p *player)    { p.cordon(s.Node, !s.Open) }
func (s Reserve) apply(p *player)   { p.reserve(s.Reservation) }
func (s Unreserve) apply(p *player) { p.unreserve(s.Name) }
func (s Apply) apply(p *player)     { p.applyPolicy(s.Policy) }
func (s Revoke) apply(p *player)    { p.deletePolicy(s.Name) }
func (s Run) apply(p *player)       { p.run(s.Workload) }
func (s Stop) apply(p *player)      { p.stopWorkload(s.Workload) }
func (s DropClaim) apply(p *player) { p.dropClaim(p.podAt(s.Workload, s.Pod)) }
func (Restart) apply(p *player)     { p.restart() }
func (StandBy) apply(p *player)     { p.startStandby() }
func (s FailOver) apply(p *player)  { p.failOver(cmp.Or(s.After, leaseDuration)) }
func (Rebalance) apply(p *player)   { p.carryOutPlans() }

func (s LoseCertified) apply(p *player) { p.loseCertified(s.Zone, s.NodesStay) }

func (s SlowPreBinds) apply(p *player) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.preBindsTake[s.Workload] = s.Take
}

func (s SlowBinds) apply(p *player) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bindsTake[s.Workload] = s.Take
}

func (s Watches) apply(p *player) {
	p.server.EventDelay.Store(int64(s.Late))
	p.server.RepeatEvents.Store(s.Twice)
}

func (s Lose) apply(p *player) {
	for _, node := range p.nodesOf(s.Zone, s.Node) {
		p.setLost(node, true)
	}
}

func (s Recover) apply(p *player) {
	for _, node := range p.nodesOf(s.Zone, s.Node) {
		p.setLost(node, false)
	}
}

func (s Drain) apply(p *player) {
	p.cordon(s.Node, true)
	for _, pod := range p.listPods() {
		if pod.Spec.NodeName == s.Node {
			p.deletePod(&pod)
		}
	}
}

func (s Relabel) apply(p *player) { p.relabel(s.Node, s.Zone) }

func (s Scale) apply(p *player) {
	if w := p.workloads[s.Workload]; w != nil {
		w.Replicas = s.Replicas
		if w.gang() {
			w.Replicas = max(w.Replicas, w.quorum())
		}
		p.writeOwners(w)
	}
}

func (s RollOut) apply(p *player) {
	if w := p.workloads[s.Workload]; w != nil && (w.Kind == Deployment || w.Kind == StatefulSet) {
		w.revision++
		p.writeOwners(w)
	}
}

func (s Evict) apply(p *player) {
	if pod := p.podAt(s.Workload, s.Pod); pod != nil {
		p.deletePod(pod)
	}
}

func (s Stick) apply(p *player) {
	if pod := p.podAt(s.Workload, s.Pod); pod != nil {
		p.stuck[pod.UID] = true
		p.deletePod(pod)
	}
}

func (s RefuseBinds) apply(p *player) {
	w := p.workloads[s.Workload]
	if w == nil {
		return
	}
	w.bindsFail = w.bindsFail || s.Times == 0
	w.disturbed = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals[s.Workload] = s.Times
}

func (s FailPreBind) apply(p *player) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks[numbered(s.Workload, s.Pod)] = s.After
}

var errRefused = errors.New("admission webhook \"worlds\" denied the request")

// refusesBind decides about a bind.
func (p *player) refusesBind(pod string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for workload, times := range p.refusals {
		if !strings.HasPrefix(pod, workload+"-") {
			continue
		}
		if times == 1 {
			delete(p.refusals, workload)
		} else if times > 1 {
			p.refusals[workload] = times - 1
		}
		return errRefused
	}
	return nil
}

// delayBind has a bind take as long as the history says.
func (p *player) delayBind(pod string) {
	p.mu.Lock()
	take := takes(p.bindsTake, pod)
	p.binding[pod]++
	p.mu.Unlock()
	time.Sleep(take)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.binding[pod]--
}

// takes returns how long something takes of a pod, by its workload.
func takes(byWorkload map[string]time.Duration, pod string) (take time.Duration) {
	for workload, d := range byWorkload {
		if strings.HasPrefix(pod, workload+"-") {
			take = d
		}
	}
	return take
}
