package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// holdsMachine drives a ledger and the model with the events of machine and those of holds.
type holdsMachine struct {
	machine
	holds holdsModel
	view  HoldsView
	// touched are the claims whose owners spoke since the last check.
	touched map[ClaimID]bool
}

var claimIDs = []ClaimID{{Reservation, "r1"}, {Reservation, "r2"}, {Gang, "g1"}, {Gang, "g2"}}

// SetNode draws small nodes, so that pods and slots compete.
func (m *holdsMachine) SetNode(t *rapid.T) {
	n := makeNode(m.nodeName(t), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"))
	n.Status.Allocatable = list("cpu", fmt.Sprintf("%dm", rapid.IntRange(2, 12).Draw(t, "cpu")),
		"memory", "3Ki", "pods", fmt.Sprint(rapid.IntRange(2, 6).Draw(t, "pods")))
	n.UID = "u1"
	m.ledger.UpdateNode(n)
	m.model.setNode(n)
}

func (m *holdsMachine) RemoveNode(t *rapid.T) {
	gone := makeNode(m.nodeName(t), "")
	gone.UID = "u1"
	_, known := m.model.nodes[gone.Name]
	require.Equal(t, known, m.ledger.RemoveNode(gone))
	if known {
		m.model.removeNode(gone.Name)
	}
}

func (m *holdsMachine) claim(t *rapid.T) Claim {
	id := rapid.SampledFrom(claimIDs).Draw(t, "claim")
	c := Claim{
		ID: id, Name: string(id.UID),
		Priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
		Mode:     rapid.SampledFrom([]Mode{Headroom, Guarantee}).Draw(t, "mode"),
		Since:    t0.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Minute),
		Wanted:   rapid.IntRange(0, 5).Draw(t, "wanted"),
		Filling:  rapid.Bool().Draw(t, "filling"),
	}
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
		c.Deadline = m.now.Add(time.Minute)
	}
	return c
}

func (m *holdsMachine) slots(t *rapid.T) []Slot {
	var slots []Slot
	seen := map[holdKey]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "slots") {
		s := Slot{Node: m.nodeName(t), Count: rapid.IntRange(0, 3).Draw(t, "count"), Settle: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "settle")}
		s.Requests = Resources{MilliCPU: rapid.Int64Range(0, 4).Draw(t, "cpu")}
		if rapid.IntRange(0, 3).Draw(t, "memory") == 0 {
			s.Requests.Memory = 1 << 10
		}
		if rapid.IntRange(0, 2).Draw(t, "for") == 0 {
			s.For, s.Count = m.uid(t), min(s.Count, 1)
		}
		if key := (holdKey{s.Node, s.For}); !seen[key] {
			seen[key] = true
			slots = append(slots, s)
		}
	}
	return slots
}

// place checks one outcome of PlaceHolds or ChangeHolds, and that a refusal changes nothing.
func (m *holdsMachine) place(t *rapid.T, spec Claim, slots []Slot, all bool) {
	before, held := content(m.ledger), m.heldBy(spec.ID)
	want := m.holds.place(spec, slots, all)
	var got error
	var freed []string
	if all {
		freed, got = m.ledger.PlaceHolds(spec, slots)
	} else {
		freed, got = m.ledger.ChangeHolds(spec.ID, slots)
	}
	if want != nil {
		require.ErrorIs(t, got, want)
		require.Empty(t, cmp.Diff(before, content(m.ledger), cmpopts.EquateEmpty()))
		return
	}
	require.NoError(t, got)
	less := []string{}
	after := m.heldBy(spec.ID)
	for node, was := range held {
		if is := after[node]; slices.ContainsFunc(resourceNames, func(name v1.ResourceName) bool { return is.amount(name) < was.amount(name) }) {
			less = append(less, node)
		}
	}
	require.ElementsMatch(t, less, freed)
	m.touched[spec.ID] = true
}

// heldBy sums the unused slots of a claim on each node.
func (m *holdsMachine) heldBy(id ClaimID) map[string]Resources {
	held := map[string]Resources{}
	for node := range m.model.nodes {
		held[node] = m.holds.held(node, func(c *Claim) bool { return c.ID == id })
	}
	return held
}

func (m *holdsMachine) Place(t *rapid.T) { m.place(t, m.claim(t), m.slots(t), true) }

func (m *holdsMachine) Change(t *rapid.T) {
	id := rapid.SampledFrom(claimIDs).Draw(t, "claim")
	c := m.holds.claims[id]
	if c == nil {
		_, err := m.ledger.ChangeHolds(id, m.slots(t))
		require.ErrorIs(t, err, ErrNoClaim)
		return
	}
	m.place(t, c.spec, m.slots(t), false)
}

func (m *holdsMachine) SetClaim(t *rapid.T) {
	spec := m.claim(t)
	require.NoError(t, m.ledger.SetClaim(spec))
	if c := m.holds.claims[spec.ID]; c != nil {
		c.spec = spec
	} else {
		m.holds.claims[spec.ID] = &modelClaim{spec: spec, holds: map[holdKey]*modelHold{}}
	}
	m.touched[spec.ID] = true
}

func (m *holdsMachine) Release(t *rapid.T) {
	id := rapid.SampledFrom(claimIDs).Draw(t, "claim")
	c := m.holds.claims[id]
	m.touched[id] = true
	drop := func(which func(holdKey) bool) []string {
		freed := map[string]bool{}
		if c != nil {
			for key, h := range c.holds {
				if which(key) {
					delete(c.holds, key)
					if h.unused() > 0 {
						freed[key.node] = true
					}
				}
			}
		}
		return slices.Sorted(maps.Keys(freed))
	}
	var got, want []string
	switch rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		uid := m.uid(t)
		want, got = drop(func(key holdKey) bool { return key.pod == uid }), m.ledger.ReleaseMember(id, uid)
	case 1:
		node := m.nodeName(t)
		want, got = drop(func(key holdKey) bool { return key.node == node }), m.ledger.ReleaseNode(id, node)
	default:
		want, got = drop(func(holdKey) bool { return true }), m.ledger.ReleaseHolds(id)
		delete(m.holds.claims, id)
	}
	require.Equal(t, want, got)
}

func (m *holdsMachine) ExpireHolds(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "passes"))
	due := map[ClaimID]bool{}
	for id, c := range m.holds.claims {
		if d := c.spec.Deadline; !d.IsZero() && !d.After(m.now) {
			due[id] = true
			delete(m.holds.claims, id)
		}
	}
	got := map[ClaimID]bool{}
	for _, r := range m.ledger.ExpireHolds(m.now) {
		got[r.Claim.ID] = true
	}
	require.Equal(t, due, got)
	if next, ok := m.ledger.NextDeadline(); ok {
		require.True(t, next.After(m.now))
	}
}

func (m *holdsMachine) asker(t *rapid.T) Asker {
	return Asker{
		Priority:    rapid.Int32Range(0, 2).Draw(t, "pod priority"),
		Claims:      rapid.SliceOfNDistinct(rapid.SampledFrom(claimIDs), 0, 2, rapid.ID[ClaimID]).Draw(t, "claims"),
		Use:         rapid.SampledFrom([]Use{UseLast, UseFirst, UseOnly}).Draw(t, "use"),
		IgnoreHolds: rapid.IntRange(0, 5).Draw(t, "ignore") == 0,
	}
}

// admission is what a cycle gives that sees what the ledger does.
func (m *holdsMachine) admission(node string, who Asker) *Admission {
	return &Admission{
		Asker: who, Requested: m.holds.requested(node), Allocatable: m.holds.allocatable(node),
		Present: func(uid types.UID) bool { return m.model.pods[uid].node == node },
	}
}

func (m *holdsMachine) AssumeOnHold(t *rapid.T) {
	uid, node, who := m.uid(t), m.nodeName(t), m.asker(t)
	pod := m.pod(t, uid)
	m.now = m.now.Add(time.Second)
	before := content(m.ledger)
	adm := m.admission(node, who)
	got, err := m.ledger.AssumePodOnHold(pod, node, adm, m.now)
	if known, ok := m.model.pods[uid]; ok {
		require.ErrorIs(t, err, map[State]error{Assumed: ErrAssumed, Added: ErrAdded}[known.state])
		return
	}
	want, hold, refused := m.holds.admit(pod, node, &who)
	if refused != nil {
		require.Error(t, err)
		require.Condition(t, func() bool { return isAny(err, ErrHeld, ErrNoSlot) })
		require.Empty(t, cmp.Diff(before, content(m.ledger), cmpopts.EquateEmpty()))
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, got)

	// Forget undoes Assume exactly, as if neither had been.
	if rapid.Bool().Draw(t, "forget") {
		require.True(t, m.ledger.ForgetPod(uid, node))
		require.Empty(t, cmp.Diff(before, content(m.ledger), cmpopts.EquateEmpty()))
		m.ledger.TakeNews()
		return
	}
	m.model.pods[uid] = modelPod{object: pod, node: node, state: Assumed, assumed: m.now}
	if hold != nil {
		hold.consumers = append(hold.consumers, uid)
		m.touched[got] = true
	}
	// Whoever was let in leaves what is held to those that hold it.
	sum, limit := m.holds.requested(node), m.holds.allocatable(node)
	held := m.holds.held(node, func(c *Claim) bool {
		return !who.IgnoreHolds && (c.Priority >= who.Priority || slices.Contains(who.Claims, c.ID))
	})
	sum.add(&held, 1)
	requests := podRequests(pod, DefaultOptions().Requests)
	for _, name := range resourceNames {
		if held.amount(name) > 0 && requests.amount(name) > 0 {
			require.LessOrEqual(t, sum.amount(name), limit.amount(name), "%s of %s", name, node)
		}
	}
}

func (m *holdsMachine) Views(t *rapid.T) {
	m.ledger.UpdateHoldsView(&m.view)
	var fresh HoldsView
	m.ledger.UpdateHoldsView(&fresh)
	require.Len(t, m.view.nodes, len(fresh.nodes))
	require.Equal(t, len(fresh.nodes) == 0, m.view.Empty())
	m.ledger.UpdateSnapshot(m.kept)
	for name, held := range fresh.nodes {
		require.Same(t, held, m.view.Node(name))
		require.Same(t, held, m.kept.Node(name).Holds)
	}
	for _, n := range m.kept.Nodes() {
		require.Same(t, fresh.Node(n.Node.Name), n.Holds)
		request := Resources{MilliCPU: rapid.Int64Range(0, 4).Draw(t, "request"), Memory: rapid.Int64Range(0, 1).Draw(t, "memory") << 10, Pods: 1}
		for _, view := range []*HoldsView{&m.view, &fresh} {
			if view.Leaves(&request, &n.Allocatable, &n.Requested) {
				verdict := Fits(&request, &n.Allocatable, &n.Requested, n.Holds, &Asker{UID: "nobody"}, func(types.UID) bool { return false })
				require.True(t, verdict.Fits, "no holds of the view were to keep it off")
			}
		}
	}
	require.Zero(t, m.ledger.UpdateHoldsView(&m.view), "nothing happened in between")
}

// Check compares what is held with the model, after machine's check of the rest.
func (m *holdsMachine) Check(t *rapid.T) {
	pruned := m.holds.prune()
	m.machine.Check(t)
	claims := m.ledger.Claims()
	require.Len(t, claims, len(m.holds.claims))
	news := map[ClaimID]bool{}
	for _, n := range m.ledger.TakeNews() {
		news[n.Claim] = n.Changed || len(n.Lost) > 0
	}
	for id := range pruned {
		require.True(t, news[id] || m.touched[id], "%v changed without news", id)
	}

	consumers := map[types.UID]bool{}
	for _, s := range claims {
		c := m.holds.claims[s.ID]
		require.NotNil(t, c)
		require.Equal(t, c.spec, s.Claim)
		require.Equal(t, []int{c.total(), c.used(), c.missing()}, []int{s.Slots, s.Used, s.Missing})
		require.Len(t, s.Holds, len(c.holds))
		over := map[string]int{}
		for _, h := range s.Holds {
			w := c.holds[holdKey{h.Node, h.For}]
			require.NotNil(t, w)
			require.True(t, w.size.Equal(&h.Requests))
			require.Equal(t, w.slots, h.Slots)
			require.True(t, slices.Equal(w.consumers, h.Consumers), "want %v, got %v", w.consumers, h.Consumers)
			require.LessOrEqual(t, len(h.Consumers), h.Slots)
			require.Equal(t, m.model.nodes[h.Node].Labels[v1.LabelTopologyZone], h.Zone)
			for _, uid := range h.Consumers {
				require.False(t, consumers[uid], "%s uses two slots", uid)
				consumers[uid] = true
				require.Equal(t, h.Node, m.model.pods[uid].node)
				p, _ := m.ledger.GetPod(uid)
				require.Equal(t, s.ID, p.Claim)
			}
			over[h.Node] += h.Excess
		}
		for node, n := range over {
			require.Equal(t, m.holds.excess(node)[s.ID], n, "%s on %s", s.Name, node)
		}
		require.Equal(t, !m.holds.olderGang(&c.spec), m.ledger.MayCollect(s.ID))
	}
	queue := []ClaimID{}
	for _, s := range claims {
		if m.holds.claims[s.ID].unfilled() {
			queue = append(queue, s.ID)
		}
	}
	require.Equal(t, queue, m.ledger.Queue())
	clear(m.touched)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// TestHoldsAgainstModel feeds random events of pods, nodes and holds to a ledger and to a simple model, and
// compares the two after each of them: no slot is used twice, nobody takes what is held from him, what is
// refused changes nothing, and Forget undoes Assume.
func TestHoldsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &holdsMachine{
			machine: machine{
				ledger: New(DefaultOptions()),
				model:  model{pods: map[types.UID]modelPod{}, nodes: map[string]*v1.Node{}},
				kept:   NewSnapshot(),
				now:    t0,
			},
			touched: map[ClaimID]bool{},
		}
		m.holds = holdsModel{model: &m.machine.model, claims: map[ClaimID]*modelClaim{}}
		t.Repeat(map[string]func(*rapid.T){
			"":             m.Check,
			"Assume":       m.Assume,
			"AssumeOnHold": m.AssumeOnHold,
			"Finish":       m.Finish,
			"Forget":       m.Forget,
			"Expire":       m.Expire,
			"Add":          m.Add,
			"Update":       m.Update,
			"Remove":       m.Remove,
			"SetNode":      m.SetNode,
			"RemoveNode":   m.RemoveNode,
			"Place":        m.Place,
			"PlaceMore":    m.Place,
			"Change":       m.Change,
			"SetClaim":     m.SetClaim,
			"Release":      m.Release,
			"ExpireHolds":  m.ExpireHolds,
			"Views":        m.Views,
		})
	})
}
