package ledger

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holdsModel is what is held as one would explain it: claims with holds with consumers. What is taken and
// what is left is counted when it is asked for.
type holdsModel struct {
	*model
	claims map[ClaimID]*modelClaim
}

type modelClaim struct {
	spec  Claim
	holds map[holdKey]*modelHold
}

type modelHold struct {
	size      Resources
	slots     int
	consumers []types.UID
}

func (h *modelHold) unused() int64 { return int64(h.slots - len(h.consumers)) }

// prune is what the events of pods and nodes do to holds: a consumer that is no longer on the node is none,
// and a node that is gone holds nothing. It returns the claims that it changed.
func (m *holdsModel) prune() map[ClaimID]bool {
	changed := map[ClaimID]bool{}
	// A slot that is for one pod is used once that pod is there, and the pod then uses no other.
	own := map[types.UID]bool{}
	for id, c := range m.claims {
		for key, h := range c.holds {
			if p, ok := m.pods[key.pod]; ok && p.node == key.node && m.nodes[key.node] != nil {
				own[key.pod] = true
				if len(h.consumers) == 0 {
					h.consumers = []types.UID{key.pod}
					changed[id] = true
				}
			}
		}
	}
	for id, c := range m.claims {
		for key, h := range c.holds {
			if m.nodes[key.node] == nil {
				delete(c.holds, key)
				changed[id] = true
				continue
			}
			before := len(h.consumers)
			h.consumers = slices.DeleteFunc(h.consumers, func(uid types.UID) bool {
				p, ok := m.pods[uid]
				return !ok || p.node != key.node || own[uid] && key.pod != uid
			})
			if len(h.consumers) != before {
				changed[id] = true
			}
		}
	}
	return changed
}

// on calls visit with the holds of a node, in the order in which claims keep their slots.
func (m *holdsModel) on(node string, visit func(*modelClaim, holdKey, *modelHold)) {
	all := slices.SortedFunc(maps.Values(m.claims), func(a, b *modelClaim) int {
		return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), a.spec.Since.Compare(b.spec.Since),
			cmp.Compare(a.spec.ID.UID, b.spec.ID.UID), cmp.Compare(a.spec.ID.Kind, b.spec.ID.Kind))
	})
	for _, c := range all {
		for _, key := range slices.SortedFunc(maps.Keys(c.holds), compareKeys) {
			if key.node == node {
				visit(c, key, c.holds[key])
			}
		}
	}
}

func (m *holdsModel) requested(node string) Resources {
	var sum Resources
	for _, p := range m.pods {
		if p.node == node {
			requests := podRequests(p.object, DefaultOptions().Requests)
			sum.add(&requests, 1)
		}
	}
	return sum
}

func (m *holdsModel) allocatable(node string) Resources {
	if n := m.nodes[node]; n != nil {
		return resourcesOf(n.Status.Allocatable)
	}
	return Resources{}
}

// held sums the unused slots of a node of the claims that count.
func (m *holdsModel) held(node string, counts func(*Claim) bool) Resources {
	var sum Resources
	m.on(node, func(c *modelClaim, _ holdKey, h *modelHold) {
		if counts(&c.spec) {
			sum.add(&h.size, h.unused())
		}
	})
	return sum
}

var resourceNames = []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/gpu"}

// place is PlaceHolds and, without all, ChangeHolds.
func (m *holdsModel) place(spec Claim, slots []Slot, all bool) error {
	was := m.claims[spec.ID]
	is := &modelClaim{spec: spec, holds: map[holdKey]*modelHold{}}
	if was != nil {
		for key, h := range was.holds {
			if !all {
				is.holds[key] = &modelHold{size: h.size, slots: h.slots, consumers: slices.Clone(h.consumers)}
			}
		}
	}
	for _, s := range slots {
		if s.Count > 0 && m.nodes[s.Node] == nil {
			return ErrNoRoom
		}
	}
	grown := 0
	for _, s := range slots {
		key := holdKey{node: s.Node, pod: s.For}
		h := &modelHold{size: s.Requests.Clone(), slots: s.Count}
		h.size.Pods = 1
		before := 0
		if was != nil && was.holds[key] != nil {
			before = was.holds[key].slots
			h.consumers = slices.Clone(was.holds[key].consumers)
			h.consumers = h.consumers[min(s.Settle, len(h.consumers)):]
			h.consumers = h.consumers[max(0, len(h.consumers)-s.Count):]
		}
		if s.For != "" {
			h.consumers = nil
			if p, ok := m.pods[s.For]; ok && p.node == s.Node && s.Count > 0 {
				h.consumers = []types.UID{s.For}
			}
		}
		grown += max(0, s.Count-before)
		if delete(is.holds, key); s.Count > 0 {
			is.holds[key] = h
		}
	}
	// A pod has one slot of its own at most.
	for key := range is.holds {
		if key.pod == "" {
			continue
		}
		for id, c := range m.claims {
			if id == spec.ID {
				c = is
			}
			for other := range c.holds {
				if other.pod == key.pod && (id != spec.ID || other != key) {
					return ErrBadSlot
				}
			}
		}
		for other := range is.holds {
			if other.pod == key.pod && other != key {
				return ErrBadSlot
			}
		}
	}
	// Of each resource of a node of which the claim has more than before, there must be enough.
	own := func(c *modelClaim, node string) Resources {
		var sum Resources
		if c != nil {
			for key, h := range c.holds {
				if key.node == node {
					sum.add(&h.size, h.unused())
				}
			}
		}
		return sum
	}
	for node := range m.nodes {
		before, after := own(was, node), own(is, node)
		sum := m.requested(node)
		others := m.held(node, func(c *Claim) bool {
			return c.ID != spec.ID && (spec.ID.Kind != Gang || c.Priority >= spec.Priority)
		})
		sum.add(&others, 1)
		sum.add(&after, 1)
		limit := m.allocatable(node)
		for _, name := range resourceNames {
			if after.amount(name) > before.amount(name) && sum.amount(name) > limit.amount(name) {
				return ErrNoRoom
			}
		}
	}
	if spec.ID.Kind == Gang && spec.Filling && grown > 0 && is.total() < spec.Wanted && m.olderGang(&spec) {
		return ErrNotItsTurn
	}
	m.claims[spec.ID] = is
	return nil
}

func (c *modelClaim) total() int {
	n := 0
	for _, h := range c.holds {
		n += h.slots
	}
	return n
}

func (c *modelClaim) used() int {
	n := 0
	for _, h := range c.holds {
		n += len(h.consumers)
	}
	return n
}

func (c *modelClaim) missing() int {
	if c.spec.Mode == Headroom {
		return max(0, c.spec.Wanted-c.total()+c.used())
	}
	return max(0, c.spec.Wanted-c.total())
}

func (c *modelClaim) unfilled() bool {
	return c.missing() > 0 && (c.spec.ID.Kind == Reservation || c.spec.Filling)
}

func (m *holdsModel) olderGang(spec *Claim) bool {
	for _, c := range m.claims {
		if c.spec.ID.Kind == Gang && c.spec.ID != spec.ID && c.unfilled() && compareAge(&c.spec, spec) < 0 {
			return true
		}
	}
	return false
}

// admit decides what AssumePodOnHold has to: it returns the hold of which the pod uses a slot, if it does.
func (m *holdsModel) admit(pod *v1.Pod, node string, who *Asker) (ClaimID, *modelHold, error) {
	mayUse := func(c *Claim, key holdKey) bool {
		return slices.Contains(who.Claims, c.ID) && (key.pod == "" || key.pod == pod.UID)
	}
	minds := func(c *Claim) bool {
		return !who.IgnoreHolds && (c.Priority >= who.Priority || slices.Contains(who.Claims, c.ID))
	}
	request := podRequests(pod, DefaultOptions().Requests)
	fits := func(c *modelClaim, slot *modelHold) bool {
		held := m.held(node, minds)
		if slot != nil && minds(&c.spec) {
			held.add(&slot.size, -1)
		}
		sum, limit := m.requested(node), m.allocatable(node)
		sum.add(&held, 1)
		sum.add(&request, 1)
		for _, name := range resourceNames {
			if held.Pods > 0 && held.amount(name) > 0 && request.amount(name) > 0 && sum.amount(name) > limit.amount(name) {
				return false
			}
		}
		return true
	}
	try := func(own bool) (ClaimID, *modelHold) {
		for _, id := range who.Claims {
			c := m.claims[id]
			if c == nil {
				continue
			}
			for _, key := range slices.SortedFunc(maps.Keys(c.holds), compareKeys) {
				h := c.holds[key]
				if key.node == node && (key.pod != "") == own && mayUse(&c.spec, key) && h.unused() > 0 && fits(c, h) {
					return id, h
				}
			}
		}
		return ClaimID{}, nil
	}
	if id, h := try(true); h != nil {
		return id, h, nil
	}
	beside := fits(nil, nil)
	if beside && (who.Use == UseLast || who.IgnoreHolds) {
		return ClaimID{}, nil, nil
	}
	if id, h := try(false); h != nil {
		return id, h, nil
	}
	if beside && who.Use == UseFirst {
		return ClaimID{}, nil, nil
	}
	return ClaimID{}, nil, ErrHeld
}

// excess counts the unused slots of a node that have no room when claims are served by rank, one slot at a
// time, each hold up to the first slot that does not fit.
func (m *holdsModel) excess(node string) map[ClaimID]int {
	sum, limit := m.requested(node), m.allocatable(node)
	over := map[ClaimID]int{}
	m.on(node, func(c *modelClaim, _ holdKey, h *modelHold) {
		for i := range h.unused() {
			next := sum.Clone()
			next.add(&h.size, 1)
			for _, name := range resourceNames {
				if h.size.amount(name) > 0 && next.amount(name) > limit.amount(name) {
					over[c.spec.ID] += int(h.unused() - i)
					return
				}
			}
			sum = next
		}
	})
	return over
}
