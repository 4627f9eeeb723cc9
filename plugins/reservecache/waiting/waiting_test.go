package waiting

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func podOf(name string, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
}

func cpus(n int64) *ledger.Resources { return &ledger.Resources{MilliCPU: 1000 * n, Pods: 1} }

// stage is a cluster of which the test says what it has. Its nodes have room for 100 pods.
type stage struct {
	*Pods
	free   map[string]int64 // CPUs by node
	holds  *holds.Holds
	claims map[types.UID]types.UID // of pods
	closed map[string]bool         // nodes that pods may not go to
	now    time.Time
}

func newStage() *stage {
	return &stage{Pods: New(), free: map[string]int64{}, holds: holds.New(), claims: map[types.UID]types.UID{}, closed: map[string]bool{}, now: t0}
}

func (s *stage) cluster() *Cluster {
	return &Cluster{
		Node: func(name string) (Node, bool) {
			free, ok := s.free[name]
			return Node{
				Object:      &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
				Allocatable: ledger.Resources{MilliCPU: 1000 * free, Pods: 100},
				Holds:       s.holds.Node(name),
			}, ok
		},
		Requester: func(pod *v1.Pod) holds.Requester {
			return holds.Requester{Priority: *pod.Spec.Priority, Claim: s.claims[pod.UID]}
		},
		MayGo: func(_ *v1.Pod, n *v1.Node) bool { return !s.closed[n.Name] },
	}
}

func (s *stage) pick() []string {
	var names []string
	for _, pod := range s.Pick(s.now, s.cluster()).Pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// refuse has pods refused, and their backoff end.
func (s *stage) refuse(pods ...*v1.Pod) {
	for _, pod := range pods {
		s.AttemptBegins(pod.UID)
		s.Refused(pod, cpus(1), Terms{}, s.now)
	}
	s.now = s.now.Add(maxBackoff)
}

// TestAsManyAsCouldFit of thousands are chosen, those of the highest priority first and then those that have waited longest.
func TestAsManyAsCouldFit(t *testing.T) {
	s := newStage()
	for i := range 1000 {
		s.refuse(podOf(fmt.Sprintf("low-%d", i), 0))
	}
	s.refuse(podOf("high", 1))
	s.free["n"] = 3
	require.Empty(t, s.pick(), "nothing has changed")
	s.Opened([]string{"n"})
	require.Equal(t, []string{"high", "low-0", "low-1"}, s.pick())
	require.Empty(t, s.pick(), "they are about to take the room")

	// One takes it, one goes elsewhere and one is refused: two more could fit.
	s.AttemptBegins("high")
	require.False(t, s.Placed("high", "n"))
	s.free["n"] = 2
	s.AttemptBegins("low-0")
	require.True(t, s.Placed("low-0", "other"))
	s.refuse(podOf("low-1", 0))
	require.Equal(t, []string{"low-2", "low-3"}, s.pick())
	require.True(t, s.Waits("low-1", "n"), "the scheduler may hear of the room only now")
	require.False(t, s.Waits("low-1", "other"))
	require.False(t, s.Waits("low-4", "n"))
	s.AttemptBegins("low-2")
	s.AttemptBegins("low-3")
	s.Placed("low-2", "n")
	s.Placed("low-3", "n")
	s.free["n"] = 0
	require.Empty(t, s.pick())

	// The next opening is another matter, for the one that was refused too: it stands behind the others now.
	s.free["n"] = 1
	s.Opened([]string{"n"})
	require.Equal(t, []string{"low-4"}, s.pick())
}

// TestNobodyIsChosenInVain: pods that do not fit, that holds still keep out, and that may not go to the node are left alone.
func TestNobodyIsChosenInVain(t *testing.T) {
	s := newStage()
	web := holds.Claim{UID: "web", Name: "web", Slot: *cpus(1)}
	s.holds.SetClaim(web)
	s.holds.Change("web", []holds.Change{{Node: "n", Add: web.SlotsAmount(1)}})
	s.claims["owner"] = "web"
	s.free["n"] = 1
	s.AttemptBegins("large")
	s.Refused(podOf("large", 0), cpus(2), Terms{}, s.now)
	s.refuse(podOf("stranger", 0), podOf("owner", 0))
	s.Opened([]string{"n"})
	require.Equal(t, []string{"owner"}, s.pick())
	s.AttemptBegins("owner")
	s.refuse(podOf("owner", 0))
	require.Empty(t, s.pick(), "it was tried")

	s.free["n"], s.closed["n"] = 4, true
	s.Opened([]string{"n"})
	require.Empty(t, s.pick())
	s.closed["n"] = false
	require.Empty(t, s.pick(), "the node is closed until something changes there")
	s.Opened([]string{"n"})
	require.Equal(t, []string{"large", "owner", "stranger"}, s.pick(), "the owner has its slot")
	delete(s.free, "n")
	require.Empty(t, s.pick())
}

// TestBackoffIsKept: a pod is chosen when its backoff is over, which grows with its refusals.
func TestBackoffIsKept(t *testing.T) {
	s := newStage()
	s.free["n"] = 5
	pod := podOf("p", 0)
	for attempt, backoff := range []time.Duration{1, 2, 4, 8, 10, 10} {
		s.AttemptBegins("p")
		s.Refused(pod, cpus(1), Terms{}, s.now)
		s.Opened([]string{"n"})
		picked := s.Pick(s.now, s.cluster())
		require.Empty(t, picked.Pods)
		require.Equal(t, s.now.Add(backoff*time.Second), picked.Next, "attempt %d", attempt)
		s.now = picked.Next
		require.Equal(t, []string{"p"}, s.pick())
	}
	s.AttemptBegins("p")
	s.Gone("p")
	require.True(t, s.Empty())
}

// TestRoomThatOpensDuringAnAttempt: what the attempt is judged by may be older. The pod is refused, and chosen for the room.
func TestRoomThatOpensDuringAnAttempt(t *testing.T) {
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprintf("others wait: %t", others), func(t *testing.T) {
			s := newStage()
			s.free["n"] = 1
			if others {
				s.AttemptBegins("large")
				s.Refused(podOf("large", 0), cpus(2), Terms{}, s.now)
			}
			s.AttemptBegins("p")
			s.Opened([]string{"n"})
			require.Empty(t, s.pick())
			require.True(t, s.Refused(podOf("p", 0), cpus(1), Terms{}, s.now))
			s.now = s.now.Add(maxBackoff)
			require.Equal(t, []string{"p"}, s.pick())

			s.AttemptBegins("p")
			require.False(t, s.Refused(podOf("p", 0), cpus(1), Terms{}, s.now), "nothing has changed since this attempt began")
		})
	}
}

// TestOneThatIsNotTriedHoldsNobodyUp: something else keeps it back.
func TestOneThatIsNotTriedHoldsNobodyUp(t *testing.T) {
	s := newStage()
	s.free["n"] = 1
	s.refuse(podOf("gated", 1), podOf("next", 0))
	s.Opened([]string{"n"})
	require.Equal(t, []string{"gated"}, s.pick())
	require.Equal(t, s.now.Add(maxBackoff), s.Pick(s.now, s.cluster()).Next)
	s.now = s.now.Add(maxBackoff)
	require.Equal(t, []string{"next"}, s.pick())
}

// TestWhatSomethingElseRefuses: when the next pod's turn comes, the one before has had its try.
func TestWhatSomethingElseRefuses(t *testing.T) {
	s := newStage()
	s.free["n"] = 1
	s.refuse(podOf("spread", 1), podOf("next", 0))
	s.Opened([]string{"n"})
	require.Equal(t, []string{"spread"}, s.pick())
	require.False(t, s.AttemptBegins("spread"))
	require.Empty(t, s.pick())
	require.True(t, s.AttemptBegins("other"))
	require.Equal(t, []string{"next"}, s.pick())
}

// TestOthersGoOnWhileACrowdIsLookedAt: attempts begin and end, and nodes are opened, while Pick asks about the cluster. A pod that is tried
// meanwhile is not chosen, and a node that was opened again stays open.
func TestOthersGoOnWhileACrowdIsLookedAt(t *testing.T) {
	s := newStage()
	s.free["n"] = 2
	s.refuse(podOf("first", 0), podOf("second", 0), podOf("third", 0))
	s.Opened([]string{"n"})
	cluster := s.cluster()
	cluster.MayGo = func(pod *v1.Pod, _ *v1.Node) bool {
		if pod.Name == "first" {
			s.AttemptBegins("second")
			s.AttemptBegins("other")
			s.Refused(podOf("third", 0), cpus(1), Terms{}, s.now)
			s.Opened([]string{"n"})
		}
		return true
	}
	require.Len(t, s.Pick(s.now, cluster).Pods, 1)
	s.now = s.now.Add(2 * initialBackoff)
	require.Equal(t, []string{"third"}, s.pick(), "there is room for one beside the first")
}

// TestPodsThatChangeTheirClaim are found when the owners change, and those that were refused by older owners at the next look.
func TestPodsThatChangeTheirClaim(t *testing.T) {
	s := newStage()
	names := func(pods map[string]*v1.Pod) []string { return slices.Sorted(maps.Keys(pods)) }
	s.claims["web"], s.claims["job"] = "old", "other"
	require.True(t, s.Refused(podOf("web", 0), cpus(1), Terms{Claim: "old", Version: 1}, s.now))
	require.True(t, s.Refused(podOf("job", 0), cpus(1), Terms{Claim: "other", Version: 1}, s.now))
	require.Empty(t, s.Reowned(1, s.cluster().Requester), "they belong to what they belonged to")

	s.claims["web"] = "young"
	require.Equal(t, []string{"default/web"}, names(s.Reowned(2, s.cluster().Requester)))
	require.Empty(t, s.Reowned(2, s.cluster().Requester), "once is enough")

	// Its cycle began before the claim went.
	require.True(t, s.Refused(podOf("late", 0), cpus(1), Terms{Claim: "old", Version: 1}, s.now))
	require.Equal(t, []string{"default/late"}, names(s.Reowned(2, s.cluster().Requester)))
	require.False(t, s.Refused(podOf("late", 0), cpus(1), Terms{Version: 2}, s.now))
}
