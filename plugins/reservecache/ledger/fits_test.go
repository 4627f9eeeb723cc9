package ledger

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestFits states the rule of Fits case by case, on a node of 10 CPUs and 10 pods of which 4 and 2 are
// requested. "r" has two slots of 2 CPUs, one of which "user" uses where it is present.
func TestFits(t *testing.T) {
	r := &Claim{ID: ClaimID{Reservation, "r"}, Name: "r", Priority: 5}
	g := &Claim{ID: ClaimID{Gang, "g"}, Name: "g", Priority: 5}
	two := Resources{MilliCPU: 2000, Pods: 1}
	slots := &NodeHolds{Holds: []Hold{{Claim: r, Requests: two, Slots: 2, Consumers: []types.UID{"user"}}}}
	member := &NodeHolds{Holds: []Hold{{Claim: g, Requests: Resources{MilliCPU: 6000, Pods: 1}, Slots: 1, For: "m"}}}
	gpu := &NodeHolds{Holds: []Hold{{Claim: r, Slots: 1, Requests: Resources{Pods: 1, Scalar: map[v1.ResourceName]int64{"example.com/gpu": 1}}}}}
	owner := []ClaimID{r.ID}

	for _, c := range []struct {
		name  string
		holds *NodeHolds
		cpu   int64
		who   Asker
		// present is who is on the node.
		present types.UID
		want    Verdict
		// slot says that the pod takes one.
		slot bool
	}{
		{name: "nothing is held", cpu: 99000, want: Verdict{Fits: true}},
		{name: "nothing is held, and it has to be", who: Asker{Use: UseOnly}, cpu: 1},
		{name: "beside both slots", holds: slots, cpu: 2000, want: Verdict{Fits: true}},
		{name: "into a slot", holds: slots, cpu: 2001, want: Verdict{Resource: v1.ResourceCPU, By: r}},
		{name: "one slot is used", holds: slots, cpu: 4000, present: "user", want: Verdict{Fits: true}},
		{name: "one slot is used, into the other", holds: slots, cpu: 4001, present: "user", want: Verdict{Resource: v1.ResourceCPU, By: r}},
		{name: "an owner that fits beside them", holds: slots, cpu: 2000, who: Asker{Claims: owner}, want: Verdict{Fits: true}},
		{name: "an owner that takes a slot first", holds: slots, cpu: 2000, who: Asker{Claims: owner, Use: UseFirst}, want: Verdict{Fits: true}, slot: true},
		{name: "an owner that needs a slot", holds: slots, cpu: 4000, who: Asker{Claims: owner}, want: Verdict{Fits: true}, slot: true},
		{name: "an owner that needs both slots", holds: slots, cpu: 4001, who: Asker{Claims: owner}, want: Verdict{Resource: v1.ResourceCPU, By: r}},
		{name: "an owner of a higher priority minds its own slots", holds: slots, cpu: 4000, who: Asker{Claims: owner, Priority: 9}, want: Verdict{Fits: true}, slot: true},
		{name: "a higher priority", holds: slots, cpu: 6000, who: Asker{Priority: 6}, want: Verdict{Fits: true}},
		{name: "the same priority", holds: slots, cpu: 6000, who: Asker{Priority: 5}, want: Verdict{Resource: v1.ResourceCPU, By: r}},
		{name: "exempt", holds: slots, cpu: 6000, who: Asker{IgnoreHolds: true}, want: Verdict{Fits: true}},
		{name: "no CPU asked for", holds: slots, cpu: 0, want: Verdict{Fits: true}},
		{name: "a slot or nothing", holds: slots, cpu: 1000, who: Asker{Claims: owner, Use: UseOnly}, want: Verdict{Fits: true}, slot: true},
		{name: "a slot or nothing, and none is its", holds: slots, cpu: 1000, who: Asker{Use: UseOnly}},
		{name: "a member's slot", holds: member, cpu: 1, want: Verdict{Resource: v1.ResourceCPU, By: g}},
		{name: "another member", holds: member, cpu: 1, who: Asker{UID: "n", Claims: []ClaimID{g.ID}}, want: Verdict{Resource: v1.ResourceCPU, By: g}},
		{name: "the member", holds: member, cpu: 6000, who: Asker{UID: "m", Claims: []ClaimID{g.ID}}, want: Verdict{Fits: true}, slot: true},
		{name: "the member is nominated", holds: member, cpu: 6000, present: "m", want: Verdict{Fits: true}},
		{name: "a resource that the pod does not ask for", holds: gpu, cpu: 6000, want: Verdict{Fits: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Fits(&Resources{MilliCPU: c.cpu, Pods: 1}, &Resources{MilliCPU: 10000, Pods: 10}, &Resources{MilliCPU: 4000, Pods: 2},
				c.holds, &c.who, func(uid types.UID) bool { return uid == c.present })
			require.Equal(t, c.slot, got.Slot != nil)
			got.Slot = nil
			require.Equal(t, c.want, got)
		})
	}

	t.Run("the number of pods", func(t *testing.T) {
		got := Fits(&Resources{Pods: 1}, &Resources{MilliCPU: 10000, Pods: 4}, &Resources{Pods: 2}, slots, &Asker{}, func(types.UID) bool { return false })
		require.Equal(t, Verdict{Resource: v1.ResourcePods, By: r}, got)
	})
	t.Run("an extended resource", func(t *testing.T) {
		one := map[v1.ResourceName]int64{"example.com/gpu": 1}
		for free, want := range map[int64]Verdict{2: {Fits: true}, 1: {Resource: "example.com/gpu", By: r}} {
			got := Fits(&Resources{Pods: 1, Scalar: one}, &Resources{Pods: 10, Scalar: map[v1.ResourceName]int64{"example.com/gpu": free}}, &Resources{}, gpu, &Asker{}, nil)
			require.Equal(t, want, got)
		}
	})
}

// TestFitsIsMonotone: what fits goes on fitting when pods leave, a slot goes, or the pod is smaller.
func TestFitsIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, label) }
		claims := []*Claim{{ID: claimIDs[0], Priority: 1}, {ID: claimIDs[1]}, {ID: claimIDs[2], Priority: 1}}
		holds := &NodeHolds{}
		for _, c := range claims {
			if rapid.Bool().Draw(t, "holds") {
				holds.Holds = append(holds.Holds, Hold{Claim: c, Requests: Resources{MilliCPU: number("size", 4), Pods: 1}, Slots: int(number("slots", 3))})
			}
		}
		request := Resources{MilliCPU: number("request", 6), Pods: 1}
		requested := Resources{MilliCPU: number("requested", 10), Pods: number("pods", 5)}
		allocatable := Resources{MilliCPU: 10, Pods: 6}
		who := &Asker{
			Priority: int32(number("priority", 2)), Use: Use(number("use", 1)),
			Claims: rapid.SliceOfNDistinct(rapid.SampledFrom(claimIDs), 0, 2, rapid.ID[ClaimID]).Draw(t, "claims"),
		}
		fits := func() bool { return Fits(&request, &allocatable, &requested, holds, who, nil).Fits }
		before := fits()

		switch what := number("what", 3); {
		case what == 0 && requested.Pods > 0:
			requested.Pods--
			requested.MilliCPU /= 2
		case what == 1 && request.MilliCPU > 1:
			request.MilliCPU--
		case what == 2 && len(holds.Holds) > 0 && holds.Holds[0].Slots > 0 && !who.mayUse(&holds.Holds[0]):
			holds.Holds[0].Slots--
		default:
			who.Priority++
		}
		if before {
			require.True(t, fits())
		}
	})
}

// TestFitsAllocatesNothing guards what makes it affordable in Filter.
func TestFitsAllocatesNothing(t *testing.T) {
	holds, request, allocatable, requested, who := fitsCase()
	pods := []types.UID{"a", "b", "c"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		present := func(uid types.UID) bool { return slices.Contains(pods, uid) }
		if Fits(&request, &allocatable, &requested, holds, &who, present).Fits {
			panic("the pod must look at all that is held")
		}
	}))
}

// fitsCase is a pod that may use a slot of one of three claims, and does not fit.
func fitsCase() (holds *NodeHolds, request, allocatable, requested Resources, who Asker) {
	gpus := map[v1.ResourceName]int64{"example.com/gpu": 1}
	holds = &NodeHolds{Holds: []Hold{
		{Claim: &Claim{ID: claimIDs[0]}, Requests: Resources{MilliCPU: 4000, Memory: 4 << 30, Pods: 1}, Slots: 3, Consumers: []types.UID{"a"}},
		{Claim: &Claim{ID: claimIDs[1]}, Requests: Resources{MilliCPU: 2000, Memory: 1 << 30, Pods: 1}, Slots: 2},
		{Claim: &Claim{ID: claimIDs[2]}, Requests: Resources{MilliCPU: 1000, Pods: 1, Scalar: gpus}, Slots: 1, For: "m"},
	}}
	return holds, Resources{MilliCPU: 8000, Memory: 8 << 30, Pods: 1, Scalar: gpus},
		Resources{MilliCPU: 32000, Memory: 64 << 30, Pods: 110, Scalar: map[v1.ResourceName]int64{"example.com/gpu": 8}},
		Resources{MilliCPU: 17000, Memory: 8 << 30, Pods: 30}, Asker{UID: "x", Claims: []ClaimID{claimIDs[1]}}
}

// TestLeaves: a view knows without looking at the node that its holds leave room for a pod, also after they were dropped.
func TestLeaves(t *testing.T) {
	l := New(DefaultOptions())
	var v HoldsView
	request, none := Resources{MilliCPU: 1000, Pods: 1}, Resources{}
	leaves := func(milliCPU, pods int64) bool {
		l.UpdateHoldsView(&v)
		return v.Leaves(&request, &Resources{MilliCPU: milliCPU, Pods: pods}, &none)
	}
	require.True(t, leaves(0, 0), "nothing is held: whether it fits at all is not judged")

	for _, name := range []string{"n1", "n2"} {
		l.AddNode(makeNode(name, "a"))
	}
	claim := Claim{ID: claimIDs[0], Name: "r1", Since: t0, Wanted: 3}
	size := Resources{MilliCPU: 500, Pods: 1}
	_, err := l.PlaceHolds(claim, []Slot{{Node: "n1", Count: 2, Requests: size}, {Node: "n2", Count: 1, Requests: size}})
	require.NoError(t, err)
	require.True(t, leaves(2000, 3))
	require.False(t, leaves(1999, 3))
	require.False(t, leaves(2000, 2))
	request.Scalar = map[v1.ResourceName]int64{"example.com/gpu": 1}
	require.False(t, leaves(2000, 3), "it looks at the amounts that all nodes have")
	request.Scalar = nil

	l.ReleaseHolds(claim.ID)
	require.True(t, leaves(0, 0))
}
