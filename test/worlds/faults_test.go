package worlds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// faults are worlds in which an earlier tree broke an invariant.
var faults = map[string]World{
	// The scheduler ended: NoPanic.
	"a gang that owns guaranteed slots preempts": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Reserve{Reservation{Name: "r", App: "gang", Slots: 2, CPU: 1, Priority: 100, Guarantee: true}},
		Wait{10 * time.Second},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 2, CPU: 1}},
		Wait{10 * time.Second},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 3, CPU: 1, Priority: 100}},
	}},
	// Pods were evicted again and again for members that were refused then: EvictionsEnd.
	"a native gang has too few members, but for one that never ends to terminate": {Native: true, Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 3}},
		Run{Workload{Name: "gang", Kind: NativeGang, Replicas: 3, CPU: 1, Priority: 1}},
		Wait{10 * time.Second},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 1, CPU: 1}},
		Stick{"gang", 0},
		Evict{"gang", 1},
	}},
	// Its nodes were taken for nearly all of the time: GangsHoldNothing.
	"a member is never prepared": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		FailPreBind{"gang", 0, 10 * time.Minute},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 2, CPU: 1}},
	}},
	// The same of a gang of one, which no other member's failure rolled back.
	"a single member is never prepared": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		FailPreBind{"gang", 0, time.Minute},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 1, CPU: 1}},
	}},
	// Its nodes were taken again at once: GangsHoldNothing.
	"a node goes before a member has failed to be prepared": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 2}},
		Add{Node{Name: "b1", Zone: "b", CPU: 2}},
		FailPreBind{"gang", 0, 10 * time.Minute},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 4, CPU: 1}},
		Wait{7 * time.Minute},
		Add{Node{Name: "b2", Zone: "b", CPU: 2}},
		Remove{"b1"},
	}},
	// Its slots took the room of the pods that the gang would have preempted: HeldRoomIsThere.
	"a native gang of owners preempts, and its slots are not enough": {Native: true, Steps: []Step{
		Add{Node{Name: "c1", Zone: "c", CPU: 2}},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 5, CPU: 1}},
		Reserve{Reservation{Name: "r", App: "gang", Slots: 2, CPU: 1, Required: true}},
		Wait{time.Second},
		Run{Workload{Name: "gang", Kind: NativeGang, Replicas: 2, CPU: 1, Priority: 1}},
	}},
	// This package took two small owners on one node for one slot: HeldRoomIsKept.
	"owners leave room that another pod may have, since others use all slots": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "stays", App: "app", Kind: Deployment, Replicas: 2, CPU: 1}},
		Wait{10 * time.Second},
		Add{Node{Name: "a2", Zone: "a", CPU: 4}},
		Cordon{Node: "a1"},
		Run{Workload{Name: "goes", App: "app", Kind: Deployment, Replicas: 4, CPU: 1}},
		Wait{10 * time.Second},
		Cordon{Node: "a1", Open: true},
		Reserve{Reservation{Name: "r", App: "app", Slots: 2, CPU: 3, Required: true}},
		Wait{10 * time.Second},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 3}},
		Wait{time.Minute},
		Stop{"goes"},
	}},
	// Others were evicted for room that waited for it, again and again: EvictionsEnd.
	"a victim does not go, and pods come": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 6}},
		Run{Workload{Name: "stays", Kind: Gang, Replicas: 2, CPU: 3}},
		Stick{"stays", 0},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 4, CPU: 1, Priority: 100}},
		Run{Workload{Name: "small", Kind: Gang, Replicas: 2, CPU: 1}},
		Wait{6 * time.Minute},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 2, CPU: 1}},
	}},
	// It waited for the pod that does not go: VictimsGo.
	"a victim does not go, and there is another": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 2}},
		Add{Node{Name: "b1", Zone: "b", CPU: 2}},
		Run{Workload{Name: "fill", Kind: StatefulSet, Replicas: 2, CPU: 2}},
		Wait{10 * time.Second},
		Stick{"fill", 0},
		Wait{time.Second},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 2, CPU: 1, Priority: 100}},
	}},
	// This package asked for slots that a pod which outranks them had taken rightly: RestChangesNothing.
	"a gang that waits for a victim takes another one's room and a slot after a restart": {Native: true, Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 3}},
		Run{Workload{Name: "fill", Kind: StatefulSet, Replicas: 2, CPU: 1}},
		Reserve{Reservation{Name: "r", App: "web", Slots: 1, CPU: 1}},
		Wait{10 * time.Second},
		Stick{"fill", 0},
		Run{Workload{Name: "gang", Kind: NativeGang, Replicas: 2, CPU: 1, Priority: 1}},
	}},
	// The device of the other member stayed allocated, since its claim was still shown as reserved: DevicesAreGivenBack.
	"a member fails to be prepared, and watches are late": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4, Devices: 2}},
		Watches{Late: 500 * time.Millisecond},
		FailPreBind{Workload: "gang", After: time.Minute},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 2, CPU: 1, Device: OwnClaim}},
		Wait{5 * time.Minute},
	}},
	// This package asked for slots as soon as the first of several owners had ended: HeldRoomIsKept.
	"owners end at the same time, some of them beside their slots": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 2}},
		Add{Node{Name: "a2", Zone: "a", CPU: 2}},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 4, CPU: 1, Runs: 2 * time.Minute}},
		Reserve{Reservation{Name: "older", App: "gang", Slots: 2, CPU: 1, Guarantee: true}},
		Wait{10 * time.Second},
		Cordon{Node: "a1"},
		Run{Workload{Name: "db", Kind: Deployment, Replicas: 8, CPU: 1}},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 3, CPU: 1}},
		Reserve{Reservation{Name: "younger", App: "web", Slots: 2, CPU: 1}},
	}},
	// It was tried in all zones in each backoff: AttemptsAreBounded.
	"a packed gang is spread": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Add{Node{Name: "b1", Zone: "b", CPU: 4}},
		Add{Node{Name: "c1", Zone: "c", CPU: 4}},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 3, CPU: 1, Spread: OverZones, Packing: RequiredZone}},
	}},
	// An edit left another reservation more of what may be held, and it was not given that: FreedRoomIsSlots.
	"a reservation asks for less, and another one is at the limit": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 6}},
		Add{Node{Name: "a2", Zone: "a", CPU: 1}},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 4, CPU: 1}},
		Reserve{Reservation{Name: "less", App: "gang", Slots: 3, CPU: 2, Guarantee: true}},
		Reserve{Reservation{Name: "limited", App: "db", Slots: 3, CPU: 1}},
		Wait{15 * time.Second},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "batch", Kind: Gang, Replicas: 2, CPU: 1, Runs: time.Second}},
		Reserve{Reservation{Name: "less", App: "gang", Slots: 1, CPU: 1}},
	}},
	// Owners used up their slots, and those of a younger reservation went, which other owners took then: HeldRoomIsKept.
	"owners of headroom come to a node with slots of others": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Reserve{Reservation{Name: "r1", App: "web", Slots: 1, CPU: 1}},
		Reserve{Reservation{Name: "r2", App: "other", Slots: 1, CPU: 1}},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 2, CPU: 1}},
		Wait{20 * time.Second},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 2, CPU: 1}},
	}},
	// This package took the room of small slots whose status was not written yet for that of a large one: FreedRoomIsSlots.
	"room comes bit by bit, and a younger reservation has small slots": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 12}},
		Run{Workload{Name: "stays", Kind: StatefulSet, Replicas: 1, CPU: 8}},
		Run{Workload{Name: "first", Kind: StatefulSet, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "second", Kind: StatefulSet, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "third", Kind: StatefulSet, Replicas: 1, CPU: 2}},
		Reserve{Reservation{Name: "large", App: "large", Slots: 1, CPU: 3}},
		Reserve{Reservation{Name: "small", App: "small", Slots: 2, CPU: 1}},
		Wait{time.Minute},
		Stop{"first"},
		Wait{100 * time.Millisecond},
		Stop{"second"},
		Wait{100 * time.Millisecond},
		Stop{"third"},
		Wait{grace - 200*time.Millisecond}, // the first goes
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 1}},
		Wait{100 * time.Millisecond},
		Run{Workload{Name: "batch", Kind: Deployment, Replicas: 1, CPU: 1}},
		Wait{100 * time.Millisecond},
	}},
	// This package did not know that those small slots had reached the limit of what may be held: FreedRoomIsSlots.
	"room comes bit by bit, and small slots reach the limit": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 6}},
		Run{Workload{Name: "stays", Kind: StatefulSet, Replicas: 1, CPU: 2}},
		Run{Workload{Name: "first", Kind: StatefulSet, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "second", Kind: StatefulSet, Replicas: 1, CPU: 1}},
		Run{Workload{Name: "third", Kind: StatefulSet, Replicas: 1, CPU: 2}},
		Reserve{Reservation{Name: "large", App: "large", Slots: 1, CPU: 2}},
		Reserve{Reservation{Name: "small", App: "small", Slots: 2, CPU: 1}},
		Wait{time.Minute},
		Stop{"first"},
		Wait{100 * time.Millisecond},
		Stop{"second"},
		Wait{100 * time.Millisecond},
		Stop{"third"},
		Wait{grace - 200*time.Millisecond}, // the first goes
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 1}},
		Wait{100 * time.Millisecond},
		Run{Workload{Name: "batch", Kind: Deployment, Replicas: 1, CPU: 1}},
		Wait{100 * time.Millisecond},
	}},
	// This package took slots that were lost with a node for those that had been lacking before: FreedRoomIsSlots.
	"a slot comes with one node, and another goes with its node": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 6}},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 3, CPU: 1, Priority: -10}},
		Run{Workload{Name: "job", Kind: Job, Replicas: 2, CPU: 2, Volume: "a1", Runs: 30 * time.Second}},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 2, CPU: 3, Runs: 5 * time.Minute, Timeout: time.Second}},
		StandBy{},
		Reserve{Reservation{Name: "first", Slots: 1, CPU: 1}},
		Wait{time.Second},
		Reserve{Reservation{Name: "second", App: "web", Slots: 3, CPU: 1, Priority: 100}},
		Wait{time.Minute},
		FailOver{},
		Add{Node{Name: "a2", Zone: "a", CPU: 7}},
		Wait{50 * time.Millisecond},
		Lose{Node: "a1"},
		Wait{20 * time.Second},
	}},
	// This package did not wait for a new leader to write the status: FreedRoomIsSlots.
	"a slot comes before a failover": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Run{Workload{Name: "stays", Kind: StatefulSet, Replicas: 1, CPU: 2}},
		Run{Workload{Name: "goes", Kind: StatefulSet, Replicas: 1, CPU: 2}},
		Reserve{Reservation{Name: "r", App: "web", Slots: 1, CPU: 1}},
		StandBy{},
		Wait{time.Minute},
		Stop{"goes"},
		Wait{grace},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 1, CPU: 1}},
		FailOver{},
		Wait{20 * time.Second},
	}},
	// Owners waited for minutes beside their slots: WhatFitsIsBound.
	"a gang waits for long, and owners come to their slots": {Steps: []Step{
		Add{Node{Name: "a1", Zone: "a", CPU: 4}},
		Reserve{Reservation{Name: "r", App: "web", Slots: 1, CPU: 1, Guarantee: true}},
		Run{Workload{Name: "fill", Kind: Deployment, Replicas: 2, CPU: 1}},
		Wait{10 * time.Second},
		Run{Workload{Name: "gang", Kind: Gang, Replicas: 3, CPU: 1}},
		Wait{6 * time.Minute},
		Run{Workload{Name: "web", Kind: Deployment, Replicas: 1, CPU: 1}},
	}},
}

// TestFaults plays worlds in which earlier trees broke an invariant.
func TestFaults(t *testing.T) {
	for name, w := range faults {
		t.Run(name, func(t *testing.T) { require.Empty(t, Play(t, w).Failures) })
	}
}
