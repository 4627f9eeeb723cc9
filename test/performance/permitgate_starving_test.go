package performance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate"
)

// starvingCycles is how many cycles are timed with a starving gang, and without, in one turn.
const starvingCycles = 50

// BenchmarkPermitGateStarving is the scheduling cycle of a pod without a gang, from the snapshot to the scores, beside a gang that
// starves, and the same without it. A small pod is assumed, one confirmed and one deleted between cycles, which leaves no room for a
// member; where freed is fitting, a large pod moves besides, so that each cycle finds room for two members on one node.
//
//	idle-us/cycle, starving-us/cycle   the whole cycle, without and with the gang
//	ratio                              of the two
//	idle-us, ahead-us                  what PermitGate's PreFilter takes of it
func BenchmarkPermitGateStarving(b *testing.B) {
	for _, size := range []struct {
		nodes, members int
		fitting        bool
	}{
		{5000, 20, false},
		{5000, 500, false},
		{15_000, 20, false},
		{5000, 20, true},
		{5000, 500, true},
	} {
		freed := "small"
		if size.fitting {
			freed = "fitting"
		}
		b.Run(fmt.Sprintf("nodes=%d/members=%d/freed=%s", size.nodes, size.members, freed), func(b *testing.B) {
			c := newStarvingCluster(b, size.nodes, size.members)
			var whole, inside [2]spreadSamples
			for b.Loop() {
				for i, starves := range []bool{false, true} {
					c.starve(b, starves)
					planned := c.account.looks
					for range starvingCycles {
						if size.fitting {
							c.move(b)
						}
						took, within := c.cycle(b)
						whole[i], inside[i] = append(whole[i], took), append(inside[i], within)
					}
					want := 0
					if starves && size.fitting {
						want = starvingCycles
					}
					require.Equal(b, want, c.account.looks-planned, "how often the gang has been planned")
				}
			}
			c.requireStarving(b)
			us := func(s spreadSamples) float64 { return float64(s.median().Nanoseconds()) / 1000 }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(us(whole[0]), "idle-us/cycle")
			b.ReportMetric(us(whole[1]), "starving-us/cycle")
			b.ReportMetric(us(whole[1])/us(whole[0]), "ratio")
			b.ReportMetric(us(inside[0]), "idle-us")
			b.ReportMetric(us(inside[1]), "ahead-us")
		})
	}
}

// starvingCluster is a scheduler that is called cycle by cycle, in a cluster where no node has room for a member of the gang: of
// 64 CPUs small pods and ten large ones leave less than 3, a member asks for 4.
type starvingCluster struct {
	scheduler *scheduler.Scheduler
	snapshot  *cache.Snapshot // the scheduler's
	plugin    *timedPermitGate
	account   *slotAccount
	group     *v1alpha1.PodGroup
	groups    toolscache.ResourceEventHandler
	member    *v1.Pod
	nodes     int
	large     []*v1.Pod // one of each node
	gone      int       // the node whose large pod is gone, -1 for none
	small     []*v1.Pod // oldest first
	pending   *v1.Pod   // assumed, to be confirmed next
	serial    int
}

func newStarvingCluster(b *testing.B, nodes, members int) *starvingCluster {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := &starvingCluster{account: &slotAccount{slots: map[types.UID]int{}}, nodes: nodes, gone: -1}
	client := fake.NewClientset()
	factory := scheduler.NewInformerFactory(client, 0, nil)
	shared := permitgate.NewShared(
		permitgate.WithPodGroups(func(_ context.Context, handler toolscache.ResourceEventHandler, _ func(bool)) (permitgate.PodGroupWatch, error) {
			c.groups = handler
			return podGroupsServed{}, nil
		}),
		permitgate.WithHolds(func() permitgate.Holds { return c.account }),
	)
	registry := frameworkruntime.Registry{permitgate.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		plugin, err := shared.New(ctx, args, h)
		if err != nil {
			return nil, err
		}
		c.plugin = &timedPermitGate{PermitGate: plugin.(*permitgate.PermitGate)}
		return c.plugin, nil
	}}
	cfg, err := latest.Default()
	require.NoError(b, err)
	profile := cfg.Profiles[0]
	profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, config.Plugin{Name: permitgate.Name})
	profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{Name: permitgate.Name, Args: &runtime.Unknown{
		Raw: []byte(`{"starvationAfter": "1ns", "initialBackoff": "10h", "maxBackoff": "10h", "gangPreemption": false}`),
	}})
	c.scheduler, err = scheduler.New(ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(profile), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	require.NoError(b, err)
	c.snapshot = c.scheduler.Profiles[v1.DefaultSchedulerName].SnapshotSharedLister().(*cache.Snapshot)

	c.group = &v1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gang", UID: "gang"},
		Spec:       v1alpha1.PodGroupSpec{MinMember: int32(members)},
	}
	for i := range members {
		pod := c.pod(fmt.Sprintf("member-%d", i), "4").Label(v1alpha1.PodGroupLabel, "gang").Obj()
		_, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(b, err)
		c.member = pod
	}
	factory.StartWithContext(ctx)
	require.NoError(b, c.scheduler.WaitForHandlersSync(ctx))
	for i := range nodes {
		name := nodeName(i)
		c.scheduler.Cache.AddNode(klog.Logger{}, st.MakeNode().Name(name).UID(name).
			Label(v1.LabelHostname, name).Label(v1.LabelTopologyZone, fmt.Sprintf("zone-%d", i%3)).
			Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "64", v1.ResourceMemory: "256Gi", v1.ResourcePods: "110"}).Obj())
		for k := range 10 {
			pod := c.pod(fmt.Sprintf("large-%d-%d", i, k), "6100m").Node(name).Obj()
			require.NoError(b, c.scheduler.Cache.AddPod(klog.Logger{}, pod))
			if k == 0 {
				c.large = append(c.large, pod)
			}
		}
		if i%10 == 0 {
			c.small = append(c.small, c.pod(fmt.Sprintf("small-%d", i), "100m").Node(name).Obj())
			require.NoError(b, c.scheduler.Cache.AddPod(klog.Logger{}, c.small[len(c.small)-1]))
		}
	}
	return c
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

func (*starvingCluster) pod(name, cpu string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
		Req(map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: "128Mi"})
}

// starve has the gang starve, or takes its PodGroup away. The first cycle with a starving gang looks at every node, and is not timed.
func (c *starvingCluster) starve(b *testing.B, starves bool) {
	b.Helper()
	if c.gone >= 0 {
		c.fill(b)
	}
	if !starves {
		c.groups.OnDelete(c.group)
		c.cycle(b)
		return
	}
	c.groups.OnAdd(c.group, false)
	_, err := c.schedule(c.member)
	require.ErrorContains(b, err, "plan found 0")
	c.cycle(b)
}

// requireStarving has room for a member come free: the gang, which starves, takes it.
func (c *starvingCluster) requireStarving(b *testing.B) {
	b.Helper()
	c.starve(b, true)
	c.move(b)
	c.cycle(b)
	require.Equal(b, map[types.UID]int{"gang": 2}, c.account.slots)
}

func (c *starvingCluster) schedule(pod *v1.Pod) (scheduler.ScheduleResult, error) {
	if err := c.scheduler.Cache.UpdateSnapshot(klog.Logger{}, c.snapshot); err != nil {
		return scheduler.ScheduleResult{}, err
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return scheduler.ScheduleResult{}, err
	}
	return c.scheduler.SchedulePod(context.Background(), c.scheduler.Profiles[v1.DefaultSchedulerName], framework.NewCycleState(),
		&framework.QueuedPodInfo{PodInfo: info})
}

// cycle schedules a small pod, and returns how long that took, and how much of it PermitGate's PreFilter. Then the pod is assumed, the one
// before it confirmed, and the oldest deleted.
func (c *starvingCluster) cycle(b *testing.B) (took, within time.Duration) {
	b.Helper()
	c.serial++
	pod := c.pod(fmt.Sprintf("plain-%d", c.serial), "100m").Obj()
	start := time.Now()
	result, err := c.schedule(pod)
	took = time.Since(start)
	require.NoError(b, err)
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = result.SuggestedHost
	require.NoError(b, c.scheduler.Cache.AssumePod(klog.Logger{}, assumed))
	if c.pending != nil {
		require.NoError(b, c.scheduler.Cache.AddPod(klog.Logger{}, c.pending))
		c.small = append(c.small, c.pending)
	}
	c.pending = assumed
	require.NoError(b, c.scheduler.Cache.RemovePod(klog.Logger{}, c.small[0]))
	c.small = c.small[1:]
	return took, c.plugin.took
}

// move takes the large pod of one node away, and gives the one before it its own back.
func (c *starvingCluster) move(b *testing.B) {
	b.Helper()
	next := (c.serial * 7919) % c.nodes
	if c.gone >= 0 {
		c.fill(b)
	}
	c.gone = next
	require.NoError(b, c.scheduler.Cache.RemovePod(klog.Logger{}, c.large[next]))
}

func (c *starvingCluster) fill(b *testing.B) {
	b.Helper()
	require.NoError(b, c.scheduler.Cache.AddPod(klog.Logger{}, c.large[c.gone]))
	c.gone = -1
}

// timedPermitGate notes how long the last PreFilter took.
type timedPermitGate struct {
	*permitgate.PermitGate
	took time.Duration
}

func (p *timedPermitGate) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	start := time.Now()
	result, status := p.PermitGate.PreFilter(ctx, state, pod, nodes)
	p.took = time.Since(start)
	return result, status
}

// podGroupsServed is a watch of PodGroups that has been read.
type podGroupsServed struct{}

func (podGroupsServed) Available() bool { return true }
func (podGroupsServed) HasSynced() bool { return true }

// slotAccount is an account of holds that has room for everything and costs nothing: the ledger's part is measured by itself.
type slotAccount struct {
	slots map[types.UID]int // by gang
	looks int               // how often a plan has looked at it
}

func (a *slotAccount) Place(c permitgate.Claim, slots []permitgate.HoldSlot) error {
	a.slots[c.Gang] = len(slots)
	return nil
}
func (*slotAccount) Move(types.UID, []permitgate.HoldMove) error { return nil }
func (*slotAccount) ReleaseMember(_, _ types.UID) []string       { return nil }
func (*slotAccount) Placed(fwk.CycleState, *v1.Pod)              {}
func (*slotAccount) Woken(context.Context)                       {}
func (a *slotAccount) Release(gang types.UID) []string           { delete(a.slots, gang); return nil }
func (a *slotAccount) View() permitgate.HoldsView                { a.looks++; return nil }
