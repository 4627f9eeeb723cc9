package act

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
)

// server is an API server with pods, their controllers, and the status of a ZoneRebalance, written against its version.
type server struct {
	t       *rapid.T
	now     time.Time
	stored  *v1alpha1.ZoneRebalance
	version int
	pods    map[types.UID]Pod
	hash    int
	serial  int
	// evictions has when pods were evicted.
	evictions map[types.UID]time.Time
	// waiting are the evicted pods for which none has come yet.
	waiting map[types.UID]bool
	// gangs are known by their UIDs, which the controllers of their pods have too; nil if there are none.
	gangs map[types.UID]*gangOfServer
}

// process is a controller. Its memory is what it has read and what it is about to do; it may end between any two
// steps, and another one may be at work at the same time.
type process struct {
	read    *v1alpha1.ZoneRebalance
	version int
	evict   []v1alpha1.RebalanceMove
	written time.Time // its status, by which it evicts
}

const zones = "abc"

func newServer(t *rapid.T) *server {
	s := &server{t: t, now: start, pods: map[types.UID]Pod{}, evictions: map[types.UID]time.Time{}, waiting: map[types.UID]bool{}}
	s.stored = &v1alpha1.ZoneRebalance{Spec: v1alpha1.ZoneRebalanceSpec{
		Mode: v1alpha1.RebalanceEvict, MaxAtOnce: ptr.To(rapid.Int32Range(1, 3).Draw(t, "maxAtOnce")),
		MaxPerHour: ptr.To(rapid.Int32Range(1, 5).Draw(t, "maxPerHour")),
	}}
	for workload := range rapid.IntRange(1, 4).Draw(t, "workloads") {
		for range rapid.IntRange(2, 6).Draw(t, "pods") {
			s.create(fmt.Sprint("w", workload), "a", true)
		}
	}
	return s
}

func (s *server) create(workload, zone string, ready bool) {
	s.serial++
	uid := types.UID(fmt.Sprint("pod-", s.serial))
	node := ""
	if zone != "" {
		node = "node-" + zone
	}
	s.pods[uid] = Pod{
		UID: uid, Name: string(uid), Controller: types.UID(workload), Node: node, Zone: zone, Ready: ready,
		Created: s.now, Grace: 30 * time.Second,
	}
}

// excess is how many pods of a workload zone a has more than one over the emptiest.
func (s *server) excess(workload string) int64 {
	in := map[string]int64{}
	for _, p := range s.pods {
		if string(p.Controller) == workload && !p.Ending {
			in[p.Zone]++
		}
	}
	least := min(in["a"], in["b"], in["c"])
	total := int64(0)
	for _, zone := range zones {
		total += max(0, in[string(zone)]-least-1)
	}
	return total
}

func (s *server) observe() *Observed {
	o := &Observed{Now: s.now, Hash: fmt.Sprint(s.hash), Pods: map[types.UID]Pod{}, Excess: s.excess, Stays: func(types.UID) string { return "" }}
	maps.Copy(o.Pods, s.pods)
	o.Follows = func([]v1alpha1.RebalanceMove) (string, time.Time) {
		if rapid.IntRange(0, 9).Draw(s.t, "does not follow") == 0 {
			return "its zone is full", time.Time{}
		}
		return "", time.Time{}
	}
	s.observeGangs(o)
	return o
}

// plan moves a pod of each workload from its fullest zone to another.
func (s *server) plan(r *v1alpha1.ZoneRebalance) {
	var moves []v1alpha1.RebalanceMove
	uids := make([]types.UID, 0, len(s.pods))
	for uid := range s.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	inBatch := map[types.UID]int64{}
	for _, uid := range uids {
		p := s.pods[uid]
		if p.Zone != "a" || p.Ending || s.excess(string(p.Controller)) == 0 || Rests(r, string(p.Controller), uid, s.now) != "" {
			continue
		}
		inBatch[p.Controller]++
		moves = append(moves, v1alpha1.RebalanceMove{
			Namespace: "shop", Name: p.Name, UID: uid, Workload: string(p.Controller), Controller: p.Controller,
			From: "a", To: []string{"b", "c"}, Batch: inBatch[p.Controller],
		})
	}
	slices.SortStableFunc(moves, func(a, b v1alpha1.RebalanceMove) int { return int(a.Batch - b.Batch) })
	Adopt(r, moves, rapid.Bool().Draw(s.t, "complete"), s.now)
	r.Status.Cluster.Hash = fmt.Sprint(s.hash)
}

// decide is the first step of a process: it reads, decides, and writes the status.
func (p *process) decide(s *server) {
	r := p.read.DeepCopy()
	seen := s.observe()
	step := Next(r, seen)
	s.checkGangs(seen, step, UnderWay(p.read) == 0)
	if step.Replan {
		s.plan(r)
		step.Evict = nil
	}
	p.evict = nil
	if p.version != s.version { // a conflict: it has read too early
		return
	}
	s.store(p, r)
	p.evict, p.written = step.Evict, s.now
}

func (s *server) store(p *process, r *v1alpha1.ZoneRebalance) {
	s.version++
	s.stored, p.read, p.version = r.DeepCopy(), r.DeepCopy(), s.version
	if len(r.Status.Moves) > 600 {
		s.t.Fatalf("%d moves in a status", len(r.Status.Moves))
	}
}

// evictNext is a further step: it asks for one eviction. The answer is recorded by the last one.
func (p *process) evictNext(s *server) {
	if s.now.Sub(p.written) > AskWithin {
		p.evict = nil
		return
	}
	m := p.evict[0]
	p.evict = p.evict[1:]
	var err error
	pod, ok := s.pods[m.UID]
	switch {
	case !ok || pod.Ending: // gone
	case rapid.IntRange(0, 4).Draw(s.t, "refused") == 0:
		err = errors.New("a budget is in the way")
	default:
		if at, twice := s.evictions[m.UID]; twice {
			s.t.Fatalf("pod %s is evicted at %s and again", m.UID, at)
		}
		s.checkCooldown(&m)
		s.evictions[m.UID], s.waiting[m.UID] = s.now, true
		s.checkBudget(m.UID)
		pod.Ending = true
		s.pods[m.UID] = pod
	}
	Record(p.read, m.UID, err, s.now)
	if len(p.evict) == 0 && p.version == s.version {
		s.store(p, p.read)
	}
}

// checkBudget: never more than maxPerHour in an hour, nor than maxAtOnce whose pods in their place have not come.
func (s *server) checkBudget(evicts types.UID) {
	perHour := 0
	for _, at := range s.evictions {
		if s.now.Sub(at) <= time.Hour {
			perHour++
		}
	}
	if perHour > int(*s.stored.Spec.MaxPerHour) {
		s.t.Fatalf("%d evictions within an hour, of %d", perHour, *s.stored.Spec.MaxPerHour)
	}
	gangs, moves := map[types.UID]bool{}, 0
	for i := range s.stored.Status.Moves {
		if m := &s.stored.Status.Moves[i]; m.State == evicting || m.State == evicted || m.UID == evicts {
			if gangs[m.PodGroup] = true; m.PodGroup == "" {
				moves++
			}
		}
	}
	if moves > int(*s.stored.Spec.MaxAtOnce) {
		s.t.Fatalf("%d moves at once, of %d", moves, *s.stored.Spec.MaxAtOnce)
	}
	if len(gangs) > 1 {
		s.t.Fatalf("moves beside those of a gang: %v", gangs)
	}
	if Stopped(s.stored, s.now) && s.now.Sub(s.stored.Status.Stop.At.Time) > 5*time.Second { // until then another controller may ask
		s.t.Fatal("a pod is evicted although the plan is stopped")
	}
}

// TestNeverMoreThanTheBudget: in any order of what controllers, kubelets, schedulers and other people do, with
// failovers between any two steps and with two controllers at a time, no pod is evicted twice, never more at once or
// within an hour than allowed, and none while the plan is stopped.
func TestNeverMoreThanTheBudget(t *testing.T) {
	evictions, moves, stops := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(t)
		var processes []*process
		for range rapid.IntRange(1, 2).Draw(t, "controllers") {
			processes = append(processes, &process{read: s.stored.DeepCopy()})
		}
		one := func() *process { return rapid.SampledFrom(processes).Draw(t, "controller") }
		ending := func() types.UID {
			var out []types.UID
			for uid, pod := range s.pods {
				if pod.Ending {
					out = append(out, uid)
				}
			}
			slices.Sort(out)
			if len(out) == 0 {
				return ""
			}
			return rapid.SampledFrom(out).Draw(t, "pod")
		}
		do := map[string]func(*rapid.T){
			"work": func(*rapid.T) {
				if p := one(); len(p.evict) > 0 {
					p.evictNext(s)
				} else {
					p.decide(s)
				}
			},
			"read": func(*rapid.T) {
				if p := one(); len(p.evict) == 0 {
					p.read, p.version = s.stored.DeepCopy(), s.version
				}
			},
			"failover": func(*rapid.T) { *one() = process{read: s.stored.DeepCopy(), version: s.version} },
			"time": func(t *rapid.T) {
				s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 60, 400, 2000}).Draw(t, "seconds")) * time.Second)
			},
			"end": func(*rapid.T) { delete(s.pods, ending()) },
			"replace": func(t *rapid.T) { // by a pod in a zone, or nowhere yet
				uid := ending()
				if uid == "" || !s.waiting[uid] {
					return
				}
				delete(s.waiting, uid)
				s.create(
					string(s.pods[uid].Controller),
					rapid.SampledFrom([]string{"b", "b", "b", "b", "c", "c", "c", "a", ""}).Draw(t, "zone"),
					rapid.Bool().Draw(t, "ready"),
				)
			},
			"ready": func(*rapid.T) {
				for uid, pod := range s.pods {
					pod.Ready = true
					s.pods[uid] = pod
				}
			},
			"nodes": func(*rapid.T) { s.hash++ },
			"scale": func(t *rapid.T) { s.create("w0", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), true) },
			"spec": func(t *rapid.T) {
				s.version++
				s.stored.Generation++
				s.stored.Spec.Mode = rapid.SampledFrom([]v1alpha1.RebalanceMode{
					v1alpha1.RebalanceEvict, v1alpha1.RebalanceEvict, v1alpha1.RebalancePlan,
				}).Draw(t, "mode")
			},
		}
		often := map[string]int{"work": 60, "read": 40, "replace": 30, "ready": 20, "end": 15, "time": 12, "failover": 6, "scale": 3, "nodes": 2, "spec": 1}
		if len(processes) > 1 {
			often["spec"] = 15 // the one gives up what the other is about to do
		}
		var names []string
		for _, name := range slices.Sorted(maps.Keys(often)) {
			names = append(names, slices.Repeat([]string{name}, often[name])...)
		}
		for range 200 {
			do[rapid.SampledFrom(names).Draw(t, "do")](t)
		}
		evictions += len(s.evictions)
		for i := range s.stored.Status.Moves {
			if s.stored.Status.Moves[i].State == moved {
				moves++
			}
		}
		if s.stored.Status.Stop != nil {
			stops++
		}
	})
	t.Logf("%d evictions, %d moves as planned, %d plans stopped in the end", evictions, moves, stops)
	if evictions == 0 || moves == 0 || stops == 0 {
		t.Fatal("the test has not tried what it is about")
	}
}
