package holds

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// model is what Holds has to know, in the plainest form.
type model struct {
	cpus  map[types.UID]int64 // slot size of each claim
	spots []*spot
}

// spot is what a claim has on a node.
type spot struct {
	claim      types.UID
	node, zone string
	lost       bool
	cpus       int64
	slots      int
	users      []user
}

type user struct {
	uid   types.UID
	slots int
}

func (s *spot) used() int {
	n := 0
	for _, u := range s.users {
		n += u.slots
	}
	return n
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
	m.spots = slices.DeleteFunc(m.spots, func(s *spot) bool { return s.slots == 0 })
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

func (m *machine) SetClaim(t *rapid.T) {
	c := claimOf(string(m.claim(t)), UseLast, rapid.Int64Range(1, 2).Draw(t, "cpus"), 1)
	c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
	m.holds.SetClaim(c)
	m.model.cpus[c.UID] = c.Slot.MilliCPU / 1000
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
	ch := Change{
		Node: m.node(t), Zone: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone"), Lost: rapid.Bool().Draw(t, "lost"),
		Settle: rapid.IntRange(0, 2).Draw(t, "settle"), Add: rapid.IntRange(-2, 3).Draw(t, "add"),
	}
	m.holds.Change(uid, []Change{ch})
	size, known := m.model.cpus[uid]
	if !known {
		return
	}
	s := m.model.at(uid, ch.Node)
	if s == nil {
		if ch.Add <= 0 {
			return
		}
		s = &spot{claim: uid, node: ch.Node}
		m.model.spots = append(m.model.spots, s)
	}
	s.zone, s.lost, s.cpus = ch.Zone, ch.Lost, size
	for settle := ch.Settle; settle > 0 && len(s.users) > 0; {
		settle -= s.users[0].slots
		s.slots -= s.users[0].slots
		s.users = s.users[1:]
	}
	s.slots = max(s.slots+ch.Add, s.used())
	m.model.clean()
}

func (m *machine) Take(t *rapid.T) {
	uid, claim, node, n := m.pod(t), m.claim(t), m.node(t), rapid.IntRange(1, 2).Draw(t, "slots")
	var present Present
	away := types.UID("")
	if rapid.Bool().Draw(t, "in a cycle") {
		away = m.pod(t)
		present = func(uid types.UID) bool { return uid != away }
	}
	err := m.holds.Take(uid, node, claim, n, present)
	m.model.leave(uid)
	s := m.model.at(claim, node)
	if s == nil {
		require.ErrorIs(t, err, ErrNoSlot)
		return
	}
	if at, _ := m.model.of(away); present != nil && at == s && s.slots-s.used() < n {
		m.model.leave(away)
	}
	if s.slots-s.used() < n {
		require.ErrorIs(t, err, ErrNoSlot)
		return
	}
	require.NoError(t, err)
	s.users = append(s.users, user{uid, n})
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
	claim, node, n := m.claim(t), m.node(t), rapid.IntRange(0, 3).Draw(t, "slots")
	var pods []types.UID
	for range rapid.IntRange(0, 3).Draw(t, "consumers") {
		pods = append(pods, m.pod(t))
	}
	m.holds.Restore(claim, node, "x", n, pods)
	size, known := m.model.cpus[claim]
	if !known || n == 0 || m.model.at(claim, node) != nil {
		return
	}
	s := &spot{claim: claim, node: node, zone: "x", cpus: size, slots: n}
	wanted := map[types.UID]int{}
	for _, uid := range pods {
		if at, _ := m.model.of(uid); at == nil {
			wanted[uid]++
		}
	}
	m.model.spots = append(m.model.spots, s)
	for _, uid := range pods {
		if k := min(wanted[uid], s.slots-s.used()); k > 0 {
			s.users = append(s.users, user{uid, k})
			wanted[uid] = 0
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
			n := NodeStatus{Node: node, Zone: s.zone, Lost: s.lost, Count: Count{s.slots, s.used()}, Resized: s.cpus != size}
			for _, u := range s.users {
				for range u.slots {
					n.Consumers = append(n.Consumers, u.uid)
				}
			}
			want.Nodes = append(want.Nodes, n)
			if s.lost {
				want.Lost = want.Lost.plus(n.Count)
			} else {
				want.Zones[s.zone] = want.Zones[s.zone].plus(n.Count)
			}
			require.LessOrEqual(t, n.Used, n.Slots, "no slot is used twice")
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
			require.Equal(t, Consumption{Claim: s.claim, Node: s.node, Slots: s.users[i].slots}, got)
		}
	}

	was := map[string]string{"n1": m.shown(m.view, "n1"), "n2": m.shown(m.view, "n2")}
	changed := slices.Clone(m.view.Update())
	for node, before := range was {
		var sum int64
		for _, s := range m.model.spots {
			if s.node == node {
				sum += s.cpus * int64(s.slots-s.used())
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
			part := fmt.Sprintf("%s %d CPU:", s.claim, s.cpus*int64(s.slots))
			for _, u := range s.users {
				part += fmt.Sprintf(" %s %d", u.uid, s.cpus*int64(u.slots))
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
