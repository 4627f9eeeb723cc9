package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

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
	c := clitest.Zones("a", "b", "c")
	c.Running("web", "3", nil, "a", "b", "c")
	f, first := newFollower(t, c, named("zones", protecting("web")), named("nodes", againstNodes(protecting("web"))))
	require.Equal(t, v1alpha1.ReasonAllPlaced, first[0].Conditions[0].Reason)
	require.Equal(t, first[0].ComputedAt, first[0].ReplayedAt)

	// A pod comes to the node to which the copy has moved web's; that is moved again.
	c.Running("api", "5", nil, "b")
	is := f.follow(c.Objects())
	require.Equal(t, metav1.ConditionTrue, is[0].Conditions[0].Status, is[0].Conditions[0].Message)
	require.Empty(t, is[1], "the loss of nodes is replayed in full only")

	small := c.Objects()
	c.Running("batch", "3", nil, "a", "c")
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

// firstOf returns the first object of a kind.
func firstOf[T client.Object](c *clitest.Cluster) T { return snapshot.List[T](c.Snapshot)[0] }

// TestWhatChangesComeTo: what decides where pods go changes the fingerprint, each thing in its own way, and nothing else
// does. An answer follows changes of pods and their controllers, and those that change no answer; after anything else all
// losses are replayed.
func TestWhatChangesComeTo(t *testing.T) {
	build := func(change func(c *clitest.Cluster)) *clitest.Cluster {
		c := clitest.Zones("a", "b", "c")
		c.Running("web", "1", nil, "a", "b", "")
		c.Budget("web", 1)
		c.Reservation("held", "web", "1", 0, map[string]int64{"c": 2})
		c.Policy("web", nil)
		c.Add(protecting("web"))
		c.Gang("train", 1)
		c.Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "job", UID: "job"}})
		change(c)
		return c
	}
	nothing := func(*clitest.Cluster) {}
	before := build(nothing)
	was := survival.Fingerprint(before.Objects())
	seen := map[string]string{was: "nothing"}
	for name, tc := range map[string]struct {
		change            func(c *clitest.Cluster)
		decides, followed bool
	}{
		"a pod is ready": {func(c *clitest.Cluster) {
			c.Pods()[2].Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}
		}, false, true},
		"an object is written":  {func(c *clitest.Cluster) { c.Pods()[0].ResourceVersion = "7" }, false, true},
		"an answer is written":  {func(c *clitest.Cluster) { firstOf[*v1alpha1.ZoneSurvival](c).Status.Pods = 2 }, false, true},
		"a ZoneSurvival's spec": {func(c *clitest.Cluster) { firstOf[*v1alpha1.ZoneSurvival](c).Generation = 4 }, false, true},
		"a node's heartbeat": {func(c *clitest.Cluster) {
			firstOf[*v1.Node](c).Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		}, false, true},
		"a reservation's heartbeat": {func(c *clitest.Cluster) {
			firstOf[*v1alpha1.ZoneReservation](c).Status.LastUpdateTime = metav1.NowMicro()
		}, false, true},
		"what an autoscaler is asked for": {func(c *clitest.Cluster) {
			status := &firstOf[*v1alpha1.ZoneReservation](c).Status
			status.Buy = &v1alpha1.BuyStatus{Asked: 2}
			status.Conditions = append(status.Conditions, metav1.Condition{Type: v1alpha1.ConditionBuying})
		}, false, true},
		"how pods of a policy leave": {func(c *clitest.Cluster) {
			status := &firstOf[*v1alpha1.ZoneSpreadPolicy](c).Status
			status.Conditions = append(status.Conditions, metav1.Condition{Type: v1alpha1.ConditionScaleDownOrdered})
		}, false, true},
		"a pod is bound":   {func(c *clitest.Cluster) { c.Pods()[2].Spec.NodeName = "c" }, true, true},
		"a pod terminates": {func(c *clitest.Cluster) { c.Pods()[0].DeletionTimestamp = &metav1.Time{Time: clitest.Now} }, true, true},
		"a pod has ended":  {func(c *clitest.Cluster) { c.Pods()[0].Status.Phase = v1.PodSucceeded }, true, true},
		"a pod's labels":   {func(c *clitest.Cluster) { c.Pods()[0].Labels["tier"] = "x" }, true, true},
		"a pod's spec":     {func(c *clitest.Cluster) { c.Pods()[0].Generation = 2 }, true, true},
		"a pod is resized": {func(c *clitest.Cluster) {
			pod := c.Pods()[0]
			pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue})
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, Resources: &v1.ResourceRequirements{Requests: clitest.Requests("3", "1Gi")},
			}}
		}, true, true},
		"another Deployment":        {func(c *clitest.Cluster) { c.Running("new", "1", nil, "a", "") }, true, true},
		"a Deployment is scaled":    {func(c *clitest.Cluster) { firstOf[*appsv1.Deployment](c).Generation = 2 }, true, true},
		"pods of a Job have failed": {func(c *clitest.Cluster) { firstOf[*batchv1.Job](c).Status.Failed = 1 }, true, true},
		"a Job is over": {func(c *clitest.Cluster) {
			firstOf[*batchv1.Job](c).Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}
		}, true, true},
		"replicas that a controller notes": {func(c *clitest.Cluster) {
			firstOf[*appsv1.ReplicaSet](c).Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": "9"}
		}, true, true},
		"a policy counts":    {func(c *clitest.Cluster) { firstOf[*v1alpha1.ZoneSpreadPolicy](c).Status.Pods = 2 }, true, true},
		"a policy changes":   {func(c *clitest.Cluster) { firstOf[*v1alpha1.ZoneSpreadPolicy](c).Generation = 7 }, true, false},
		"another policy":     {func(c *clitest.Cluster) { c.Policy("api", nil) }, true, false},
		"a node is cordoned": {func(c *clitest.Cluster) { firstOf[*v1.Node](c).Spec.Unschedulable = true }, true, false},
		"a node is tainted": {func(c *clitest.Cluster) {
			firstOf[*v1.Node](c).Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}, true, false},
		"a node grows": {func(c *clitest.Cluster) {
			firstOf[*v1.Node](c).Status.Allocatable["cpu"] = resource.MustParse("9")
		}, true, false},
		"a node declares a feature": {func(c *clitest.Cluster) {
			firstOf[*v1.Node](c).Status.DeclaredFeatures = []string{"new"}
		}, true, false},
		"another node":            {func(c *clitest.Cluster) { c.Node("d", "a", "1", "1Gi") }, true, false},
		"a reservation is filled": {func(c *clitest.Cluster) { firstOf[*v1alpha1.ZoneReservation](c).Status.Slots.Held = 1 }, true, false},
		"a claim":                 {func(c *clitest.Cluster) { c.ZonalVolume("data", "a") }, true, false},
		"an annotation of a PodGroup": {func(c *clitest.Cluster) {
			firstOf[*schedulingv1alpha1.PodGroup](c).Annotations = map[string]string{"zonewise.dev/required-topology": v1.LabelTopologyZone}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := build(tc.change).Objects()
			is := survival.Fingerprint(after)
			require.Equal(t, tc.decides, is != was)
			if tc.decides {
				require.NotContains(t, seen, is, "as %s", seen[is])
				seen[is] = name
			}
			f, _ := newFollower(t, before, protecting("web"))
			require.Equal(t, tc.followed, f.follow(after) != nil)
		})
	}
	edited := protecting("web")
	edited.Generation++
	for name, asked := range map[string]*v1alpha1.ZoneSurvival{"another spec": edited, "another object of that name": protecting("web")} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFollower(t, before, named("services", protecting("web")))
			f.asked = []*v1alpha1.ZoneSurvival{asked}
			require.Nil(t, f.follow(before.Objects()))
		})
	}
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
