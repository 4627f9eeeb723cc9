package worlds

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestMishaps: slow preparations and binds, late and repeated events and a fail-over break no invariant, and everything
// is bound in the end.
func TestMishaps(t *testing.T) {
	gang := Run{Workload{Name: "gang", Kind: Gang, Replicas: 3, CPU: 1}}
	web := Run{Workload{Name: "web", Kind: Deployment, Replicas: 4, CPU: 1, Spread: OverZones}}
	cluster := []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Add{Node{Name: "b1", Zone: "b", CPU: 4}},
		Reserve{Reservation{Name: "r", App: "web", Slots: 1, CPU: 1, Guarantee: true}},
		Wait{10 * time.Second},
	}
	for name, steps := range map[string][]Step{
		"binds take 20 s":                 {SlowBinds{"gang", 20 * time.Second}, SlowBinds{"web", time.Second}, gang, web},
		"a member goes in its bind":       {SlowBinds{"gang", 20 * time.Second}, gang, Wait{time.Second}, Evict{"gang", 0}, web},
		"a member goes unseen":            {Watches{Late: 3 * time.Second}, gang, web, Wait{time.Second}, Evict{"gang", 1}, Wait{time.Minute}},
		"binds take 20 s, and a restart":  {SlowBinds{"web", 20 * time.Second}, web, Wait{time.Second}, Restart{}, gang},
		"preparations take 20 s":          {SlowPreBinds{"gang", 20 * time.Second}, SlowPreBinds{"web", time.Second}, gang, web},
		"they do, and a restart":          {SlowPreBinds{"gang", 20 * time.Second}, gang, Wait{time.Second}, Restart{}, web},
		"a bind is refused, late":         {SlowBinds{"web", time.Second}, web, RefuseBinds{"web", 1}, gang},
		"events are late":                 {Watches{Late: 3 * time.Second}, gang, web, Wait{time.Minute}},
		"events come late and twice":      {Watches{Late: time.Second, Twice: true}, gang, web, Wait{time.Minute}},
		"a standby leads, and pods wait":  {StandBy{}, web, Wait{time.Second}, FailOver{}, gang},
		"a standby leads, and binds hang": {StandBy{}, SlowBinds{"web", 20 * time.Second}, web, Wait{time.Second}, FailOver{}, gang},
		"a leader without a standby":      {FailOver{}, gang, web},
	} {
		t.Run(name, func(t *testing.T) {
			report := Play(t, World{Steps: slices.Concat(cluster, steps)})
			require.Empty(t, report.Failures)
			require.Equal(t, 7, report.Bound)
		})
	}
}

// TestUnseenDeletions: a gang may be bound in part if its binds were sent before the scheduler could know that a member
// is deleted. One that it has heard of excuses nothing.
func TestUnseenDeletions(t *testing.T) {
	const late = 3 * time.Second
	for name, tt := range map[string]struct {
		bindAfter time.Duration
		uid       types.UID
		excused   bool
	}{
		"the bind is sent at once": {0, "old", true},
		"as the event comes":       {late, "old", true},
		"after that":               {late + 1, "old", false},
		"its replacement is bound": {0, "new", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer(t, World{})
				p.workloads["gang"] = &workload{Workload: Workload{Name: "gang", Kind: Gang, Replicas: 2}}
				Watches{Late: late}.apply(p)
				p.noteDeleted("old")
				time.Sleep(tt.bindAfter)
				p.noteUnseen(tt.uid, "gang-1")
				p.noteLosses()
				require.Equal(t, tt.excused, p.workloads["gang"].disturbed)
			})
		})
	}
}

// TestLeaderWithLateEvents: one that has been told late what its predecessor bound gives no room twice when it has had
// to wait for the lease. One that was given the lease does, and kubelets refuse what has no room; nothing else breaks.
func TestLeaderWithLateEvents(t *testing.T) {
	for after, blind := range map[time.Duration]bool{0: false, time.Millisecond: true, time.Second: true} {
		t.Run(after.String(), func(t *testing.T) {
			report := Play(t, World{Steps: []Step{
				Add{Node{Name: "a1", Zone: "a", CPU: 4}},
				StandBy{},
				Watches{Late: 3 * time.Second},
				Run{Workload{Name: "web", Kind: Gang, Replicas: 3, CPU: 1}},
				Wait{time.Second},
				Run{Workload{Name: "other", Kind: Deployment, Replicas: 3, CPU: 1}},
				Wait{2500 * time.Millisecond},
				FailOver{after},
			}})
			require.Empty(t, report.Failures)
			if after != time.Millisecond { // then it depends on which pods the leader tries first
				require.Equal(t, blind, report.Bound > 4, "pods were bound that had no room")
			}
		})
	}
}

// TestDevices: pods that ask for devices get one each, those that cannot have one wait, and what a gang has been given
// before it fails it gives back.
func TestDevices(t *testing.T) {
	gang := Workload{Name: "gang", Kind: Gang, Replicas: 3, CPU: 1, Device: OwnClaim}
	web := Run{Workload{Name: "web", Kind: Deployment, Replicas: 2, CPU: 1, Device: TemplateClaim}}
	native := gang
	native.Kind = NativeGang
	absent := gang
	absent.Device = AbsentClaim
	cluster := []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4, Devices: 2}},
		Add{Node{Name: "b1", Zone: "b", CPU: 4, Devices: 2}},
		Wait{time.Second},
	}
	for name, tt := range map[string]struct {
		steps  []Step
		native bool
		bound  int
	}{
		"of a gang, and one is left":             {steps: []Step{Run{gang}, Wait{time.Second}, web}, bound: 4},
		"of a native gang, and one is left":      {steps: []Step{Run{native}, Wait{time.Second}, web}, native: true, bound: 4},
		"a member is never prepared":             {steps: []Step{FailPreBind{"gang", 0, time.Second}, Run{gang}, Wait{time.Minute}, web}, bound: 2},
		"the claims of a gang do not exist":      {steps: []Step{Run{absent}, Wait{time.Minute}, web}, bound: 2},
		"a claim is deleted while its pod waits": {steps: []Step{SlowPreBinds{"web", 20 * time.Second}, web, Wait{time.Second}, DropClaim{"web", 0}}, bound: 2},
		"binds hang, and the scheduler ends":     {steps: []Step{SlowBinds{"gang", 20 * time.Second}, Run{gang}, Wait{time.Second}, Restart{}, web}, bound: 4},
		"events are late":                        {steps: []Step{Watches{Late: 3 * time.Second}, Run{gang}, Wait{time.Minute}, web, Wait{time.Minute}}, bound: 4},
	} {
		t.Run(name, func(t *testing.T) {
			report := Play(t, World{Native: tt.native, Steps: slices.Concat(cluster, tt.steps)})
			require.Empty(t, report.Failures)
			require.Equal(t, tt.bound, report.Bound)
		})
	}
}

// TestKubeSchedulerReservesElsewhere: alone as well, in most plays. Once it does not any more, checkDevices has no reason
// to excuse it.
func TestKubeSchedulerReservesElsewhere(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // two binding cycles have to meet, which on one processor they do not
	w := World{Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 2, Devices: 2}},
		Add{Node{Name: "b1", Zone: "b", CPU: 2, Devices: 2}},
		Run{Workload{Name: "job", Kind: Job, Replicas: 3, CPU: 1, Device: SharedClaim, Runs: 10 * time.Minute}},
		Wait{30 * time.Minute},
	}}
	for name, play := range map[string]func(*testing.T, World) Report{"alone": PlayAlone, "with the pack": Play} {
		t.Run(name, func(t *testing.T) {
			for range 40 {
				report := play(t, w)
				require.Empty(t, report.Failures)
				if report.ReservesElsewhere {
					return
				}
			}
			t.Fatal("it has not done so in 40 plays")
		})
	}
}
