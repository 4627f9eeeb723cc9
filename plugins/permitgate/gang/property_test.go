package gang_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/gang"
)

// TestProtocol drives gangs through random arrivals, failures, timeouts, deletions and restarts. After
// each step the world checks that nobody is let go without a quorum and that a gang which has been
// rolled back has nobody waiting. In the end the mishaps stop, and every gang must become whole by its
// own means: no wake-up may have been lost.
//
// A run takes about a millisecond with the race detector on, so that every test run can afford protocolRuns of them.
// rapid's flags ask for more: -rapid.checks=1000 -rapid.steps=100 is 300,000 longer runs.
func TestProtocol(t *testing.T) {
	const tests, rounds = 5, protocolRuns / rapidChecks / 5
	for name, native := range map[string]bool{"pods": false, "native gangs": true} {
		for i := range tests {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				t.Parallel()
				for range rounds {
					rapid.Check(t, func(t *rapid.T) { protocol(t, native) })
				}
			})
		}
	}
}

const (
	protocolRuns = 10_000
	rapidChecks  = 100 // of one rapid.Check, unless -rapid.checks says otherwise
)

// protocol is one run. Members of native gangs are placed by kube-scheduler in cycles of the whole group.
func protocol(t *rapid.T, native bool) {
	jitter := rapid.Float64Range(0, 0.99)
	w := newWorld(t, rapid.IntRange(2, 12).Draw(t, "capacity"), func() float64 { return jitter.Draw(t, "jitter") })
	w.config.Native = native
	w.config.Rehearse = rapid.Bool().Draw(t, "rehearse")
	w.hinted = rapid.Bool().Draw(t, "hinted")
	w.hopeful = rapid.Bool().Draw(t, "hopeful")
	names := []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "gangs")]
	name := rapid.SampledFrom(names)
	some := func(t *rapid.T, label string, ps []*pod) *pod {
		if len(ps) == 0 {
			t.Skip("none")
		}
		return rapid.SampledFrom(ps).Draw(t, label)
	}
	do := func(t *rapid.T, ok bool) {
		if !ok {
			t.Skip("nothing to do")
		}
	}
	deliverSome := func(t *rapid.T, stream *[]func()) {
		for range rapid.IntRange(2, 6).Draw(t, "events") {
			do(t, deliver(stream))
		}
	}
	cycleEnds := rapid.SampledFrom([]outcome{fine, fine, fine, fine, refusedNode, refusedHints, refusedHints, lateRefusal})
	prepareEnds := rapid.SampledFrom([]outcome{fine, fine, fine, fine, refusedNode})
	rehearsals := rapid.SampledFrom([]string{"", "", "", "a policy"})
	bindEnds := rapid.SampledFrom([]outcome{fine, fine, fine, bindFails, bindFailsButBinds})
	uids := 0
	for _, n := range names {
		// Most runs start with a gang that could be scheduled at once.
		if members := rapid.IntRange(0, 5).Draw(t, "members"); members > 0 {
			w.setGroup(n, &gang.Spec{UID: "first", MinMember: rapid.IntRange(1, members).Draw(t, "minMember")})
			for range members {
				w.createPod(n, false)
			}
		}
	}
	for deliver(&w.plugin) || deliver(&w.sched) {
	}

	t.Repeat(map[string]func(*rapid.T){
		"create pod": func(t *rapid.T) {
			if len(w.order) > 40 {
				t.Skip("enough")
			}
			w.createPod(name.Draw(t, "gang"), rapid.IntRange(0, 9).Draw(t, "held") == 0)
		},
		"delete pod": func(t *rapid.T) {
			var live []*pod
			for _, uid := range w.order {
				if w.pods[uid].exists {
					live = append(live, w.pods[uid])
				}
			}
			w.deletePod(some(t, "pod", live))
		},
		"finish pod": func(t *rapid.T) {
			var running []*pod
			for _, uid := range w.order {
				if p := w.pods[uid]; p.exists && p.bound && p.place == nowhere {
					running = append(running, p)
				}
			}
			w.finish(some(t, "pod", running))
		},
		"purge pod": func(t *rapid.T) {
			var done []*pod
			for _, uid := range w.order {
				if w.pods[uid].done {
					done = append(done, w.pods[uid])
				}
			}
			w.purge(some(t, "pod", done))
		},
		"history event": func(t *rapid.T) { do(t, deliver(&w.history)) },
		"unhold pod": func(t *rapid.T) {
			var held []*pod
			for _, uid := range w.order {
				if w.pods[uid].exists && w.pods[uid].held {
					held = append(held, w.pods[uid])
				}
			}
			w.unhold(some(t, "pod", held))
		},
		"set group": func(t *rapid.T) {
			n := name.Draw(t, "gang")
			spec := &gang.Spec{
				MinMember: rapid.IntRange(-1, 6).Draw(t, "minMember"),
				Timeout:   time.Duration(rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "timeout")) * time.Second,
			}
			if old := w.groups[n]; old != nil && rapid.Bool().Draw(t, "same") {
				spec.UID = old.UID
			} else {
				uids++
				spec.UID = types.UID(fmt.Sprint(uids))
			}
			w.setGroup(n, spec)
		},
		"delete group":  func(t *rapid.T) { w.setGroup(name.Draw(t, "gang"), nil) },
		"plugin event":  func(t *rapid.T) { do(t, deliver(&w.plugin)) },
		"plugin events": func(t *rapid.T) { deliverSome(t, &w.plugin) },
		"sched event":   func(t *rapid.T) { do(t, deliver(&w.sched)) },
		"sched events":  func(t *rapid.T) { deliverSome(t, &w.sched) },
		"pop":           func(t *rapid.T) { do(t, w.pop()) },
		"fit":           func(t *rapid.T) { do(t, w.fit(cycleEnds.Draw(t, "end"))) },
		"list":          func(t *rapid.T) { do(t, w.list()) },
		"cycle":         func(t *rapid.T) { do(t, w.pop() && w.fit(fine) && w.list()) },
		"kick waiting":  func(t *rapid.T) { some(t, "pod", w.at(waiting)).place = rejecting },
		"unreserve": func(t *rapid.T) {
			w.unreserve(some(t, "pod", append(append(w.at(rejecting), w.at(stopped)...), w.at(failing)...)))
		},
		"requeue": func(t *rapid.T) { w.requeue(some(t, "pod", w.at(returning))) },
		"prepare": func(t *rapid.T) { w.prepare(some(t, "pod", w.at(preparing)), prepareEnds.Draw(t, "end")) },
		"preempt": func(t *rapid.T) {
			some(t, "pod", append(w.at(preparing), w.at(barrier)...)).place = stopped
		},
		"rehearsed": func(t *rapid.T) { do(t, w.rehearsed(rehearsals.Draw(t, "end"))) },
		"bind":      func(t *rapid.T) { w.bind(some(t, "pod", w.at(binding)), bindEnds.Draw(t, "end")) },
		"post bind": func(t *rapid.T) { w.bound(some(t, "pod", w.at(postBind))) },
		"act":       func(*rapid.T) { w.act() },
		"node goes": func(*rapid.T) { w.loseNode("node") },
		"others":    func(t *rapid.T) { w.setOthers(rapid.IntRange(0, w.capacity).Draw(t, "others")) },
		"a moment later": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 500).Draw(t, "ms")) * time.Millisecond)
		},
		"much later":     func(t *rapid.T) { w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second) },
		"errors retried": func(*rapid.T) { w.retryErrors() },
		"restart": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "really") != 0 {
				t.Skip("not now")
			}
			w.restart()
		},
		"": func(*rapid.T) { w.verify() },
	})

	endsWhole(t, w, names)
}

// endsWhole stops the mishaps and expects every pod to be bound.
func endsWhole(t *rapid.T, w *world, names []string) {
	t.Helper()
	w.capacity = 1000
	w.others = 0
	w.room()
	live := map[string]int{}
	for _, uid := range w.order {
		if p := w.pods[uid]; p.exists {
			w.unhold(p)
			live[p.gang]++
		}
	}
	for _, n := range names {
		if live[n] > 0 && (w.groups[n] == nil || w.groups[n].MinMember < 1 || w.groups[n].MinMember > live[n]) {
			w.setGroup(n, &gang.Spec{UID: "last", MinMember: live[n]})
		}
	}
	done := func() bool {
		for _, p := range w.pods {
			if p.exists && (!p.bound || p.place != nowhere) {
				return false
			}
		}
		return len(w.plugin) == 0
	}
	// A gang stays away for ten times as long as it has held something before, and no later failure may cost it that
	// time.
	if !w.run(10*w.now.Sub(start)+10*60*time.Second+35*time.Second, done) {
		for _, uid := range w.order {
			if p := w.pods[uid]; p.exists {
				t.Logf("%+v", *p)
			}
		}
		for n, g := range w.gangs {
			t.Logf("gang %s: %s", n, g.Phase())
		}
		t.Fatalf("not every pod was bound")
	}
	for _, n := range names {
		if g, ok := w.gangs[n]; ok && live[n] > 0 && g.Phase() != gang.Whole {
			t.Fatalf("gang %s is in %s", n, g.Phase())
		}
	}
}
