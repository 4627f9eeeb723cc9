package holds

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// ErrNoSlot means that the slots that a pod was to take are no longer unused.
var ErrNoSlot = errors.New("no unused slot")

// Holds is what all claims hold. Make one with New. Its methods may be called from several goroutines.
type Holds struct {
	// version counts the changes, so that a view sees without the lock that there is none.
	version atomic.Uint64

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

// Count is a number of slots, and how many of them are used.
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
	// slot is the size by which amount was computed.
	slot      ledger.Resources
	slots     int
	consumers []*consumer // in the order in which they came
}

type consumer struct {
	uid   types.UID
	hold  *hold
	slots int
}

func (h *hold) used() int {
	n := 0
	for _, c := range h.consumers {
		n += c.slots
	}
	return n
}

func (h *hold) count() Count { return Count{h.slots, h.used()} }

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

// SetClaim registers a claim, or replaces it by a newer version of itself, which keeps its slots. A new size is that of slots
// which are changed from then on.
func (s *Holds) SetClaim(spec Claim) {
	spec.Slot = spec.Slot.Clone()
	spec.Slot.Pods = 1
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

// Release drops a claim with all its slots. Its consumers become ordinary pods. It returns the nodes on which something was
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
		h.consumers, h.slots = nil, 0
		freed = append(freed, name)
		s.settleLocked(h)
	}
	slices.Sort(freed)
	return freed
}

// Change is a change of a claim's slots on a node.
type Change struct {
	Node, Zone string
	// Lost means that the node is not there, or not ready.
	Lost bool
	// Settle is how many slots, of the consumers that came first, are given up with them: those pods become ordinary pods.
	// A consumer with more than one slot gives up all of them.
	Settle int
	// Add is how many unused slots to add; negative to remove some.
	Add int
}

// Change changes the slots of a claim, which then have the size that the claim names. Since consumers come and go meanwhile,
// slots are added to and taken from what is unused at this moment; a used slot is never dropped.
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
		if ch.Add <= 0 {
			return
		}
		h = s.holdLocked(c, ch.Node, ch.Zone)
	}
	c.discount(h)
	h.zone, h.lost, h.slot = ch.Zone, ch.Lost, c.spec.Slot
	for settle := ch.Settle; settle > 0 && len(h.consumers) > 0; {
		p := h.consumers[0]
		h.consumers = h.consumers[1:]
		delete(s.consumers, p.uid)
		h.slots -= p.slots
		settle -= p.slots
	}
	h.slots = max(h.slots+ch.Add, h.used())
	c.count(h)
	s.settleLocked(h)
}

// holdLocked makes the record of a hold without slots.
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

// settleLocked drops the record of a hold that has no slots left, and publishes its node.
func (s *Holds) settleLocked(h *hold) {
	n := h.node
	if h.slots == 0 {
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

// Take makes a pod a consumer of a number of slots of a claim. A pod consumes of one claim on one node: an earlier record of
// it is dropped. Consumers that have left the node but whose end has not been recorded yet make room.
//
// It fails with ErrNoSlot if there are fewer unused slots.
func (s *Holds) Take(uid types.UID, nodeName string, claimUID types.UID, n int, present Present) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(uid)
	c := s.claims[claimUID]
	if c == nil || c.holds[nodeName] == nil {
		return ErrNoSlot
	}
	h := c.holds[nodeName]
	for lacks := n - (h.slots - h.used()); lacks > 0 && present != nil; {
		gone := slices.IndexFunc(h.consumers, func(p *consumer) bool { return !present(p.uid) })
		if gone < 0 {
			break
		}
		lacks -= h.consumers[gone].slots
		s.leaveLocked(h.consumers[gone].uid)
	}
	if h.slots-h.used() < n {
		return ErrNoSlot
	}
	s.consumeLocked(h, uid, n)
	return nil
}

func (s *Holds) consumeLocked(h *hold, uid types.UID, n int) {
	h.claim.discount(h)
	p := &consumer{uid: uid, hold: h, slots: n}
	h.consumers = append(h.consumers, p)
	s.consumers[uid] = p
	h.claim.count(h)
	s.changed[h.claim.spec.UID] = struct{}{}
	s.publishLocked(h.node)
}

// Leave makes the slots that a pod uses unused, and reports whether it used any. A name of a node restricts that to slots
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
	s.changed[h.claim.spec.UID] = struct{}{}
	s.publishLocked(h.node)
}

// Restore gives a claim slots on a node as they were recorded, with their consumers; a pod that is listed n times uses n slots.
// It does nothing to a node on which the claim has slots, nor to pods that are consumers already.
func (s *Holds) Restore(claimUID types.UID, nodeName, zone string, n int, consumers []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	if c == nil || n <= 0 || c.holds[nodeName] != nil {
		return
	}
	h := s.holdLocked(c, nodeName, zone)
	h.slots = n
	c.count(h)
	s.publishLocked(h.node)
	taken := map[types.UID]int{}
	var order []types.UID
	for _, uid := range consumers {
		if s.consumers[uid] != nil {
			continue
		}
		if taken[uid]++; taken[uid] == 1 {
			order = append(order, uid)
		}
	}
	for _, uid := range order {
		if k := min(taken[uid], h.slots-h.used()); k > 0 {
			s.consumeLocked(h, uid, k)
		}
	}
}

// TakeChanged returns the claims whose consumers have changed since the last call, in no particular order.
func (s *Holds) TakeChanged() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		amount := times(&h.slot, h.slots)
		p.unused.Add(&amount, 1)
		var consumers []Consumer
		for _, c := range h.consumers {
			took := times(&h.slot, c.slots)
			p.unused.Add(&took, -1)
			consumers = append(consumers, Consumer{UID: c.uid, Took: took})
		}
		p.consumers += len(consumers)
		p.Holds = append(p.Holds, Hold{Claim: h.claim.spec, Amount: amount, Consumers: consumers})
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
			if unused := h.slots - h.used(); unused > 0 && !h.lost {
				sum := sums[h.zone]
				sum.Add(&h.slot, int64(unused))
				sums[h.zone] = sum
			}
		}
	}
	return sums
}

// Consumption is the slots that a pod uses.
type Consumption struct {
	Claim types.UID
	Node  string
	Slots int
}

// ConsumerOf returns what a pod uses, and false for an ordinary pod.
func (s *Holds) ConsumerOf(uid types.UID) (Consumption, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.consumers[uid]
	if p == nil {
		return Consumption{}, false
	}
	return Consumption{Claim: p.hold.claim.spec.UID, Node: p.hold.node.name, Slots: p.slots}, true
}

// Node returns what is held on a node now, or nil.
func (s *Holds) Node(name string) *NodeHolds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].published()
}

// NodesOf returns the nodes on which a claim has slots, in no particular order.
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
