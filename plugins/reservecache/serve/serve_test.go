package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

func guarantee(r *v1alpha1.ZoneReservation) { r.Spec.Mode = v1alpha1.ModeGuarantee }

// TestStatusSaysWhatIsUsed, by the pods that run, and the time.
func TestStatusSaysWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 3, guarantee))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 3, 0)
		require.Equal(t, "3 slots are held, 0 of them are used", f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld))
		f.add(t, replica("p", "2", t0))
		f.requireSlots(t, "r", 3, 2)
		s := f.status("r")
		require.EqualValues(t, 2, s.Zones[0].Nodes[0].Used, "it is as large as two")
		require.False(t, s.LastUpdateTime.Time.Before(t0))
		require.False(t, s.LastUpdateTime.Time.After(f.clock.Now()))
		f.end(t, "p")
		f.requireSlots(t, "r", 3, 0)
	})
}

// TestTheControllersWordsStay: the status has another writer, whose fields and conditions the scheduler leaves as they
// are.
func TestTheControllersWordsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := &v1alpha1.BuyStatus{Wanted: 2, Asked: 1}
		f := newFixture(t, 1, reservation("web", 2, func(r *v1alpha1.ZoneReservation) {
			r.Status.Buy, r.Status.Conditions = asked, []metav1.Condition{{Type: v1alpha1.ConditionBuying, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsked}}
		}))
		f.Ledger.AddNode(makeNode("a", "4"))
		f.start(t)
		f.requireSlots(t, "web", 2, 0)
		is := f.status("web")
		require.Equal(t, asked, is.Buy)
		require.True(t, meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionBuying))
		require.True(t, meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady))
	})
}

// TestStatusOfAnother: a status that says something else, by someone else or by an older write that the watch shows
// late, is corrected.
func TestStatusOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 3, guarantee))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 3, 0)
		other := reservation("r", 3, guarantee)
		other.Status = f.status("r")
		other.Status.Slots.Held = 0
		f.api.Put(other)
		require.Zero(t, f.status("r").Slots.Held)
		f.requireSlots(t, "r", 3, 0)
	})
}

// TestDefaultPriority is the highest among the owners that exist, and not below that of pods without a priority class;
// that pods of others outrank a reservation is said.
func TestDefaultPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := func(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
			return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Value: value, GlobalDefault: isDefault}
		}
		f := newFixture(t, 1, class("standard", 1000, true), class("high", 5000, false),
			reservation("none", 1, nil), reservation("zero", 1, func(r *v1alpha1.ZoneReservation) {
				r.Spec.Owners[0].Namespace, r.Spec.Priority = "elsewhere", ptr.To[int32](0)
			}))
		f.Ledger.AddNode(makeNode("n1", "8"))
		f.start(t)
		requirePriority := func(name string, want int32) {
			t.Helper()
			require.Eventually(t, func() bool {
				f.clock.Step(time.Second)
				synctest.Wait()
				list := f.Claims().List
				at := slices.IndexFunc(list, func(c floor.Claim) bool { return c.UID == types.UID("uid-"+name) })
				return at >= 0 && list[at].Priority == want
			}, time.Minute, time.Millisecond, "priority %d of %s", want, name)
		}
		withPriority := func(pod *v1.Pod, value int32) *v1.Pod {
			pod.Spec.Priority = &value
			return pod
		}
		requirePriority("none", 1000)
		requirePriority("zero", 0)
		f.add(t, withPriority(replica("low", "1", t0), 10))
		requirePriority("none", 1000)
		f.add(t, withPriority(replica("web", "1", t0), 5000))
		requirePriority("none", 5000)
		f.requireCondition(t, "none", v1alpha1.ConditionProtected, metav1.ConditionTrue, v1alpha1.ReasonProtected)
		require.Equal(t, "spec.priority: the slots have priority 0, and pods of a higher one may take their room, such as shop/web with priority 5000",
			f.requireCondition(t, "zero", v1alpha1.ConditionProtected, metav1.ConditionFalse, v1alpha1.ReasonOutranked))
		f.end(t, "web")
		requirePriority("none", 1000)

		// Of several defaults the API server takes the lowest.
		f.api.Put(class("lower", -5, true))
		requirePriority("none", 10)
	})
}

// TestHeldFractionIsNamed in the condition of the reservation that gets no more.
func TestHeldFractionIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 0.5, reservation("r", 4, nil))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
		require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHeldFractionReached), "maxHeldFraction allows no more to be held in zone a")
	})
}

// TestEventsTellWhatChanges for good or bad, not that all is well from the start.
func TestEventsTellWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 1, nil))
		f.Ledger.AddNode(makeNode("n1", "1"))
		f.start(t)
		f.requireSlots(t, "r", 1, 0)
		require.Equal(t, "Normal AllSlotsHeld 1 unused slots are held", <-f.handle.recorder.Events)
		f.Ledger.RemoveNode(makeNode("n1", "1"))
		f.RequestPass()
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		require.Equal(t, "Warning Filling 1 of 1 slots are missing", <-f.handle.recorder.Events)
		require.Empty(t, f.handle.recorder.Events)
	})
}

// TestAnAPIServerThatRefuses does not stop anything; the status is written when it does no longer.
func TestAnAPIServerThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 1, nil))
		f.api.Refuse(errors.New("no"))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.api.Refuse(nil)
		f.requireSlots(t, "r", 1, 0)
	})
}

// TestIdle: nothing to do until an event comes or the clock moves.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 1, guarantee))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 1, 0)
		require.Eventually(t, func() bool { f.clock.Step(time.Second); return f.Idle() }, time.Minute, time.Millisecond)
		f.add(t, replica("p", "1", t0))
		require.Eventually(t, f.Idle, time.Minute, time.Millisecond, "the worker rests until the clock moves")
		f.requireSlots(t, "r", 1, 1)
	})
}

// cycles are those of a scheduler that has something to do, or rests.
type cycles struct {
	mu    sync.Mutex // guards all
	floor *floor.Floor
	at    Settled
}

func (c *cycles) Read(read func(*floor.Floor, Settled)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read(c.floor, c.at)
}

// see has the floor see a node with pods that ask for so many CPUs.
func (c *cycles) see(claims *Claims, node *v1.Node, requested int64, now time.Time) {
	c.update(node, 0, requested)
	c.settle(claims, now)
}

func (c *cycles) update(node *v1.Node, pods int, requested int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor.Update(&floor.Node{
		Object: node, Allocatable: ledger.Resources{MilliCPU: 4000, Memory: 4 << 30, Pods: 10}, Requested: ledger.Resources{MilliCPU: 1000 * requested, Pods: int64(pods)},
	})
}

func (c *cycles) settle(claims *Claims, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor.SetClaims(claims.List)
	c.floor.Settle()
	c.at = Settled{Claims: claims, At: now}
}

// TestSlotsThatCameAndWent between two looks have kept pods off a node, on which nothing else is held than before.
func TestSlotsThatCameAndWent(t *testing.T) {
	for name, idle := range map[string]time.Duration{"in a busy cluster": 0, "after a rest": time.Minute, "before a rest": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1, reservation("r", 1, nil))
				node := makeNode("n1", "4")
				f.Ledger.AddNode(node)
				f.add(t, makePod("other", "n1", "4", nil))
				f.handle.waits = true
				scheduler := &cycles{floor: floor.New(1)}
				f.Floor = scheduler
				f.start(t)
				look := func() []string {
					f.RequestPass()
					f.clock.Step(time.Second)
					synctest.Wait()
					return f.handle.changed
				}
				scheduler.see(f.Claims(), node, 4, f.clock.Now())
				look()
				f.clock.Step(max(idle, 0))
				look()
				f.handle.changed = nil

				scheduler.see(f.Claims(), node, 0, f.clock.Now())
				require.NotEmpty(t, scheduler.floor.HeldOn())
				scheduler.see(f.Claims(), node, 4, f.clock.Now().Add(min(idle, 0)))
				require.Empty(t, scheduler.floor.HeldOn())
				require.Equal(t, []string{"n1"}, look())
			})
		})
	}
}

// TestTheNextCycleHoldsWhatIsSaid: what a scheduler that rests says is held is what its next cycle holds, whatever came
// and went on the nodes meanwhile.
func TestTheNextCycleHoldsWhatIsSaid(t *testing.T) {
	type step struct {
		Node  string
		CPUs  int64
		Cycle bool
	}
	names := []string{"n1", "n2", "n3"}
	rapid.Check(t, func(rt *rapid.T) {
		var reservations []client.Object
		for i, name := range []string{"first", "second", "third"} {
			slots, cpus := rapid.Int32Range(1, 3).Draw(rt, "slots"), rapid.Int64Range(1, 2).Draw(rt, "CPUs of a slot")
			reservations = append(reservations, reservation(name, slots, func(r *v1alpha1.ZoneReservation) {
				r.CreationTimestamp.Time = t0.Add(time.Duration(i) * time.Second)
				r.Spec.Owners[0].PodSelector.MatchLabels = map[string]string{"app": name}
				r.Spec.Slot.Requests[v1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
			}))
		}
		fraction := rapid.SampledFrom([]float64{0.5, 1}).Draw(rt, "fraction")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{rapid.SampledFrom(names).Draw(rt, "node"), rapid.Int64Range(1, 4).Draw(rt, "CPUs"), rapid.Bool().Draw(rt, "cycle")}
		}), 1, 12).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, fraction, reservations...)
			nodes, on := map[string]*v1.Node{}, map[string]map[string]int64{} // the CPUs of pods
			for _, name := range names {
				nodes[name], on[name] = makeNode(name, "4"), map[string]int64{}
				f.Ledger.AddNode(nodes[name])
			}
			scheduler := &cycles{floor: floor.New(f.Fraction)}
			f.Floor = scheduler
			f.start(t)
			cycle := func() {
				for _, name := range names {
					scheduler.update(nodes[name], len(on[name]), sum(on[name]))
				}
				scheduler.settle(f.Claims(), f.clock.Now())
			}
			cycle()
			for i, s := range steps {
				pods := on[s.Node]
				if sum(pods)+s.CPUs <= 4 {
					name := fmt.Sprintf("p%d", i)
					pods[name] = s.CPUs
					f.add(t, makePod(name, s.Node, strconv.FormatInt(s.CPUs, 10), nil))
				} else {
					f.end(t, slices.Collect(maps.Keys(pods))...)
					clear(pods)
				}
				for range 2 {
					f.clock.Step(time.Minute)
					synctest.Wait()
				}
				if s.Cycle {
					said := f.published.floor.HeldOn()
					cycle()
					if holds := scheduler.floor.HeldOn(); !reflect.DeepEqual(said, holds) {
						wrong = fmt.Sprintf("after step %d the cycle holds %v, not %v", i, holds, said)
						return
					}
				}
			}
		})
		require.Empty(rt, wrong) // rapid's failures must not end the bubble
	})
}

func sum(cpus map[string]int64) (n int64) {
	for _, cpu := range cpus {
		n += cpu
	}
	return n
}

// TestMetricsAreThoseOfTheStatus, and what is held in sum.
func TestMetricsAreThoseOfTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 3, guarantee))
		f.Ledger.AddNode(makeNode("n1", "2500m"))
		f.start(t)
		f.add(t, replica("p", "1", t0))
		f.requireSlots(t, "r", 2, 1)
		f.clock.Step(time.Minute)
		got := map[string]float64{}
		f.collect(func(desc *metricsDesc, value float64, labels ...string) {
			got[names[desc]+" "+labels[0]] = value
		})
		require.GreaterOrEqual(t, got["unfilled r"], 60.0)
		delete(got, "unfilled r")
		require.Equal(t, map[string]float64{"desired r": 3, "held r": 2, "used r": 1, "cpu a": 1, "memory a": 0}, got)
	})
}

type metricsDesc = metrics.Desc

var names = map[*metricsDesc]string{
	desiredDesc: "desired", heldDesc: "held", usedDesc: "used", unfilledDesc: "unfilled", cpuDesc: "cpu", memoryDesc: "memory",
}

// TestTheLargestStatusIsSmall: 5,000 slots on as many nodes take less than half of what etcd takes in one request.
func TestTheLargestStatusIsSmall(t *testing.T) {
	const etcdLimit = 1.5 * 1024 * 1024
	zone := floor.ZoneReport{Name: "europe-west-1a"}
	for i := range maxSlots {
		zone.Nodes = append(zone.Nodes, floor.NodeReport{Name: fmt.Sprintf("%s-%04d", strings.Repeat("n", 58), i), Slots: 1, Used: 1})
	}
	status := zoneStatus(&zone)
	require.Len(t, status.Nodes, maxSlots)
	content, err := json.Marshal(status)
	require.NoError(t, err)
	require.Less(t, float64(len(content)), etcdLimit/2)
}

// TestWhatIsUsedWaits, and what is held does not: as owners come and go, a status is written once in ten seconds.
func TestWhatIsUsedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.placing.Store(true)
		f.Ledger.AddNode(makeNode("n1", "4"))
		wanted := func() *v1alpha1.ZoneReservation {
			f.pass(t.Context())
			was, is, ok := f.wantedStatus("uid-r")
			require.True(t, ok)
			if was == is {
				return nil
			}
			f.written(was, is)
			f.reservationSeen(is)
			return is
		}
		f.reservationSeen(reservation("r", 3, guarantee))
		require.NotNil(t, wanted())
		f.add(t, replica("one", "1", t0))
		f.clock.Step(time.Second)
		require.Nil(t, wanted())
		f.clock.Step(tick)
		require.EqualValues(t, 1, wanted().Status.Slots.Used)
		f.add(t, replica("two", "1", t0), makePod("by-hand", "n1", "2", nil))
		f.clock.Step(time.Second)
		require.EqualValues(t, 2, wanted().Status.Slots.Held, "a slot has lost its room")
	})
}
