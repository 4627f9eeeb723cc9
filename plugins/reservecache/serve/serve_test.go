package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
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

// TestTheControllersWordsStay: the status has another writer, whose fields and conditions the scheduler leaves as they are.
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

// TestStatusOfAnother: a status that says something else, by someone else or by an older write that the watch shows late, is corrected.
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

// TestAdoption: a new leader has the slots of the status where they were. Those of a Guarantee include the owners that run there, whenever they
// came, and whatever an older status says of who uses them.
func TestAdoption(t *testing.T) {
	elsewhere := replica("one", "1", t0)
	elsewhere.Spec.NodeName = "n2"
	for name, tc := range map[string]struct {
		mode       func(*v1alpha1.ZoneReservation)
		node       string // its CPUs, 8 when it is empty
		pods       []*v1.Pod
		held, used int64
	}{
		"two owners": {mode: guarantee, pods: []*v1.Pod{replica("one", "1", t0), replica("two", "1", t0)}, held: 4, used: 2},
		"a node that is full with the slots": {
			mode: guarantee, node: "4", pods: []*v1.Pod{replica("three", "1", t0), replica("four", "1", t0)}, held: 4, used: 2,
		},
		"all that owners have": {
			mode: func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired }, node: "4",
			pods: []*v1.Pod{replica("three", "1", t0), replica("four", "1", t0)}, held: 4, used: 2,
		},
		"one of two slots": {mode: guarantee, pods: []*v1.Pod{replica("one", "2", t0), replica("two", "1", t0)}, held: 4, used: 3},
		"no owners":        {mode: guarantee, held: 4},
		"on another node":  {mode: guarantee, pods: []*v1.Pod{replica("two", "1", t0), elsewhere}, held: 4, used: 1},
		"headroom":         {pods: []*v1.Pod{replica("one", "1", t0), replica("two", "1", t0)}, held: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := reservation("r", 4, tc.mode)
				r.Status = v1alpha1.ZoneReservationStatus{LastUpdateTime: metav1.NewMicroTime(t0), Zones: []v1alpha1.ReservationZoneStatus{{
					Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Slots: 4, Used: 2}},
				}}}
				f := newFixture(t, 1, r)
				f.Ledger.AddNode(makeNode("n1", cmp.Or(tc.node, "8")))
				f.add(t, tc.pods...)
				f.start(t)
				f.requireSlots(t, "r", tc.held, tc.used)
			})
		})
	}
}

// TestWhatIsToBeAdoptedIsNotOverwritten: a reservation that is first seen after the start keeps its status until a pass has adopted it.
func TestWhatIsToBeAdoptedIsNotOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.placing.Store(true)
		f.Ledger.AddNode(makeNode("n1", "4"))
		_, err := f.Ledger.AddPod(replica("one", "1", t0))
		require.NoError(t, err)
		f.reservationSeen(reservation("r", 2, func(r *v1alpha1.ZoneReservation) {
			guarantee(r)
			r.Status = v1alpha1.ZoneReservationStatus{
				LastUpdateTime: metav1.NewMicroTime(t0.Add(time.Hour)),
				Zones:          []v1alpha1.ReservationZoneStatus{{Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Slots: 2, Used: 1}}}},
			}
		}))
		_, _, ok := f.wantedStatus("uid-r")
		require.False(t, ok)
		f.pass(t.Context())
		_, is, ok := f.wantedStatus("uid-r")
		require.True(t, ok)
		require.EqualValues(t, 1, is.Status.Slots.Used)
	})
}

// TestOwnersOutliveAMissingNode: the slots of one that is not there when the scheduler starts are held elsewhere, until it is back with its
// owners.
func TestOwnersOutliveAMissingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 2, guarantee)
		r.Status = v1alpha1.ZoneReservationStatus{LastUpdateTime: metav1.NewMicroTime(t0), Zones: []v1alpha1.ReservationZoneStatus{{
			Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Slots: 2, Used: 2}},
		}}}
		f := newFixture(t, 1, r)
		f.Ledger.AddNode(makeNode("n2", "4"))
		f.add(t, replica("one", "1", t0.Add(-time.Hour)), replica("two", "1", t0.Add(-time.Hour)))
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.RequestPass()
		f.requireSlots(t, "r", 2, 2)
	})
}

// TestPriorityOfNone is that of pods without a priority class, and what that does not protect is said.
func TestPriorityOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := func(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
			return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Value: value, GlobalDefault: isDefault}
		}
		f := newFixture(t, 1, class("standard", 1000, true), class("high", 5000, false),
			reservation("none", 1, nil), reservation("zero", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Priority = ptr.To[int32](0) }))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		priority := func(name string) int32 {
			own := f.Holds.Node("n1").Of(types.UID("uid-" + name))
			require.NotNil(t, own)
			return own.Claim.Priority
		}
		require.EqualValues(t, 1000, priority("none"))
		require.EqualValues(t, 0, priority("zero"))
		f.requireCondition(t, "none", v1alpha1.ConditionProtected, metav1.ConditionTrue, v1alpha1.ReasonProtected)
		require.Equal(t, "spec.priority: pods without a priority class get priority 1000 from PriorityClass standard and may take the room of the slots, which have priority 0",
			f.requireCondition(t, "zero", v1alpha1.ConditionProtected, metav1.ConditionFalse, v1alpha1.ReasonPriorityBelowDefault))

		// Of several defaults the API server takes the lowest.
		f.api.Put(class("lower", -5, true))
		f.requireCondition(t, "zero", v1alpha1.ConditionProtected, metav1.ConditionTrue, v1alpha1.ReasonProtected)
		require.EqualValues(t, -5, priority("none"))
		f.api.Delete(class("lower", -5, true))
		f.api.Delete(class("standard", 1000, true))
		require.Eventually(t, func() bool { f.clock.Step(time.Second); return priority("none") == 0 }, time.Minute, time.Millisecond)
	})
}

// TestWhyANodeIsTooFull: the condition names what took the room, not somebody else.
func TestWhyANodeIsTooFull(t *testing.T) {
	resized := replica("web", "1", t0)
	for name, tc := range map[string]struct {
		cause func(t *testing.T, f *fixture)
		says  string
	}{
		"in-place resize": {
			cause: func(t *testing.T, f *fixture) {
				bigger := resized.DeepCopy()
				bigger.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("3")
				f.add(t, bigger)
			},
			says: "node n1: pod shop/web was resized in place",
		},
		"bound by hand": {
			cause: func(t *testing.T, f *fixture) { f.add(t, makePod("intruder", "n1", "2", nil)) },
			says:  "node n1: pod shop/intruder was bound there by another scheduler or by hand",
		},
		"placed by us": {
			cause: func(t *testing.T, f *fixture) {
				require.NoError(t, f.Ledger.AssumePod(makePod("agent", "", "2", nil), "n1", t0))
				f.RequestPass()
			},
			says: "node n1: pod shop/agent, which slots do not keep out, was placed there",
		},
		"the node shrinks": {
			cause: func(_ *testing.T, f *fixture) { f.Ledger.UpdateNode(makeNode("n1", "3")); f.RequestPass() },
			says:  "node n1: the node has less to offer than before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1, reservation("r", 3, nil))
				f.Ledger.AddNode(makeNode("n1", "4"))
				f.add(t, resized)
				f.start(t)
				f.requireSlots(t, "r", 3, 0)
				tc.cause(t, f)
				require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonOvercommitted), tc.says)
				f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
				f.Ledger.AddNode(makeNode("n2", "4"))
				f.RequestPass()
				f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsDesired)
				f.requireSlots(t, "r", 3, 0)
			})
		})
	}
}

// TestPodsOfDaemonSetsAlarmNobody: they come to each node that joins, after slots that lacked room.
func TestPodsOfDaemonSetsAlarmNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 4, nil))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 4, 0)
		require.Contains(t, <-f.handle.recorder.Events, "Normal AllSlotsHeld")
		agent := makePod("agent", "", "1", nil)
		agent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
		require.NoError(t, f.Ledger.AssumePod(agent, "n1", t0))
		f.RequestPass()
		f.requireSlots(t, "r", 3, 0)
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsDesired)
		require.Contains(t, <-f.handle.recorder.Events, "Warning Filling")
		require.Empty(t, f.handle.recorder.Events)
	})
}

// TestOwnersThatDoNotFit: they have outgrown the slots, or keep away from each other.
func TestOwnersThatDoNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 2, nil))
		f.Ledger.AddNode(makeNode("n1", "16"))
		f.start(t)
		f.add(t, replica("small", "1", t0))
		f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionFalse, v1alpha1.ReasonOwnersFit)
		f.add(t, replica("double", "2", t0)) // both slots are on one node
		f.add(t, replica("grown", "3", t0))
		require.Equal(t, "spec.slot: pod shop/grown asks for as much as 3 slots, but a node has at most 2",
			f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionTrue, v1alpha1.ReasonLargerThanSlot))
		f.end(t, "grown")
		f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionFalse, v1alpha1.ReasonOwnersFit)

		alone := replica("alone", "1", t0)
		alone.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: alone.Labels}},
		}}}
		f.add(t, alone)
		require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionTrue, v1alpha1.ReasonOneOwnerPerNode),
			"spec.slotsPerNode: pods such as shop/alone keep away from each other by hostname")
		f.end(t, "alone", "double", "small")
		spread := replica("spread", "1", t0)
		spread.Spec.NodeName = ""
		spread.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.DoNotSchedule, MaxSkew: 1, LabelSelector: &metav1.LabelSelector{MatchLabels: spread.Labels},
		}}
		f.add(t, spread)
		f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionTrue, v1alpha1.ReasonOneOwnerPerNode)

		// With one slot on each node they fit.
		f.Ledger.AddNode(makeNode("n2", "8"))
		one := reservation("r", 2, func(r *v1alpha1.ZoneReservation) { r.Spec.SlotsPerNode = ptr.To[int32](1) })
		one.Status = f.status("r")
		f.api.Put(one)
		f.requireCondition(t, "r", v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionFalse, v1alpha1.ReasonOwnersFit)
		f.eventually(t, "r", func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
			require.Len(t, s.Zones, 1)
			require.Len(t, s.Zones[0].Nodes, 2)
		})
		// An owner beside a slot is one too many.
		f.add(t, replica("beside", "1", t0))
		f.requireSlots(t, "r", 1, 0)
	})
}

// TestHeldFractionIsNamed in the condition of the reservation that gets no more.
func TestHeldFractionIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 0.5, reservation("r", 4, nil))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
		require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonHeldFractionReached), "maxHeldFraction allows no more to be held in zone a")
	})
}

// TestWordsAloneAreNotWrittenAtOnce: how many nodes lack CPU changes all the time.
func TestWordsAloneAreNotWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 4, nil))
		f.Ledger.AddNode(makeNode("n1", "1"))
		f.start(t)
		f.requireSlots(t, "r", 1, 0)
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		s := f.status("r")
		f.mu.Lock()
		e := f.entries["uid-r"]
		e.report.Zones[0].Shortfall = "other words"
		e.written, e.reportedAt = f.clock.Now(), f.clock.Now()
		f.mu.Unlock()
		was, is, ok := f.wantedStatus("uid-r")
		require.True(t, ok)
		require.Equal(t, was, is)
		f.clock.Step(messageInterval)
		_, is, _ = f.wantedStatus("uid-r")
		require.Contains(t, meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionReady).Message, "other words")
		require.True(t, is.Status.LastUpdateTime.After(s.LastUpdateTime.Time))
	})
}

// TestWordsDoNotDelayWhatChanges: reservations that say in other words what they lack are written one by one.
func TestWordsDoNotDelayWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reservations = 20
		f := newFixture(t, 1)
		f.Ledger.AddNode(makeNode("n1", "1"))
		for i := range reservations {
			f.api.Put(reservation(fmt.Sprintf("r%d", i), 30, nil))
		}
		f.start(t)
		for i := range reservations {
			f.requireCondition(t, fmt.Sprintf("r%d", i), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		}
		changed := func() (n int) {
			for i := range reservations {
				was, is, ok := f.wantedStatus(types.UID(fmt.Sprintf("uid-r%d", i)))
				require.True(t, ok)
				if was != is {
					n++
				}
			}
			return n
		}
		f.mu.Lock()
		for _, e := range f.entries {
			e.report.Zones[0].Shortfall = "other words"
			e.written, e.wordsDue = f.clock.Now(), time.Time{}
		}
		f.wordsTurn = f.clock.Now()
		f.mu.Unlock()
		require.Zero(t, changed())
		f.clock.Step(messageInterval)
		require.LessOrEqual(t, changed(), 1)
		require.Eventually(t, func() bool {
			f.clock.Step(messagePause)
			for i := range reservations {
				s := f.status(fmt.Sprintf("r%d", i))
				if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "other words") {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
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
		f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodesLost)
		got := []string{<-f.handle.recorder.Events, <-f.handle.recorder.Events}
		slices.Sort(got)
		require.Contains(t, got[0], "Warning Filling 1 of 1 slots are missing")
		require.Contains(t, got[1], "Warning NodesLost")
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
		require.NotNil(t, f.Holds.Node("n1"))
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

// TestMetricsAreThoseOfTheStatus, and what is held in sum.
func TestMetricsAreThoseOfTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 3, guarantee))
		n := makeNode("n1", "2500m")
		f.Ledger.AddNode(n)
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
	report := placement.Report{Zones: []placement.ZoneReport{{Name: "europe-west-1a"}}}
	slot := ledger.Resources{MilliCPU: 1000, Pods: 1}
	for i := range maxSlots {
		name := fmt.Sprintf("%s-%04d", strings.Repeat("n", 58), i)
		report.Zones[0].Nodes = append(report.Zones[0].Nodes, placement.NodeReport{Node: name, Held: slot, Used: slot})
	}
	zones := zoneStatuses(&spec{slot: slot}, &report)
	require.Len(t, zones[0].Nodes, maxSlots)
	content, err := json.Marshal(zones)
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
		f.clock.Step(useInterval)
		require.EqualValues(t, 1, wanted().Status.Slots.Used)
		f.add(t, replica("two", "1", t0), makePod("by-hand", "n1", "2", nil))
		f.clock.Step(time.Second)
		require.EqualValues(t, 2, wanted().Status.Slots.Held, "a slot has lost its room")
	})
}
