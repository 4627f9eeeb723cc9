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
	cpus  map[types.UID]int64 // slot size of each claim, 0 of one on amounts
	spots []*spot
}

// part is an amount.
type part struct{ cpus, pods int64 }

func (p part) plus(n int64, q part) part { return part{p.cpus + n*q.cpus, p.pods + n*q.pods} }

// within reports whether q has as much as p of all that p names.
func (p part) within(q part) bool {
	return (p.cpus <= 0 || p.cpus <= q.cpus) && (p.pods <= 0 || p.pods <= q.pods)
}

func (p part) resources() ledger.Resources { return *cpus(p.cpus, p.pods) }

// spot is what a claim has on a node.
type spot struct {
	claim      types.UID
	node, zone string
	lost       bool
	cpus       int64
	amount     part
	users      []user
}

type user struct {
	uid  types.UID
	took part
}

func (s *spot) used() (used part) {
	for _, u := range s.users {
		used = used.plus(1, u.took)
	}
	return used
}

func (s *spot) unused() part { return s.amount.plus(-1, s.used()) }

// resize gives slots another size.
func (s *spot) resize(size int64) {
	if size == 0 {
		return
	}
	s.cpus, s.amount.cpus = size, size*s.amount.pods
	for i := range s.users {
		s.users[i].took.cpus = size * s.users[i].took.pods
	}
}

func (m *model) at(claim types.UID, node string) *spot {
	for _, s := range m.spots {
		if s.claim == claim && s.node == node {
			return s
		}
	}
	return nil
}

func (m *model) of(uid types.UID) (*spot, int) {
	for _, s := range m.spots {
		for i, u := range s.users {
			if u.uid == uid {
				return s, i
			}
		}
	}
	return nil, 0
}

func (m *model) leave(uid types.UID) bool {
	s, i := m.of(uid)
	if s != nil {
		s.users = slices.Delete(s.users, i, i+1)
	}
	return s != nil
}

func (m *model) clean() {
	m.spots = slices.DeleteFunc(m.spots, func(s *spot) bool { return s.amount == part{} })
}

// machine drives Holds and the model with the same random calls.
type machine struct {
	holds *Holds
	model model
	view  *View
}

func (m *machine) claim(t *rapid.T) types.UID {
	return rapid.SampledFrom([]types.UID{"a", "b", "c"}).Draw(t, "claim")
}

func (m *machine) node(t *rapid.T) string {
	return rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
}

func (m *machine) pod(t *rapid.T) types.UID {
	return rapid.SampledFrom([]types.UID{"p1", "p2", "p3", "p4"}).Draw(t, "pod")
}

// SetClaim: a and b have slots, c has amounts.
func (m *machine) SetClaim(t *rapid.T) {
	c := claimOf(string(m.claim(t)), UseLast, rapid.Int64Range(1, 2).Draw(t, "cpus"), 1)
	if c.UID == "c" {
		c.Amounts, c.Slot = true, ledger.Resources{}
	}
	c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
	m.holds.SetClaim(c)
	m.model.cpus[c.UID] = c.Slot.MilliCPU / 1000
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
	delete(m.model.cpus, uid)
	m.model.spots = slices.DeleteFunc(m.model.spots, func(s *spot) bool { return s.claim == uid })
}

func (m *machine) Change(t *rapid.T) {
	uid := m.claim(t)
	size, known := m.model.cpus[uid]
	add := m.draw(t, size, -2, 3)
	ch := Change{
		Node: m.node(t), Zone: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone"), Lost: rapid.Bool().Draw(t, "lost"),
		Settle: rapid.IntRange(0, 2).Draw(t, "settle"), Add: add.resources(),
	}
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
	s.zone, s.lost = ch.Zone, ch.Lost
	s.resize(size)
	for settle := int64(ch.Settle); settle > 0 && len(s.users) > 0; {
		settle -= s.users[0].took.pods
		s.amount = s.amount.plus(-1, s.users[0].took)
		s.users = s.users[1:]
	}
	used, amount := s.used(), s.amount.plus(1, add)
	s.amount = part{max(amount.cpus, used.cpus), max(amount.pods, used.pods)}
	m.model.clean()
}

func (m *machine) Take(t *rapid.T) {
	uid, claim, node := m.pod(t), m.claim(t), m.node(t)
	s := m.model.at(claim, node)
	size := m.model.cpus[claim]
	if s != nil {
		size = s.cpus
	}
	take := m.draw(t, size, 0, 2)
	if take == (part{}) {
		return
	}
	var present Present
	away := types.UID("")
	if rapid.Bool().Draw(t, "in a cycle") {
		away = m.pod(t)
		present = func(uid types.UID) (ledger.Resources, bool) { return most, uid != away }
	}
	err := m.holds.Take(uid, node, claim, take.resources(), present)
	m.model.leave(uid)
	if s == nil {
		require.ErrorIs(t, err, ErrUsed)
		return
	}
	if at, _ := m.model.of(away); present != nil && at == s && !take.within(s.unused()) {
		m.model.leave(away)
	}
	if !take.within(s.unused()) {
		require.ErrorIs(t, err, ErrUsed)
		return
	}
	require.NoError(t, err)
	s.users = append(s.users, user{uid, take})
}

func (m *machine) Leave(t *rapid.T) {
	uid, node := m.pod(t), rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
	s, _ := m.model.of(uid)
	there := s != nil && (node == "" || s.node == node)
	require.Equal(t, there, m.holds.Leave(uid, node))
	if there {
		m.model.leave(uid)
	}
}

func (m *machine) Restore(t *rapid.T) {
	claim, node := m.claim(t), m.node(t)
	size, known := m.model.cpus[claim]
	amount := m.draw(t, size, 0, 3)
	var consumers []Consumer
	var users []user
	for range rapid.IntRange(0, 3).Draw(t, "consumers") {
		u := user{m.pod(t), m.draw(t, size, 0, 2)}
		users = append(users, u)
		consumers = append(consumers, Consumer{UID: u.uid, Took: u.took.resources()})
	}
	m.holds.Restore(claim, node, "x", amount.resources(), consumers)
	if !known || amount == (part{}) || m.model.at(claim, node) != nil {
		return
	}
	s := &spot{claim: claim, node: node, zone: "x", cpus: size, amount: amount}
	m.model.spots = append(m.model.spots, s)
	for _, u := range users {
		unused := s.unused()
		took := part{min(u.took.cpus, unused.cpus), min(u.took.pods, unused.pods)}
		if at, _ := m.model.of(u.uid); at == nil && took != (part{}) {
			s.users = append(s.users, user{u.uid, took})
		}
	}
}

// Check compares all that Holds says with the model.
func (m *machine) Check(t *rapid.T) {
	for _, uid := range []types.UID{"a", "b", "c"} {
		size, known := m.model.cpus[uid]
		status, ok := m.holds.Status(uid)
		require.Equal(t, known, ok)
		if !known {
			continue
		}
		want := Status{Claim: status.Claim, Zones: map[string]Count{}, Nodes: []NodeStatus{}}
		for _, node := range []string{"n1", "n2"} {
			s := m.model.at(uid, node)
			if s == nil {
				continue
			}
			n := NodeStatus{
				Node: node, Zone: s.zone, Lost: s.lost, Count: Count{int(s.amount.pods), int(s.used().pods)},
				Amount: s.amount.resources(), Took: s.used().resources(), Resized: s.cpus != size,
			}
			for _, u := range s.users {
				n.Consumers = append(n.Consumers, Consumer{UID: u.uid, Took: u.took.resources()})
			}
			want.Nodes = append(want.Nodes, n)
			if s.lost {
				want.Lost = want.Lost.plus(n.Count)
			} else if n.Count != (Count{}) {
				want.Zones[s.zone] = want.Zones[s.zone].plus(n.Count)
			}
			require.Empty(t, n.Took.Exceeds(&n.Amount), "nothing is used twice")
		}
		require.Equal(t, want, status)
		zones := map[string]Count{}
		require.Equal(t, want.Lost, m.holds.Counts(uid, func(zone string, n Count) { zones[zone] = n }))
		require.Equal(t, want.Zones, zones)
	}
	for _, uid := range []types.UID{"p1", "p2", "p3", "p4"} {
		s, i := m.model.of(uid)
		got, ok := m.holds.ConsumerOf(uid)
		require.Equal(t, s != nil, ok)
		if s != nil {
			require.Equal(t, Consumption{Claim: s.claim, Node: s.node, Took: s.users[i].took.resources()}, got)
		}
	}

	was := map[string]string{"n1": m.shown(m.view, "n1"), "n2": m.shown(m.view, "n2")}
	changed := slices.Clone(m.view.Update())
	for node, before := range was {
		var sum int64
		for _, s := range m.model.spots {
			if s.node == node {
				sum += s.unused().cpus
			}
		}
		want := m.shown(nil, node)
		require.Equal(t, want, m.shown(m.view, node))
		unused := m.view.Node(node).Unused(nil)
		require.Equal(t, 1000*sum, unused.MilliCPU)
		if before != want {
			require.Contains(t, changed, node)
		}
		require.False(t, m.view.Stale(node))
	}
}

// shown puts a node of the view, or of the model, into words.
func (m *machine) shown(v *View, node string) string {
	var parts []string
	if v == nil {
		for _, s := range m.model.spots {
			if s.node != node {
				continue
			}
			part := fmt.Sprintf("%s %d CPU:", s.claim, s.amount.cpus)
			for _, u := range s.users {
				part += fmt.Sprintf(" %s %d", u.uid, u.took.cpus)
			}
			parts = append(parts, part)
		}
	} else if n := v.Node(node); n != nil {
		for i := range n.Holds {
			part := fmt.Sprintf("%s %d CPU:", n.Holds[i].Claim.UID, n.Holds[i].Amount.MilliCPU/1000)
			for _, c := range n.Holds[i].Consumers {
				part += fmt.Sprintf(" %s %d", c.UID, c.Took.MilliCPU/1000)
			}
			parts = append(parts, part)
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

// TestAnotherForm: a reservation may change from amounts to slots and back. Its consumers stay, and what they use.
func TestAnotherForm(t *testing.T) {
	s := New()
	c := claimOf("c", UseLast, 2, 1)
	c.Amounts, c.Slot = true, ledger.Resources{}
	s.SetClaim(c)
	s.Change("c", []Change{{Node: "n", Add: *cpus(5, 3)}})
	require.NoError(t, s.Take("p", "n", "c", *cpus(3, 0), nil))
	require.NoError(t, s.Take("q", "n", "c", *cpus(1, 1), nil))
	c.Amounts, c.Slot = false, *cpus(2, 1)
	s.SetClaim(c)
	s.Change("c", []Change{{Node: "n"}})
	require.Equal(t, NodeStatus{
		Node: "n", Count: Count{3, 2}, Amount: *cpus(6, 3), Took: *cpus(4, 2), Consumers: []Consumer{{"p", *cpus(2, 1)}, {"q", *cpus(2, 1)}},
	}, s.StatusOn("c", "n"))
	c.Amounts, c.Slot = true, ledger.Resources{}
	s.SetClaim(c)
	s.Change("c", []Change{{Node: "n", Add: *cpus(-2, 0)}})
	require.Equal(t, *cpus(4, 3), s.StatusOn("c", "n").Amount)
	require.Equal(t, NodeStatus{}, s.StatusOn("c", "other"))
}

// TestHoldsAgainstModel: whatever is called in whatever order, Holds knows what the model knows.
func TestHoldsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		m := &machine{holds: s, model: model{cpus: map[types.UID]int64{}}, view: s.NewView()}
		actions := rapid.StateMachineActions(m)
		actions[""] = m.Check
		t.Repeat(actions)
	})
}
