package holds

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/ledger"
)

// model is what Holds has to know, in the plainest form.
type model struct {
	specs map[types.UID]Claim
	spots []*spot
}

// part is an amount.
type part struct{ cpus, pods int64 }

func (p part) plus(n int64, q part) part { return part{p.cpus + n*q.cpus, p.pods + n*q.pods} }

func (p part) resources() ledger.Resources { return *cpus(p.cpus, p.pods) }

// spot is what a claim has on a node.
type spot struct {
	claim      types.UID
	node, zone string
	cpus       int64 // of a slot
	amount     part
}

// resize gives slots another size.
func (s *spot) resize(size int64) {
	if size != 0 {
		s.cpus, s.amount.cpus = size, size*s.amount.pods
	}
}

func (m *model) size(claim types.UID) int64 {
	spec := m.specs[claim]
	return spec.Slot.MilliCPU / 1000
}

func (m *model) at(claim types.UID, node string) *spot {
	for _, s := range m.spots {
		if s.claim == claim && s.node == node {
			return s
		}
	}
	return nil
}

func (m *model) clean() {
	m.spots = slices.DeleteFunc(m.spots, func(s *spot) bool { return s.amount == part{} })
}

// machine drives Holds and the model with the same random calls.
type machine struct {
	holds *Holds
	model model
	view  *View
	taken []Taken
	// lowered is by how much since the last look.
	lowered map[types.UID]int
}

func (m *machine) claim(t *rapid.T) types.UID {
	return rapid.SampledFrom([]types.UID{"a", "b", "c"}).Draw(t, "claim")
}

func (m *machine) node(t *rapid.T) string {
	return rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
}

// SetClaim: a and b have slots, c has amounts.
func (m *machine) SetClaim(t *rapid.T) {
	use := rapid.SampledFrom([]Use{UseLast, UseLast, UseFirst}).Draw(t, "use")
	c := claimOf(string(m.claim(t)), use, rapid.Int64Range(1, 2).Draw(t, "cpus"), 1)
	if c.UID == "c" {
		c.Use, c.Slot = UseLast, ledger.Resources{}
	}
	c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
	m.holds.SetClaim(c)
	m.model.specs[c.UID] = c
}

// draw returns a number of slots of that size, or an amount.
func (m *machine) draw(t *rapid.T, size int64, least, most int) part {
	n := int64(rapid.IntRange(least, most).Draw(t, "slots"))
	if size > 0 {
		return part{n * size, n}
	}
	return part{n, int64(rapid.IntRange(least, most).Draw(t, "places"))}
}

func (m *machine) Release(t *rapid.T) {
	uid := m.claim(t)
	var want []string
	for _, s := range m.model.spots {
		if s.claim == uid {
			want = append(want, s.node)
		}
	}
	slices.Sort(want)
	require.Equal(t, want, m.holds.Release(uid))
	delete(m.model.specs, uid)
	delete(m.lowered, uid)
	m.model.spots = slices.DeleteFunc(m.model.spots, func(s *spot) bool { return s.claim == uid })
}

func (m *machine) Change(t *rapid.T) {
	uid := m.claim(t)
	_, known := m.model.specs[uid]
	size := m.model.size(uid)
	add := m.draw(t, size, -2, 3)
	ch := Change{Node: m.node(t), Zone: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone"), Add: add.resources()}
	m.holds.Change(uid, []Change{ch})
	if !known {
		return
	}
	s := m.model.at(uid, ch.Node)
	if s == nil {
		if add.cpus <= 0 && add.pods <= 0 {
			return
		}
		s = &spot{claim: uid, node: ch.Node}
		m.model.spots = append(m.model.spots, s)
	}
	s.zone = ch.Zone
	s.resize(size)
	amount := s.amount.plus(1, add)
	s.amount = part{max(amount.cpus, 0), max(amount.pods, 0)}
	m.model.clean()
}

// beside reports whether pods may lower what a claim holds.
func (m *machine) beside(claim types.UID) bool {
	spec, known := m.model.specs[claim]
	return known && spec.Use == UseLast && spec.HasSlots()
}

func (m *machine) Take(t *rapid.T) {
	claim, node, n := m.claim(t), m.node(t), rapid.Int64Range(1, 2).Draw(t, "slots")
	s := m.model.at(claim, node)
	asked := part{9, n}.resources()
	taken, err := m.holds.Take(claim, node, &asked)
	if s == nil || !m.beside(claim) || s.amount.pods < n {
		require.ErrorIs(t, err, ErrTooLittleHeld)
		return
	}
	require.NoError(t, err)
	require.Equal(t, Taken{Claim: claim, Node: node, Zone: s.zone, Part: part{n * s.cpus, n}.resources()}, taken)
	s.amount = s.amount.plus(-1, part{n * s.cpus, n})
	m.model.clean()
	m.taken = append(m.taken, taken)
	m.lowered[claim] += int(n)
}

func (m *machine) Return(*rapid.T) {
	if len(m.taken) == 0 {
		return
	}
	taken := m.taken[0]
	m.taken = m.taken[1:]
	m.holds.Return(&taken)
	if !m.beside(taken.Claim) {
		return
	}
	s := m.model.at(taken.Claim, taken.Node)
	if s == nil {
		s = &spot{claim: taken.Claim, node: taken.Node, zone: taken.Zone, cpus: m.model.size(taken.Claim)}
		m.model.spots = append(m.model.spots, s)
	}
	n := taken.Part.Pods
	s.amount = s.amount.plus(1, part{n * s.cpus, n})
	m.lowered[taken.Claim] -= int(n)
}

func (m *machine) TakeLowered(t *rapid.T) {
	got := m.holds.TakeLowered()
	for _, uid := range []types.UID{"a", "b", "c"} {
		require.Equal(t, m.lowered[uid], got[uid])
	}
	clear(m.lowered)
	require.False(t, m.holds.Lowered())
}

func (m *machine) Restore(t *rapid.T) {
	claim, node := m.claim(t), m.node(t)
	_, known := m.model.specs[claim]
	amount := m.draw(t, m.model.size(claim), 0, 3)
	m.holds.Restore(claim, node, "x", amount.resources())
	if known && amount != (part{}) && m.model.at(claim, node) == nil {
		m.model.spots = append(m.model.spots, &spot{claim: claim, node: node, zone: "x", cpus: m.model.size(claim), amount: amount})
	}
}

// Check compares all that Holds says with the model.
func (m *machine) Check(t *rapid.T) {
	for _, uid := range []types.UID{"a", "b", "c"} {
		nodes, ok := m.holds.Status(uid)
		_, known := m.model.specs[uid]
		require.Equal(t, known, ok)
		if !known {
			continue
		}
		want, zones := []NodeStatus{}, map[string]int{}
		for _, node := range []string{"n1", "n2"} {
			if s := m.model.at(uid, node); s != nil {
				n := NodeStatus{Node: node, Zone: s.zone, Amount: s.amount.resources(), Resized: uid != "c" && s.cpus != m.model.size(uid)}
				want = append(want, n)
				if require.Equal(t, n, m.holds.StatusOn(uid, node)); s.amount.pods != 0 {
					zones[s.zone] += n.Slots()
				}
			}
		}
		require.Equal(t, want, nodes)
		counts := map[string]int{}
		m.holds.Counts(uid, func(zone string, slots int) { counts[zone] = slots })
		require.Equal(t, zones, counts)
	}

	was := map[string]string{"n1": m.shown(m.view, "n1"), "n2": m.shown(m.view, "n2")}
	changed := slices.Clone(m.view.Update())
	for node, before := range was {
		var sum int64
		for _, s := range m.model.spots {
			if s.node == node {
				sum += s.amount.cpus
			}
		}
		want := m.shown(nil, node)
		require.Equal(t, want, m.shown(m.view, node))
		unused := m.view.Node(node).Unused(nil)
		require.Equal(t, 1000*sum, unused.MilliCPU)
		if before != want {
			require.Contains(t, changed, node)
		}
		require.False(t, m.view.Outdated(node))
	}
}

// shown puts a node of the view, or of the model, into words.
func (m *machine) shown(v *View, node string) string {
	var parts []string
	if v == nil {
		for _, s := range m.model.spots {
			if s.node == node {
				parts = append(parts, fmt.Sprintf("%s %d CPU", s.claim, s.amount.cpus))
			}
		}
	} else if n := v.Node(node); n != nil {
		for i := range n.Holds {
			parts = append(parts, fmt.Sprintf("%s %d CPU", n.Holds[i].Claim.UID, n.Holds[i].Amount.MilliCPU/1000))
		}
		require.True(panics{}, slices.IsSortedFunc(n.Holds, func(a, b Hold) int { return compareRank(a.Claim, b.Claim) }))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// panics fails by a panic, which rapid reports.
type panics struct{}

func (panics) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panics) FailNow()                          {}

// TestAnotherForm: a reservation may change from amounts to slots and back.
func TestAnotherForm(t *testing.T) {
	s := New()
	c := claimOf("c", UseLast, 2, 1)
	c.Slot = ledger.Resources{}
	s.SetClaim(c)
	s.Change("c", []Change{{Node: "n", Add: *cpus(5, 3)}})
	c.Slot = *cpus(2, 1)
	s.SetClaim(c)
	require.True(t, s.StatusOn("c", "n").Resized)
	s.Change("c", []Change{{Node: "n"}})
	require.Equal(t, NodeStatus{Node: "n", Amount: *cpus(6, 3)}, s.StatusOn("c", "n"))
	c.Slot = ledger.Resources{}
	s.SetClaim(c)
	s.Change("c", []Change{{Node: "n", Add: *cpus(-2, 0)}})
	require.Equal(t, *cpus(4, 3), s.StatusOn("c", "n").Amount)
	c.Slot = *cpus(2, 1)
	s.SetClaim(c)
	require.True(t, s.StatusOn("c", "n").Resized, "it is not three slots")
	require.Equal(t, NodeStatus{}, s.StatusOn("c", "other"))
}

// TestHoldsAgainstModel: whatever is called in whatever order, Holds knows what the model knows.
func TestHoldsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		m := &machine{holds: s, model: model{specs: map[types.UID]Claim{}}, view: s.NewView(), lowered: map[types.UID]int{}}
		actions := rapid.StateMachineActions(m)
		actions[""] = m.Check
		t.Repeat(actions)
	})
}
