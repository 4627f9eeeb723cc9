package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// anywhere is the fit of slots that select nothing and tolerate nothing.
var anywhere = NewFit(nil, nil, false)

func makeNode(name, zone, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelTopologyZone: zone}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse(cpu),
			v1.ResourceMemory: resource.MustParse("64Gi"),
			v1.ResourcePods:   resource.MustParse("110"),
		}},
	}
}

func makePod(name, node, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}

// cluster returns a ledger with n nodes of 4 CPUs in each of the zones: a1, a2, ... b1, ...
func cluster(n int, zones ...string) *ledger.Ledger {
	l := ledger.New(ledger.DefaultOptions())
	for _, zone := range zones {
		for i := range n {
			l.AddNode(makeNode(fmt.Sprintf("%s%d", zone, i+1), zone, "4"))
		}
	}
	return l
}

func add(t require.TestingT, l *ledger.Ledger, pods ...*v1.Pod) {
	for _, pod := range pods {
		_, err := l.AddPod(pod)
		require.NoError(t, err)
	}
}

func id(name string) ledger.ClaimID {
	return ledger.ClaimID{Kind: ledger.Reservation, UID: types.UID(name)}
}

// demand returns one of slots of a CPU each; age is in minutes, and a smaller one is older.
func demand(name string, age int, zones ...Zone) Demand {
	return Demand{
		Claim: ledger.Claim{ID: id(name), Name: "ZoneReservation " + name, Since: t0.Add(time.Duration(age) * time.Minute)},
		Slot:  ledger.Resources{MilliCPU: 1000},
		Zones: zones,
		Fit:   anywhere,
	}
}

// slots returns the number of slots on each node.
func slots(t require.TestingT, l *ledger.Ledger, name string) map[string]int {
	status, ok := l.Claim(id(name))
	require.True(t, ok, "no claim %s", name)
	got := map[string]int{}
	for _, h := range status.Holds {
		got[h.Node] = h.Slots
	}
	return got
}

// cycle is the view of a scheduling cycle that sees what the ledger does.
func cycle(l *ledger.Ledger) View {
	s := ledger.NewSnapshot()
	l.UpdateSnapshot(s)
	return snapshotView{s}
}

// consume lets a pod take a slot on a node, as Reserve does, and be bound.
func consume(t require.TestingT, l *ledger.Ledger, name, node, cpu, claim string) {
	view := cycle(l)
	for i := range view.Len() {
		if view.Node(i).Name != node {
			continue
		}
		allocatable, requested := view.Resources(i)
		got, err := l.AssumePodOnHold(makePod(name, "", cpu), node, &ledger.Admission{
			Asker:     ledger.Asker{Claims: []ledger.ClaimID{id(claim)}, Use: ledger.UseFirst},
			Requested: requested, Allocatable: allocatable,
			Present: func(uid types.UID) bool { return view.Present(i, uid) },
		}, t0)
		require.NoError(t, err)
		require.Equal(t, id(claim), got)
		add(t, l, makePod(name, node, cpu))
		return
	}
	require.Fail(t, "no node "+node)
}

func keeper(t *testing.T, l *ledger.Ledger, demands ...Demand) *Keeper {
	k := NewKeeper(l)
	for _, d := range demands {
		require.NoError(t, k.Set(d))
	}
	return k
}
