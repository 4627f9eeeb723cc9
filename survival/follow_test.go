package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// follower certifies a cluster, and then follows it.
type follower struct {
	t         *testing.T
	certifier survival.Certifier
	asked     []*v1alpha1.ZoneSurvival
	at        time.Time
}

func newFollower(t *testing.T, c *clitest.Cluster, asked ...*v1alpha1.ZoneSurvival) (*follower, []v1alpha1.ZoneSurvivalStatus) {
	t.Helper()
	f := &follower{t: t, asked: asked, at: clitest.Now}
	out, err := f.certifier.Certify(t.Context(), c.Objects(), asked, f.options())
	require.NoError(t, err)
	return f, out
}

func (f *follower) options() survival.Options {
	return survival.Options{Sim: sim.Options{Now: f.at}, Replays: survival.DefaultReplays}
}

// follow returns the answers that follow, in the order of the ZoneSurvivals; nil if none does. One that does not follow
// is empty.
func (f *follower) follow(objects []client.Object) []v1alpha1.ZoneSurvivalStatus {
	f.t.Helper()
	f.at = f.at.Add(time.Minute)
	answers, followed, err := f.certifier.Follow(f.t.Context(), objects, f.asked, f.options())
	require.NoError(f.t, err)
	if !followed {
		return nil
	}
	out := make([]v1alpha1.ZoneSurvivalStatus, len(f.asked))
	for i, s := range f.asked {
		out[i] = answers[s.UID]
	}
	return out
}

// named gives a ZoneSurvival a name and a UID.
func named(name string, s *v1alpha1.ZoneSurvival) *v1alpha1.ZoneSurvival {
	s.Name, s.UID = name, types.UID(name)
	return s
}

// TestFollow: an answer follows a workload that comes, grows, moves and goes. The nodes a, b and c have 8 CPUs.
func TestFollow(t *testing.T) {
	c := zones()
	deploy(c, "web", "3", nil, "a", "b", "c")
	f, first := newFollower(t, c, named("zones", protecting("web")), named("nodes", againstNodes(protecting("web"))))
	require.Equal(t, v1alpha1.ReasonAllPlaced, first[0].Conditions[0].Reason)
	require.Equal(t, first[0].ComputedAt, first[0].ReplayedAt)

	// A pod comes to the node to which the copy has moved web's; that is moved again.
	deploy(c, "api", "5", nil, "b")
	is := f.follow(c.Objects())
	require.Equal(t, metav1.ConditionTrue, is[0].Conditions[0].Status, is[0].Conditions[0].Message)
	require.Empty(t, is[1], "the loss of nodes is replayed in full only")

	small := c.Objects()
	deploy(c, "batch", "3", nil, "a", "c")
	with := c.Objects()
	is = f.follow(with)
	require.Equal(t, metav1.ConditionFalse, is[0].Conditions[0].Status)
	require.Contains(t, is[0].Conditions[0].Message, "without zone a, 1 of 1 displaced pods would wait, first shop/web-1-1: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu")
	require.Equal(t, []time.Time{clitest.Now.Add(2 * time.Minute), clitest.Now}, []time.Time{is[0].ComputedAt.Time, is[0].ReplayedAt.UTC()})
	require.Equal(t, survival.Fingerprint(with), is[0].Snapshot.Hash)
	for _, loss := range is[0].Losses {
		require.Equal(t, []int64{1, 1, 1}, []int64{loss.Nodes, loss.Displaced, loss.Waiting}, loss.Zone)
		require.False(t, loss.NodesStay, "the other form is not known")
		for _, m := range loss.Margin {
			require.Contains(t, []string{"0", "2"}, m.Free.Cpu().String(), "two pods are on each node, and none of a lost one")
		}
	}
	require.Nil(t, f.follow(small), "an answer that is False waits for the next full round")
}

// TestWhatCannotBeFollowed: pods and their controllers can, and what changes no answer; after anything else all losses
// are replayed.
func TestWhatCannotBeFollowed(t *testing.T) {
	build := func(change func(c *clitest.Cluster)) []client.Object {
		c := zones()
		deploy(c, "web", "1", nil, "a", "b", "")
		c.Budget("web", 1)
		c.Policy("web", nil)
		c.Reservation("held", "web", "1", 0, map[string]int64{"c": 2})
		change(c)
		return c.Objects()
	}
	for name, tc := range map[string]struct {
		change func(c *clitest.Cluster)
		want   bool
	}{
		"nothing":            {func(*clitest.Cluster) {}, true},
		"a pod is bound":     {func(c *clitest.Cluster) { c.Pods()[2].Spec.NodeName = "c" }, true},
		"a pod terminates":   {func(c *clitest.Cluster) { c.Pods()[0].DeletionTimestamp = &metav1.Time{Time: clitest.Now} }, true},
		"a pod has ended":    {func(c *clitest.Cluster) { c.Pods()[0].Status.Phase = v1.PodSucceeded }, true},
		"a pod's labels":     {func(c *clitest.Cluster) { c.Pods()[0].Labels["tier"] = "x" }, true},
		"another Deployment": {func(c *clitest.Cluster) { deploy(c, "new", "1", nil, "a", "") }, true},
		"a heartbeat": {func(c *clitest.Cluster) {
			snapshot.List[*v1.Node](c.Snapshot)[0].Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		}, true},
		"a policy counts": {func(c *clitest.Cluster) {
			snapshot.List[*v1alpha1.ZoneSpreadPolicy](c.Snapshot)[0].Status.Pods = 2
		}, true},
		"a policy changes": {func(c *clitest.Cluster) { snapshot.List[*v1alpha1.ZoneSpreadPolicy](c.Snapshot)[0].Generation = 7 }, false},
		"a node is cordoned": {func(c *clitest.Cluster) {
			snapshot.List[*v1.Node](c.Snapshot)[0].Spec.Unschedulable = true
		}, false},
		"another node": {func(c *clitest.Cluster) { c.Node("d", "a", "1", "1Gi") }, false},
		"a reservation is filled": {func(c *clitest.Cluster) {
			snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot)[0].Status.Slots.Held = 1
		}, false},
		"a claim": {func(c *clitest.Cluster) { c.Add(volume("a")...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFollower(t, &clitest.Cluster{Snapshot: func() *snapshot.Snapshot {
				s := snapshot.New(clitest.Now)
				s.Add(build(func(*clitest.Cluster) {})...)
				return s
			}()}, protecting("web"))
			require.Equal(t, tc.want, f.follow(build(tc.change)) != nil)
		})
	}
	t.Run("another spec", func(t *testing.T) {
		objects := build(func(*clitest.Cluster) {})
		c := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
		c.Add(objects...)
		f, _ := newFollower(t, c, protecting("web"))
		edited := protecting("web")
		edited.Generation++
		f.asked = []*v1alpha1.ZoneSurvival{edited}
		require.Nil(t, f.follow(objects))
	})
	t.Run("another object of that name", func(t *testing.T) {
		objects := build(func(*clitest.Cluster) {})
		c := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
		c.Add(objects...)
		f, _ := newFollower(t, c, named("services", protecting("web")))
		f.asked = []*v1alpha1.ZoneSurvival{protecting("web")}
		require.Nil(t, f.follow(objects))
	})
}

// TestFollowedAnswers follows random clusters through random changes of their pods. The counts are those of a
// certificate of the changed cluster, and no answer that is not True becomes True. Where no packing of the displaced
// pods exists, the answer says that one waits, and where every order finds one, that none does. In between the order
// decides.
func TestFollowedAnswers(t *testing.T) {
	impossible, certain := 0, 0
	for i := range *clusters {
		seed := *first + uint64(i) //nolint:gosec // not negative
		t.Run(fmt.Sprintf("cluster %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 13))
			c := random(r)
			f, is := newFollower(t, c, protecting("web", "api"))
			for step := range 3 {
				c = mutate(r, c, step)
				if !meta.IsStatusConditionTrue(is[0].Conditions, v1alpha1.ConditionSurvives) {
					require.Nil(t, f.follow(c.Objects()), "it was not True before")
					return
				}
				is = f.follow(c.Objects())
				require.NotNil(t, is)
				fresh := certify(t, c, protecting("web", "api"), survival.Options{})
				require.Equal(t, []int64{fresh.Pods, fresh.Waiting}, []int64{is[0].Pods, is[0].Waiting})
				require.Len(t, is[0].Losses, len(fresh.Losses))
				for i, loss := range is[0].Losses {
					require.Equal(t, []any{fresh.Losses[i].Zone, fresh.Losses[i].Nodes}, []any{loss.Zone, loss.Nodes})
					if !packable(c, inZone(loss.Zone)) {
						impossible++
						require.Positive(t, loss.Waiting, "no packing exists after the loss of zone %s", loss.Zone)
					}
					if fitsInAnyOrder(c, inZone(loss.Zone)) {
						certain++
						require.Zero(t, loss.Waiting, "every order finds a packing after the loss of zone %s", loss.Zone)
					}
				}
			}
		})
	}
	t.Logf("%d losses have no packing, %d have one in any order", impossible, certain)
	require.Positive(t, certain)
}

// fitsInAnyOrder reports whether all pods of lost nodes find room on the others whatever the order, even if nothing
// gives way. A pod waits only if each node has less left than it asks for: in whole CPUs, at most one less on each.
func fitsInAnyOrder(c *clitest.Cluster, taken func(*v1.Node) bool) bool {
	left, nodes := int64(0), map[string]bool{}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		if !taken(node) {
			left += node.Status.Allocatable.Cpu().Value()
			nodes[node.Name] = true
		}
	}
	largest := int64(0)
	for _, pod := range c.Pods() {
		cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
		left -= cpu
		if !nodes[pod.Spec.NodeName] {
			largest = max(largest, cpu)
		}
	}
	return left+largest > int64(len(nodes))*(largest-1)
}

// mutate returns the cluster with some pods gone, some on another node, and a new Deployment.
func mutate(r *rand.Rand, c *clitest.Cluster, step int) *clitest.Cluster {
	out := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	free := map[string]int64{}
	var nodes []string
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		nodes = append(nodes, node.Name)
		free[node.Name] = node.Status.Allocatable.Cpu().Value()
	}
	for _, pod := range c.Pods() {
		free[pod.Spec.NodeName] -= pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	for _, obj := range c.Objects() {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			out.Add(obj)
			continue
		}
		cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
		switch to := nodes[r.IntN(len(nodes))]; {
		case r.IntN(5) == 0: // it is gone
			free[pod.Spec.NodeName] += cpu
		case r.IntN(4) == 0 && free[to] >= cpu: // another one is elsewhere
			free[to] -= cpu
			free[pod.Spec.NodeName] += cpu
			moved := pod.DeepCopy()
			moved.Name, moved.UID, moved.Spec.NodeName = fmt.Sprintf("%s-%d", pod.Name, step), types.UID(fmt.Sprintf("%s-%d", pod.UID, step)), to
			out.Add(moved)
		default:
			out.Add(pod)
		}
	}
	var on []string
	for range r.IntN(3) {
		if to := nodes[r.IntN(len(nodes))]; free[to] > 0 {
			free[to]--
			on = append(on, to)
		}
	}
	add := out.Deployment(fmt.Sprintf("new-%d", step), int32(len(on)), "1", "1Gi", priority(10)) //nolint:gosec // a few
	for i, node := range on {
		add(node).UID = types.UID(fmt.Sprintf("new-%d-%d", step, i))
	}
	return out
}
