package holds

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// ErrUsed means that what a pod was to take is no longer unused.
var ErrUsed = errors.New("too little of what is held is unused")

// Holds is what all claims hold. Make one with New. Its methods may be called from several goroutines.
type Holds struct {
	// version counts the changes, so that a view sees without the lock that there is none.
	version atomic.Uint64
	// headroomChanged is set when the use of a claim has changed of which a used part is to be replaced, until TakeChanged.
	headroomChanged atomic.Bool

	mu        sync.Mutex // guards all fields below and everything that they lead to
	claims    map[types.UID]*claim
	nodes     map[string]*node
	consumers map[types.UID]*consumer
	views     []*View
	// changed are the claims whose consumers have changed since TakeChanged.
	changed map[types.UID]struct{}
}

// claim is the record of a claim.
type claim struct {
	spec  *Claim
	holds map[string]*hold // by node
	zones map[string]Count
	lost  Count
}

// Count is a number of slots, and how many of them are used. Of amounts it is that of the places for pods.
type Count struct{ Slots, Used int }

func (c Count) plus(d Count) Count { return Count{c.Slots + d.Slots, c.Used + d.Used} }

func (c Count) minus(d Count) Count { return Count{c.Slots - d.Slots, c.Used - d.Used} }

// hold is the record of what a claim has on a node.
type hold struct {
	claim *claim
	node  *node
	zone  string
	// lost means that the node is not there, or not ready: the slots count for nothing until it is back.
	lost bool
	// slot is the size of its slots; empty if the claim has none.
	slot ledger.Resources
	// amount is all that is held. It is replaced, never changed in place, as is what a consumer took: readers share them.
	amount    ledger.Resources
	consumers []*consumer // in the order in which they came
}

type consumer struct {
	uid  types.UID
	hold *hold
	took ledger.Resources
}

func (h *hold) used() ledger.Resources {
	var used ledger.Resources
	for _, c := range h.consumers {
		used.Add(&c.took, 1)
	}
	return used
}

func (h *hold) unused() ledger.Resources {
	used := h.used()
	return h.amount.Less(&used)
}

func (h *hold) count() Count {
	used := int64(0)
	for _, c := range h.consumers {
		used += c.took.Pods
	}
	return Count{int(h.amount.Pods), int(used)}
}

// resize gives the slots another size. What pods took of an amount that is now one of slots is a slot at least.
func (h *hold) resize(slot ledger.Resources) {
	if h.slot.Equal(&slot) {
		return
	}
	used := int64(0)
	for _, c := range h.consumers {
		n := max(1, c.took.Pods)
		c.took = slot.Times(n)
		used += n
	}
	h.slot, h.amount = slot, slot.Times(max(used, h.amount.Pods))
}

// node is the record of a node on which something is held.
type node struct {
	name  string
	holds []*hold
}

// New returns a Holds without claims.
func New() *Holds {
	return &Holds{
		claims:    map[types.UID]*claim{},
		nodes:     map[string]*node{},
		consumers: map[types.UID]*consumer{},
		changed:   map[types.UID]struct{}{},
	}
}

// SetClaim registers a claim, or replaces it by a newer version of itself, which keeps what it holds. A new size is
// that of slots which are changed from then on.
func (s *Holds) SetClaim(spec Claim) {
	if spec.Slot = spec.Slot.Clone(); !spec.Amounts {
		spec.Slot.Pods = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[spec.UID]
	if c == nil {
		s.claims[spec.UID] = &claim{spec: &spec, holds: map[string]*hold{}, zones: map[string]Count{}}
		return
	}
	c.spec = &spec
	for _, h := range c.holds {
		s.publishLocked(h.node)
	}
}

// Release drops a claim with all that it holds. Its consumers become ordinary pods. It returns the nodes on which something was
// held, sorted; none for a claim that is not there.
func (s *Holds) Release(uid types.UID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil
	}
	delete(s.claims, uid)
	delete(s.changed, uid)
	var freed []string
	for name, h := range c.holds {
		for _, p := range h.consumers {
			delete(s.consumers, p.uid)
		}
		h.consumers, h.amount = nil, ledger.Resources{}
		freed = append(freed, name)
		s.dropIfEmptyLocked(h)
	}
	slices.Sort(freed)
	return freed
}

// Change is a change of what a claim has on a node.
type Change struct {
	Node, Zone string
	// Lost means that the node is not there, or not ready.
	Lost bool
	// Settle is how many slots, of the consumers that came first, are given up with them: those pods become ordinary pods.
	// A consumer with more than one slot gives up all of them.
	Settle int
	// Add is what to add to the unused amount; negative where something is to be removed. Of a claim with slots it is that of a
	// number of slots.
	Add ledger.Resources
}

// Change changes what a claim has. Slots then have the size that the claim names. Since consumers come and go meanwhile,
// amounts are added to and taken from what is unused at this moment; a used amount is never dropped.
func (s *Holds) Change(uid types.UID, changes []Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return
	}
	for i := range changes {
		s.changeLocked(c, &changes[i])
	}
}

func (s *Holds) changeLocked(c *claim, ch *Change) {
	h := c.holds[ch.Node]
	if h == nil {
		if ch.Add.Exceeds(&ledger.Resources{}) == "" {
			return
		}
		h = s.holdLocked(c, ch.Node, ch.Zone)
	}
	c.discount(h)
	h.zone, h.lost = ch.Zone, ch.Lost
	if !c.spec.Amounts {
		h.resize(c.spec.Slot)
	}
	for settle := int64(ch.Settle); settle > 0 && len(h.consumers) > 0; {
		p := h.consumers[0]
		h.consumers = h.consumers[1:]
		delete(s.consumers, p.uid)
		h.amount = h.amount.Less(&p.took)
		settle -= p.took.Pods
	}
	used, amount := h.used(), h.amount.Clone()
	amount.Add(&ch.Add, 1)
	h.amount = amount.Positive()
	h.amount.Raise(&used)
	c.count(h)
	s.dropIfEmptyLocked(h)
}

// holdLocked makes the record of an empty hold.
func (s *Holds) holdLocked(c *claim, nodeName, zone string) *hold {
	n := s.nodes[nodeName]
	if n == nil {
		n = &node{name: nodeName}
		s.nodes[nodeName] = n
	}
	h := &hold{claim: c, node: n, zone: zone, slot: c.spec.Slot}
	c.holds[nodeName] = h
	n.holds = append(n.holds, h)
	return h
}

// dropIfEmptyLocked drops the record of a hold of which nothing is left, and publishes its node.
func (s *Holds) dropIfEmptyLocked(h *hold) {
	n := h.node
	if h.amount.IsZero() {
		delete(h.claim.holds, n.name)
		n.holds = slices.DeleteFunc(n.holds, func(other *hold) bool { return other == h })
		if len(n.holds) == 0 {
			delete(s.nodes, n.name)
		}
	}
	s.publishLocked(n)
}

// discount takes a hold out of the claim's counts, and count puts it in.
func (c *claim) discount(h *hold) { c.add(h, Count{}.minus(h.count())) }

func (c *claim) count(h *hold) { c.add(h, h.count()) }

func (c *claim) add(h *hold, n Count) {
	if h.lost {
		c.lost = c.lost.plus(n)
		return
	}
	if sum := c.zones[h.zone].plus(n); sum != (Count{}) {
		c.zones[h.zone] = sum
	} else {
		delete(c.zones, h.zone)
	}
}

// Take makes a pod a consumer of a part of what a claim holds. A pod consumes of one claim on one node: an earlier record of
// it is dropped. Consumers that have left the node but whose end has not been recorded yet make room.
//
// It fails with ErrUsed if less is unused.
func (s *Holds) Take(uid types.UID, nodeName string, claimUID types.UID, part ledger.Resources, present Present) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(uid)
	c := s.claims[claimUID]
	if c == nil || c.holds[nodeName] == nil {
		return ErrUsed
	}
	h := c.holds[nodeName]
	if !c.spec.Amounts {
		part = h.slot.Times(part.Pods) // the slots may be about to change their size
	}
	for unused := h.unused(); part.Exceeds(&unused) != ""; unused = h.unused() {
		gone := -1
		if present != nil {
			gone = slices.IndexFunc(h.consumers, func(p *consumer) bool { return !isThere(present, p.uid) })
		}
		if gone < 0 {
			return ErrUsed
		}
		s.leaveLocked(h.consumers[gone].uid)
	}
	s.consumeLocked(h, uid, part)
	return nil
}

func isThere(present Present, uid types.UID) bool {
	_, there := present(uid)
	return there
}

func (s *Holds) consumeLocked(h *hold, uid types.UID, part ledger.Resources) {
	h.claim.discount(h)
	p := &consumer{uid: uid, hold: h, took: part.Positive()}
	h.consumers = append(h.consumers, p)
	s.consumers[uid] = p
	h.claim.count(h)
	s.noteUseLocked(h.claim)
	s.publishLocked(h.node)
}

// Leave makes what a pod uses unused, and reports whether it used anything. A name of a node restricts that to what is held
// there.
func (s *Holds) Leave(uid types.UID, nodeName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.consumers[uid]
	if p == nil || nodeName != "" && p.hold.node.name != nodeName {
		return false
	}
	s.leaveLocked(uid)
	return true
}

func (s *Holds) leaveLocked(uid types.UID) {
	p := s.consumers[uid]
	if p == nil {
		return
	}
	h := p.hold
	h.claim.discount(h)
	h.consumers = slices.DeleteFunc(h.consumers, func(other *consumer) bool { return other == p })
	delete(s.consumers, uid)
	h.claim.count(h)
	s.noteUseLocked(h.claim)
	s.publishLocked(h.node)
}

// Restore gives a claim an amount on a node as it was recorded, with its consumers. It does nothing to a node on which the claim
// has something, nor to pods that are consumers already. No more is used than there is.
func (s *Holds) Restore(claimUID types.UID, nodeName, zone string, amount ledger.Resources, consumers []Consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	if c == nil || amount.IsZero() || c.holds[nodeName] != nil {
		return
	}
	h := s.holdLocked(c, nodeName, zone)
	h.amount = amount.Positive()
	c.count(h)
	s.publishLocked(h.node)
	for i := range consumers {
		part, unused := consumers[i].Took.Clone(), h.unused()
		if part.Lower(&unused); s.consumers[consumers[i].UID] == nil && !part.IsZero() {
			s.consumeLocked(h, consumers[i].UID, part)
		}
	}
}

// noteUseLocked records that the consumers of a claim have changed.
func (s *Holds) noteUseLocked(c *claim) {
	s.changed[c.spec.UID] = struct{}{}
	if c.spec.replaced() {
		s.headroomChanged.Store(true)
	}
}

// HeadroomChanged reports whether TakeChanged would return a claim of which a used part is to be replaced. It takes no lock.
func (s *Holds) HeadroomChanged() bool { return s.headroomChanged.Load() }

// TakeChanged returns the claims whose consumers have changed since the last call, in no particular order.
func (s *Holds) TakeChanged() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headroomChanged.Store(false)
	if len(s.changed) == 0 {
		return nil
	}
	changed := make([]types.UID, 0, len(s.changed))
	for uid := range s.changed {
		changed = append(changed, uid)
	}
	clear(s.changed)
	return changed
}

// publishLocked makes a change of a node visible.
func (s *Holds) publishLocked(n *node) {
	s.version.Add(1)
	for _, v := range s.views {
		v.dirty[n.name] = struct{}{}
	}
	slices.SortFunc(n.holds, func(a, b *hold) int { return compareRank(a.claim.spec, b.claim.spec) })
}

// published copies the holds of a node for readers; nil when there are none.
func (n *node) published() *NodeHolds {
	if n == nil || len(n.holds) == 0 {
		return nil
	}
	p := &NodeHolds{Node: n.name, Holds: make([]Hold, 0, len(n.holds)), lowest: n.holds[len(n.holds)-1].claim.spec.Priority}
	for _, h := range n.holds {
		p.unused.Add(&h.amount, 1)
		var consumers []Consumer
		for _, c := range h.consumers {
			p.unused.Add(&c.took, -1)
			consumers = append(consumers, Consumer{UID: c.uid, Took: c.took})
		}
		p.consumers += len(consumers)
		p.Holds = append(p.Holds, Hold{Claim: h.claim.spec, Amount: h.amount, Consumers: consumers})
	}
	return p
}

// Claims returns the claims, in no particular order.
func (s *Holds) Claims() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := make([]types.UID, 0, len(s.claims))
	for uid := range s.claims {
		uids = append(uids, uid)
	}
	return uids
}

// Counts returns the sums of a claim, in time that does not grow with its nodes. lost is of nodes that are lost, which are in
// no zone.
func (s *Holds) Counts(uid types.UID, each func(zone string, n Count)) (lost Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return Count{}
	}
	for zone, n := range c.zones {
		each(zone, n)
	}
	return c.lost
}

// Unused returns what is held and not used, by zone, on nodes that are not lost.
func (s *Holds) Unused() map[string]ledger.Resources {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]ledger.Resources{}
	for _, c := range s.claims {
		for _, h := range c.holds {
			if unused := h.unused(); !h.lost && !unused.IsZero() {
				sum := sums[h.zone]
				sum.Add(&unused, 1)
				sums[h.zone] = sum
			}
		}
	}
	return sums
}

// Consumption is what a pod uses.
type Consumption struct {
	Claim types.UID
	Node  string
	Took  ledger.Resources
}

// ConsumerOf returns what a pod uses, and false for an ordinary pod.
func (s *Holds) ConsumerOf(uid types.UID) (Consumption, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.consumers[uid]
	if p == nil {
		return Consumption{}, false
	}
	return Consumption{Claim: p.hold.claim.spec.UID, Node: p.hold.node.name, Took: p.took}, true
}

// Node returns what is held on a node now, or nil.
func (s *Holds) Node(name string) *NodeHolds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].published()
}

// NodesOf returns the nodes on which a claim has something, in no particular order.
func (s *Holds) NodesOf(uid types.UID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil
	}
	nodes := make([]string, 0, len(c.holds))
	for name := range c.holds {
		nodes = append(nodes, name)
	}
	return nodes
}
