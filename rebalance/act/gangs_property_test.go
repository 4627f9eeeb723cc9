package act

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
)

// gangOfServer is a gang, with what the scheduler has last reported of it and when its members were last evicted.
type gangOfServer struct {
	minMember   int
	reported    bool
	begun, last time.Time
}

// members are the live pods of a gang, with and without a node, in an order.
func (s *server) members(gang types.UID) (bound, unbound []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		switch p := s.pods[uid]; {
		case p.Controller != gang || p.Ending:
		case p.Node != "":
			bound = append(bound, uid)
		default:
			unbound = append(unbound, uid)
		}
	}
	return bound, unbound
}

func (s *server) observeGangs(o *Observed) {
	if s.gangs == nil {
		return
	}
	o.Gangs = map[types.UID]Gang{}
	tried := map[types.UID]Tried{}
	o.Tried = func(gang types.UID) Tried { return tried[gang] }
	o.Try = func(gang types.UID) time.Time {
		tried[gang] = Tried{At: s.now}
		if rapid.IntRange(0, 3).Draw(s.t, "would be refused") == 0 {
			tried[gang] = Tried{At: s.now, Refused: "a budget would be in the way"}
		}
		return time.Time{}
	}
	for uid, g := range s.gangs {
		bound, _ := s.members(uid)
		missing := max(0, g.minMember-len(bound))
		o.Gangs[uid] = Gang{
			UID: uid, Namespace: "shop", Name: string(uid), Bound: bound, Missing: missing,
			PartlyBound: g.reported && len(bound) > 0 && missing > 0,
		}
	}
}

// checkGangs: no member of a whole gang is evicted, and whoever begins with a gang begins with all of it.
func (s *server) checkGangs(seen *Observed, step Step, begins bool) {
	evicts := map[types.UID]int{}
	for i := range step.Evict {
		if m := &step.Evict[i]; m.PodGroup != "" {
			evicts[m.PodGroup]++
		}
	}
	for gang, members := range evicts {
		if seen.Gangs[gang].Missing == 0 {
			s.t.Fatalf("members of gang %s are evicted, which is whole", gang)
		}
		if begins && members != len(seen.Gangs[gang].Bound) {
			s.t.Fatalf("%d of %d bound members of gang %s are evicted", members, len(seen.Gangs[gang].Bound), gang)
		}
	}
}

// checkCooldown: a gang whose members were evicted is left alone for the cooldown.
func (s *server) checkCooldown(m *v1alpha1.RebalanceMove) {
	if m.PodGroup == "" {
		return
	}
	if GangsStopped(s.stored, s.now) {
		s.t.Fatalf("members of gang %s are evicted although that is stopped", m.PodGroup)
	}
	g := s.gangs[m.PodGroup]
	if !g.begun.IsZero() && !g.begun.Equal(m.Begun.Time) && s.now.Sub(g.last) < Cooldown(s.stored) {
		s.t.Fatalf("members of gang %s are evicted at %s, and again at %s", m.PodGroup, g.last, s.now)
	}
	g.begun, g.last = m.Begun.Time, s.now
}

// TestGangsWithinTheBudget: as TestNeverMoreThanTheBudget, with gangs that come to be bound in part. Their members are
// evicted together, never more within an hour than allowed, not of a gang that is whole, and not again within the
// cooldown.
func TestGangsWithinTheBudget(t *testing.T) {
	evictions, whole, again, waited := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(t)
		s.stored.Spec.Cooldown = &metav1.Duration{Duration: 15 * time.Minute}
		s.stored.Spec.MaxPerHour = ptr.To(rapid.Int32Range(2, 8).Draw(t, "maxPerHour"))
		s.gangs = map[types.UID]*gangOfServer{}
		var names []types.UID
		for i := range rapid.IntRange(1, 3).Draw(t, "gangs") {
			uid := types.UID(fmt.Sprint("gang", i))
			names = append(names, uid)
			s.gangs[uid] = &gangOfServer{minMember: rapid.IntRange(2, 4).Draw(t, "minMember")}
			for range s.gangs[uid].minMember {
				s.create(string(uid), "", false)
			}
		}
		p := &process{read: s.stored.DeepCopy()}
		bind := func(uids []types.UID) {
			for _, uid := range uids {
				pod := s.pods[uid]
				pod.Node, pod.Zone, pod.Ready = "node-a", "a", true
				s.pods[uid] = pod
			}
		}
		replace := func(uid types.UID) {
			delete(s.waiting, uid)
			zone, over := "", s.pods[uid].Controller
			if s.gangs[over] == nil {
				zone = "b"
			}
			delete(s.pods, uid)
			s.create(string(over), zone, zone != "")
		}
		do := map[string]func(types.UID){
			"work": func(types.UID) {
				if len(p.evict) > 0 {
					p.evictNext(s)
				} else {
					p.decide(s)
				}
			},
			"read": func(types.UID) {
				if len(p.evict) == 0 {
					p.read, p.version = s.stored.DeepCopy(), s.version
				}
			},
			"failover": func(types.UID) { p = &process{read: s.stored.DeepCopy(), version: s.version} },
			"time": func(types.UID) {
				s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{5, 60, 400, 1000}).Draw(t, "seconds")) * time.Second)
			},
			"end": func(types.UID) {
				for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
					if s.pods[uid].Ending {
						replace(uid)
					}
				}
			},
			"place": func(gang types.UID) { _, unbound := s.members(gang); bind(unbound) },
			"fault": func(gang types.UID) { // it is killed between two binds
				if _, unbound := s.members(gang); len(unbound) > 1 {
					bind(unbound[:rapid.IntRange(1, len(unbound)-1).Draw(t, "members")])
				}
			},
			"lose": func(gang types.UID) { // a node fails
				if bound, _ := s.members(gang); len(bound) > 0 {
					replace(bound[0])
				}
			},
			"report": func(gang types.UID) {
				bound, _ := s.members(gang)
				s.gangs[gang].reported = len(bound) > 0 && len(bound) < s.gangs[gang].minMember
			},
		}
		often := map[string]int{"work": 60, "read": 40, "report": 30, "fault": 12, "time": 12, "end": 12, "failover": 6, "place": 4, "lose": 3}
		var actions []string
		for _, name := range slices.Sorted(maps.Keys(often)) {
			actions = append(actions, slices.Repeat([]string{name}, often[name])...)
		}
		for range 250 {
			do[rapid.SampledFrom(actions).Draw(t, "do")](rapid.SampledFrom(names).Draw(t, "gang"))
		}
		for i := range s.stored.Status.Moves {
			m := &s.stored.Status.Moves[i]
			switch {
			case m.PodGroup == "" || m.State == evicting || m.State == evicted:
			case m.Why == "the gang is whole":
				whole++
			case m.Why == "the gang waits as a whole":
				waited++
			case m.State == failed:
				again++
			}
		}
		evictions += len(s.evictions)
	})
	t.Logf("%d evictions; members of gangs that are whole then: %d, that wait: %d, that are bound in part again: %d", evictions, whole, waited, again)
	if whole == 0 || waited == 0 || again == 0 {
		t.Fatal("the test has not tried what it is about")
	}
}
