package holds

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// ErrTooLittleHeld means that what a pod needs of its claim is no longer held.
var ErrTooLittleHeld = errors.New("too little is held for the pod")

// Holds is what all claims hold. Make one with New. Its methods may be called from several goroutines.
type Holds struct {
	// version counts the changes, so that a view sees without the lock that there is none.
	version atomic.Uint64
	// lowered is set when a pod has lowered what a claim holds, or has returned it, until TakeLowered.
	lowered atomic.Bool

	mu     sync.Mutex // guards all fields below and everything that they lead to
	claims map[types.UID]*claimRecord
	nodes  map[string]*nodeRecord
	views  []*View
	// taken is by how many slots pods have lowered what claims hold since TakeLowered.
	taken map[types.UID]int
}

// claimRecord is the record of a claim.
type claimRecord struct {
	spec  *Claim
	holds map[string]*holdRecord // by node
	zones map[string]int         // the slots, or places for pods, by zone
}

// holdRecord is the record of what a claim has on a node.
type holdRecord struct {
	claim *claimRecord
	node  *nodeRecord
	zone  string
	// slot is the size of its slots; empty if the claim has none.
	slot ledger.Resources
	// amount is all that is held. It is replaced, never changed in place: readers share it.
	amount ledger.Resources
}

// resizeSlots gives the slots another size.
func (h *holdRecord) resizeSlots(slot *ledger.Resources) {
	if !h.slot.Equal(slot) {
		h.slot, h.amount = *slot, slot.Times(h.amount.Pods)
	}
}

// nodeRecord is the record of a node on which something is held.
type nodeRecord struct {
	name  string
	holds []*holdRecord
}

// New returns a Holds without claims.
func New() *Holds {
	return &Holds{claims: map[types.UID]*claimRecord{}, nodes: map[string]*nodeRecord{}, taken: map[types.UID]int{}}
}

// SetClaim registers a claim, or replaces it by a newer version of itself, which keeps what it holds. A new size is
// that of slots which are changed from then on. It returns the claim with the place for one pod that each slot has.
func (s *Holds) SetClaim(spec Claim) Claim {
	spec.Slot = spec.Slot.Clone()
	if spec.HasSlots() {
		spec.Slot.Pods = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[spec.UID]
	if c == nil {
		s.claims[spec.UID] = &claimRecord{spec: &spec, holds: map[string]*holdRecord{}, zones: map[string]int{}}
		return spec
	}
	c.spec = &spec
	for _, h := range c.holds {
		s.publishLocked(h.node)
	}
	return spec
}

// Release drops a claim with all that it holds. It returns the nodes on which something was held, sorted; none for a
// claim that is not there.
func (s *Holds) Release(uid types.UID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil
	}
	delete(s.claims, uid)
	delete(s.taken, uid)
	var freed []string
	for name, h := range c.holds {
		freed = append(freed, name)
		s.setLocked(h, ledger.Resources{})
	}
	slices.Sort(freed)
	return freed
}

// Change is a change of what a claim has on a node.
type Change struct {
	Node, Zone string
	// Add is what to add to the amount; negative where something is to be removed. Of a claim with slots it is that
	// of a number of slots.
	Add ledger.Resources
}

// Change changes what a claim has. Slots then have the size that the claim names. Since pods lower amounts meanwhile, a
// change is added to what is held at this moment, which never becomes less than nothing.
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

func (s *Holds) changeLocked(c *claimRecord, ch *Change) {
	h := c.holds[ch.Node]
	if h == nil {
		if ch.Add.Exceeds(&ledger.Resources{}) == "" {
			return
		}
		h = s.holdLocked(c, ch.Node, ch.Zone)
	}
	c.addToZone(h, -1)
	h.zone = ch.Zone
	c.addToZone(h, 1)
	if c.spec.HasSlots() {
		h.resizeSlots(&c.spec.Slot)
	} else {
		h.slot = ledger.Resources{} // it is no number of slots any more
	}
	amount := h.amount.Clone()
	amount.Add(&ch.Add, 1)
	s.setLocked(h, amount.Positive())
}

// holdLocked makes the record of an empty hold.
func (s *Holds) holdLocked(c *claimRecord, nodeName, zone string) *holdRecord {
	n := s.nodes[nodeName]
	if n == nil {
		n = &nodeRecord{name: nodeName}
		s.nodes[nodeName] = n
	}
	h := &holdRecord{claim: c, node: n, zone: zone, slot: c.spec.Slot}
	c.holds[nodeName] = h
	n.holds = append(n.holds, h)
	return h
}

// setLocked changes an amount, drops the record if nothing is left, and publishes its node.
func (s *Holds) setLocked(h *holdRecord, amount ledger.Resources) {
	c, n := h.claim, h.node
	c.addToZone(h, -1)
	h.amount = amount
	c.addToZone(h, 1)
	if amount.IsZero() {
		delete(c.holds, n.name)
		n.holds = slices.DeleteFunc(n.holds, func(other *holdRecord) bool { return other == h })
		if len(n.holds) == 0 {
			delete(s.nodes, n.name)
		}
	}
	s.publishLocked(n)
}

// addToZone adds a hold to the sums of its claim, or takes it away.
func (c *claimRecord) addToZone(h *holdRecord, sign int) {
	if n := c.zones[h.zone] + sign*int(h.amount.Pods); n != 0 {
		c.zones[h.zone] = n
	} else {
		delete(c.zones, h.zone)
	}
}

// Taken is a part by which a pod lowered what a claim holds.
type Taken struct {
	Claim      types.UID
	Node, Zone string
	Part       ledger.Resources
}

// Take lowers what a claim that is not inclusive holds on a node by a number of slots, for a pod that needs their room.
// The pod keeps what it returns, for Return.
//
// It fails with ErrTooLittleHeld if less is held.
func (s *Holds) Take(claimUID types.UID, nodeName string, part *ledger.Resources) (Taken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	if c == nil || c.spec.Inclusive() || c.holds[nodeName] == nil || c.holds[nodeName].amount.Pods < part.Pods {
		return Taken{}, ErrTooLittleHeld
	}
	h := c.holds[nodeName]
	held := Hold{Claim: c.spec, Amount: h.amount}
	taken := Taken{Claim: claimUID, Node: nodeName, Zone: h.zone, Part: held.slots(part.Pods)}
	s.setLocked(h, h.amount.Minus(&taken.Part))
	s.noteLoweredLocked(&taken, 1)
	return taken, nil
}

// Return adds a part again that a pod took and does not use: it was not bound.
func (s *Holds) Return(taken *Taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[taken.Claim]
	if c == nil || c.spec.Inclusive() {
		return
	}
	h := c.holds[taken.Node]
	if h == nil {
		h = s.holdLocked(c, taken.Node, taken.Zone)
	}
	amount := h.slot.Times(taken.Part.Pods)
	amount.Add(&h.amount, 1)
	s.setLocked(h, amount)
	s.noteLoweredLocked(taken, -1)
}

func (s *Holds) noteLoweredLocked(taken *Taken, sign int) {
	s.taken[taken.Claim] += sign * int(taken.Part.Pods)
	s.lowered.Store(true)
}

// Lowered reports whether TakeLowered would return a claim. It takes no lock.
func (s *Holds) Lowered() bool { return s.lowered.Load() }

// TakeLowered returns by how many slots pods have lowered what claims hold since the last call; negative if they have
// returned some.
func (s *Holds) TakeLowered() map[types.UID]int {
	if !s.lowered.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowered.Store(false)
	taken := s.taken
	s.taken = map[types.UID]int{}
	return taken
}

// Restore gives a claim an amount on a node as it was recorded. It does nothing to a node on which the claim has
// something.
func (s *Holds) Restore(claimUID types.UID, nodeName, zone string, amount ledger.Resources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	if c == nil || amount.IsZero() || c.holds[nodeName] != nil {
		return
	}
	s.setLocked(s.holdLocked(c, nodeName, zone), amount.Positive())
}

// publishLocked makes a change of a node visible.
func (s *Holds) publishLocked(n *nodeRecord) {
	s.version.Add(1)
	for _, v := range s.views {
		v.pending[n.name] = struct{}{}
	}
	slices.SortFunc(n.holds, func(a, b *holdRecord) int { return compareRank(a.claim.spec, b.claim.spec) })
}

// published copies the holds of a node for readers; nil when there are none.
func (n *nodeRecord) published() *NodeHolds {
	if n == nil || len(n.holds) == 0 {
		return nil
	}
	p := &NodeHolds{Node: n.name, Holds: make([]Hold, 0, len(n.holds)), lowest: n.holds[len(n.holds)-1].claim.spec.Priority}
	for _, h := range n.holds {
		p.amounts.Add(&h.amount, 1)
		p.Holds = append(p.Holds, Hold{Claim: h.claim.spec, Amount: h.amount})
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

// Counts calls each with the number of a claim's slots in each zone where it has any, in time that does not grow with
// its nodes.
func (s *Holds) Counts(uid types.UID, each func(zone string, slots int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil {
		for zone, n := range c.zones {
			each(zone, n)
		}
	}
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
