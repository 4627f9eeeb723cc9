package act

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
)

const (
	cooldown    = 30 * time.Minute
	readyWithin = 10 * time.Minute
	grace       = 30 * time.Second
	day         = 24 * time.Hour
)

// workload is a controller with its pods.
type workload struct {
	name       string
	controller types.UID
	gone       bool
	wanted     int64
	pods       []*pod
	excess     int64
	// away is how many of its pods were evicted and have no pod in their place yet.
	away int
}

type pod struct {
	uid          types.UID
	bound, ready bool
}

// batch is what a process has written, and has not asked for yet.
type batch struct {
	status  *v1alpha1.ZoneRebalance
	version int
	written time.Time
	moves   []types.UID
}

// world is a cluster in which any number of processes work, some of them by a status that is old, and end at any time.
type world struct {
	*rapid.T
	now       time.Time
	stored    *v1alpha1.ZoneRebalance
	past      []*v1alpha1.ZoneRebalance // what was stored; the version is the index
	workloads []*workload
	batches   []*batch
	evictions []time.Time
	made      int
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	w.stored = &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	w.stored.Spec.Cooldown = &metav1.Duration{Duration: cooldown}
	w.stored.Spec.MaxAtOnce = ptr.To(rapid.Int32Range(1, 3).Draw(t, "maxAtOnce"))
	w.stored.Spec.MaxPerHour = ptr.To(rapid.Int32Range(1, 6).Draw(t, "maxPerHour"))
	w.past = append(w.past, w.stored)
	for i := range 5 {
		c := &workload{name: fmt.Sprint("Deployment shop/", i), controller: types.UID(fmt.Sprint("set-", i)), wanted: 3, excess: 2}
		for range c.wanted {
			w.addPod(c, true)
		}
		w.workloads = append(w.workloads, c)
	}
	return w
}

func (w *world) addPod(c *workload, ready bool) {
	w.made++
	c.pods = append(c.pods, &pod{uid: types.UID(fmt.Sprint("pod-", w.made)), bound: ready, ready: ready})
}

func (w *world) observe() *Observed {
	find := func(same func(c *workload) bool) *workload {
		return w.workloads[slices.IndexFunc(w.workloads, same)]
	}
	return &Observed{
		Now: w.now,
		Runs: func(m *v1alpha1.RebalanceMove) bool {
			_, p := w.find(m.UID)
			return p != nil
		},
		Replicas: func(controller types.UID) Replicas {
			c := find(func(c *workload) bool { return c.controller == controller })
			out := Replicas{Gone: c.gone, Wanted: c.wanted, Live: int64(len(c.pods)), ReadyWithin: readyWithin}
			for _, p := range c.pods {
				if p.bound {
					out.Bound++
				}
				if p.ready {
					out.Ready++
				}
			}
			return out
		},
		Excess: func(name string) int64 { return find(func(c *workload) bool { return c.name == name }).excess },
	}
}

func (w *world) find(uid types.UID) (*workload, *pod) {
	for _, c := range w.workloads {
		for _, p := range c.pods {
			if p.uid == uid {
				return c, p
			}
		}
	}
	return nil, nil
}

// write stores a status that follows from a version, unless there is a newer one.
func (w *world) write(r *v1alpha1.ZoneRebalance, version int) bool {
	if version != len(w.past)-1 {
		return false
	}
	w.stored = r.DeepCopy()
	w.past = append(w.past, w.stored)
	return true
}

// look is that of a process, which may read a status that is old. Its batch is asked for later, or never.
func (w *world) look() {
	version := max(0, len(w.past)-1-rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(w.T, "lag"))
	r, seen := w.past[version].DeepCopy(), w.observe()
	Follow(r, seen)
	most, _, _ := MayBegin(r, w.now)
	var moves []v1alpha1.RebalanceMove
	for _, c := range w.workloads {
		settled := !c.gone && int64(len(c.pods)) == c.wanted && !slices.ContainsFunc(c.pods, func(p *pod) bool { return !p.ready })
		if len(moves) < most && settled && c.excess > 0 && len(c.pods) > 1 &&
			Rests([]*v1alpha1.ZoneRebalance{r}, cooldown, c.name, seen) == "" && rapid.Bool().Draw(w.T, "moved") {
			moves = append(moves, v1alpha1.RebalanceMove{
				MovedPod: v1alpha1.MovedPod{Workload: c.name, Name: string(c.pods[0].uid)}, UID: c.pods[0].uid, Controller: c.controller,
				Replicas: c.wanted,
			})
		}
	}
	if len(moves) > 0 {
		w.checkRests(r, moves)
		failures := failuresOf(r, w.now)
		Begin(r, moves, slices.Repeat([]time.Duration{grace}, len(moves)), seen)
		for workload, now := range failuresOf(r, w.now) {
			require.GreaterOrEqual(w, now, failures[workload], "failures of %s are not forgotten by another move", workload)
		}
	}
	if !w.write(r, version) || len(moves) == 0 {
		return
	}
	b := &batch{status: r, version: len(w.past) - 1, written: w.now}
	for _, m := range moves {
		b.moves = append(b.moves, m.UID)
	}
	w.batches = append(w.batches, b)
}

// ask asks for what a process has written some time ago. The answers may be lost, as may what it then writes.
func (w *world) ask() {
	if len(w.batches) == 0 {
		return
	}
	b := w.batches[0]
	w.batches = w.batches[1:]
	for _, uid := range b.moves {
		c, p := w.find(uid)
		if w.now.Sub(b.written) > AskWithin || p == nil {
			Record(b.status, uid, Declined, "late", w.now)
			continue
		}
		answer := rapid.SampledFrom([]Answer{
			Accepted, Accepted, Accepted, Unknown, Declined, Exhausted, Refused,
		}).Draw(w.T, "answer")
		if answer == Accepted || answer == Unknown && rapid.Bool().Draw(w.T, "has an effect") {
			c.pods = slices.DeleteFunc(c.pods, func(other *pod) bool { return other == p })
			c.away++
			w.evictions = append(w.evictions, w.now)
			require.LessOrEqual(w, c.away, 1, "of %s one pod at a time is away", c.name)
		}
		Record(b.status, uid, answer, "", w.now)
	}
	if rapid.Bool().Draw(w.T, "writes what was answered") {
		w.write(b.status, b.version)
	}
}

// failuresOf has those of the last move of each workload, unless it has lasted.
func failuresOf(r *v1alpha1.ZoneRebalance, now time.Time) map[string]int64 {
	out := map[string]int64{}
	for _, m := range r.Status.Moves {
		if out[m.Workload] = m.Failures; m.State == v1alpha1.MoveMoved && now.Sub(m.At.Time) >= day/2 {
			out[m.Workload] = 0
		}
	}
	return out
}

// checkRests: what has failed rests, and three workloads that fail in a row stop all.
func (w *world) checkRests(r *v1alpha1.ZoneRebalance, moves []v1alpha1.RebalanceMove) {
	ended := slices.Clone(r.Status.Moves)
	slices.SortStableFunc(ended, func(a, b v1alpha1.RebalanceMove) int { return b.At.Compare(a.At.Time) })
	for _, m := range moves {
		last := slices.IndexFunc(ended, func(e v1alpha1.RebalanceMove) bool { return e.Workload == m.Workload })
		if last < 0 {
			continue
		}
		rest := time.Duration(0)
		switch e := ended[last]; {
		case Failed(&e):
			rest = min(cooldown<<min(e.Failures-1, 8), day)
		case e.State == v1alpha1.MoveBudgetExhausted:
			rest = cooldown
		}
		require.GreaterOrEqual(w, w.now.Sub(ended[last].At.Time), rest, "%s rests after %+v", m.Workload, ended[last])
	}
	failed := map[string]bool{}
	for _, e := range ended {
		if e.Generation != r.Generation || e.State == v1alpha1.MoveMoved || e.State == v1alpha1.MoveUndone || w.now.Sub(e.At.Time) >= cooldown {
			break
		}
		if Failed(&e) {
			failed[e.Workload] = true
		}
	}
	require.Less(w, len(failed), 3, "moves of three workloads have failed a moment ago")
}

// check is called after each step.
func (w *world) check() {
	most := int(*w.stored.Spec.MaxPerHour)
	if n := len(w.evictions); n > most {
		require.Greater(w, w.evictions[n-1].Sub(w.evictions[n-1-most]), time.Hour, "more than %d evictions within an hour", most)
	}
	underWay := map[string]bool{}
	for _, m := range UnderWay(w.stored) {
		require.False(w, underWay[m.Workload], "two moves of %s", m.Workload)
		underWay[m.Workload] = true
	}
	require.LessOrEqual(w, len(underWay), int(*w.stored.Spec.MaxAtOnce))
	require.LessOrEqual(w, len(w.stored.Status.Moves), 400, "what the API admits")
}

// steps is how many things happen in a history.
const steps = 150

// TestProcesses: whatever happens in which order, to any number of processes of which some read what is old, budgets
// are kept, what fails rests, and each move is over in the end.
func TestProcesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		events := []struct {
			weight int
			happen func(c *workload)
		}{
			{25, func(*workload) { w.look() }},
			{20, func(*workload) { w.ask() }},
			{1, func(*workload) { w.batches = nil }}, // the processes end
			{20, func(*workload) {
				w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
					300 * time.Millisecond, 5 * time.Second, AskWithin, time.Minute, time.Minute, 6 * time.Minute, cooldown, 2 * time.Hour, day,
				}).Draw(t, "for"))
			}},
			{20, func(*workload) { w.replace() }},
			{5, func(c *workload) { c.setReady(true) }},
			{1, func(c *workload) { c.setReady(false) }},
			{4, func(c *workload) { c.excess++ }},
			{1, func(c *workload) {
				c.wanted, c.away = rapid.Int64Range(2, 4).Draw(t, "to"), 0
				c.pods = c.pods[:min(int64(len(c.pods)), c.wanted)]
			}},
			{1, func(c *workload) {
				c.gone, c.pods = c.name == w.workloads[0].name, nil // the others are made again at once
				for !c.gone && int64(len(c.pods)) < c.wanted {
					w.addPod(c, true)
				}
				c.away = 0
			}},
			{1, func(*workload) {
				edited := w.stored.DeepCopy()
				edited.Generation++
				w.write(edited, len(w.past)-1)
			}},
		}
		var each []int
		for i, e := range events {
			each = append(each, slices.Repeat([]int{i}, e.weight)...)
		}
		for range steps {
			events[rapid.SampledFrom(each).Draw(t, "event")].happen(rapid.SampledFrom(w.workloads).Draw(t, "workload"))
			w.check()
		}
		w.now = w.now.Add(time.Hour)
		Follow(w.stored, w.observe())
		require.Empty(t, UnderWay(w.stored), "each move is over in the end")
		evictions += len(w.evictions)
	})
	require.Greater(t, evictions, 100)
}

var evictions int // of all histories

// replace makes the pods that are missing. Most of them are ready, and where fewer are too many.
func (w *world) replace() {
	for _, c := range w.workloads {
		for int64(len(c.pods)) < c.wanted && !c.gone {
			w.addPod(c, rapid.IntRange(0, 4).Draw(w.T, "ready") > 0)
			c.away = max(0, c.away-1)
			if rapid.IntRange(0, 3).Draw(w.T, "better") > 0 {
				c.excess = max(0, c.excess-1)
			}
		}
	}
}

func (c *workload) setReady(ready bool) {
	for _, p := range c.pods {
		p.bound, p.ready = true, ready
	}
}
