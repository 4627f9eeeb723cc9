package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/test/crdtest"
)

// BenchmarkPodWithoutGang is what the plugin costs a pod that is in no gang, over all its extension points, on 5,000
// nodes.
func BenchmarkPodWithoutGang(b *testing.B) {
	client := fake.NewSimpleClientset()
	nodes := make([]*v1.Node, 5000)
	for i := range nodes {
		nodes[i] = st.MakeNode().Name(fmt.Sprint("n", i)).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "8"}).Obj()
	}
	registry := frameworkruntime.Registry{permitgate.Name: permitgate.NewShared(permitgate.WithSource(crdtest.New())).New}
	factory := informers.NewSharedInformerFactory(client, 0)
	f, err := frameworkruntime.NewFramework(b.Context(), registry, nil,
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(cache.NewSnapshot(nil, nodes)),
		frameworkruntime.WithClientSet(client))
	require.NoError(b, err)
	plugin, err := registry[permitgate.Name](b.Context(), nil, f)
	require.NoError(b, err)
	p := plugin.(*permitgate.PermitGate)
	pod := member("", "plain").Obj()
	ctx := b.Context()
	var state fwk.CycleState = framework.NewCycleState()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	p.PreFilter(ctx, state, pod, nil) // the first cycle waits for what was there before
	b.ReportAllocs()
	for b.Loop() {
		p.PreEnqueue(ctx, pod)
		p.PreFilter(ctx, state, pod, nil)
		p.Reserve(ctx, state, pod, "n")
		p.Permit(ctx, state, pod, "n")
		p.PostBind(ctx, state, pod, "n")
		p.SignPod(ctx, pod)
	}
}

// BenchmarkPod is what a pod costs from its creation to its bind, with kube-scheduler's default profile: plain
// pods, members of gangs, and members of gangs that rehearse the bind of one. An operation is 20 pods.
//
//	cpu-us/pod     CPU time of the whole process, the fake API server included
//	writes/pod     what is written to the API server for a pod: binds, patches, rehearsals
//	p50-ms, p99-ms from the creation of the last of 20 pods to the bind of the last
//
// Most of the CPU time and of the latency is the fake API server's, and goes with the writes: compare the
// lines with each other only. What the scheduler reaches against a real API server is in test/performance.
func BenchmarkPod(b *testing.B) {
	const size = 20
	for _, bc := range []struct{ name, args, gang string }{
		{"plain", `{}`, ""},
		{"member", `{"bindRehearsal": "Never"}`, "gang"},
		{"member-rehearsed", `{"bindRehearsal": "Auto"}`, "gang"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			cpus := make([]int, 20)
			for i := range cpus {
				cpus[i] = 1000
			}
			c := startGangCluster(b, bc.args, cpus...)
			var latencies []time.Duration
			pods, round := 0, 0
			c.client.ClearActions()
			cpu := cpuTime(b)
			for b.Loop() {
				round++
				gang := ""
				if bc.gang != "" {
					gang = fmt.Sprintf("%s-%d", bc.gang, round)
					c.groups.set(gang, size)
				}
				names := make([]string, size)
				for i := range names {
					names[i] = fmt.Sprintf("%s-%d-%d", bc.name, round, i)
					c.create(member(gang, names[i]))
				}
				created := time.Now()
				pods += size
				for c.bindCount() < pods {
					time.Sleep(200 * time.Microsecond)
				}
				latencies = append(latencies, time.Since(created))
				c.delete(names...)
			}
			used := cpuTime(b) - cpu
			slices.Sort(latencies)
			b.ReportMetric(float64(used.Microseconds())/float64(pods), "cpu-us/pod")
			b.ReportMetric(float64(c.writes()+c.stage.count(""))/float64(pods), "writes/pod")
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// cpuTime returns the CPU time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// bindCount returns how many pods have been bound.
func (c *cluster) bindCount() int {
	return len(c.server.Binds())
}

// writes returns how often the scheduler has written to the API server.
func (c *cluster) writes() (n int) {
	for _, action := range c.client.Actions() {
		if action.GetResource().Resource == "pods" && action.GetSubresource() != "" && slices.Contains([]string{"create", "patch", "update"}, action.GetVerb()) {
			n++
		}
	}
	return n
}

// bindsSince lists the pods that have been bound since there were so many binds.
func (c *cluster) bindsSince(count int) []string {
	return c.server.Binds()[count:]
}

// timeBind creates a plain pod, and returns how long its bind took. The pod is deleted then.
func (c *cluster) timeBind(name string) time.Duration {
	before, created := c.bindCount(), time.Now()
	c.create(member("", name).Priority(1000))
	for !slices.Contains(c.bindsSince(before), name) {
		time.Sleep(100 * time.Microsecond)
	}
	took := time.Since(created)
	c.delete(name)
	return took
}

// BenchmarkPodsBesideHopelessGangs is what a plain pod waits for its bind on 1,000 nodes of nine pods: alone, beside
// 600 plain pods that a filter refuses and for which there are no victims, and beside 30 gangs of 20 such pods. The
// three take turns of twenty pods, once each pod and gang has been refused: first attempts are free. What
// kube-scheduler's queue does for every pod that waits is in the second already.
//
//	none-us, pods-us, gangs-us   medians
//	pods-ratio, gangs-ratio      of the median beside them and alone
//	pods-p99-ratio, ...          of the 99th percentiles
func BenchmarkPodsBesideHopelessGangs(b *testing.B) {
	const nodes, gangs, members, pods, turn = 1000, 30, 20, 2000, 20
	start := func() *cluster {
		c := newGangCluster(b)
		for i := range nodes {
			name := fmt.Sprintf("node-%d", i)
			c.addNode(name, 10)
			c.bind(name, ported(member("", "high-"+name).Priority(1000)))
			for k := range 8 {
				c.bind(name, member("", fmt.Sprintf("low-%s-%d", name, k)).Priority(1))
			}
		}
		c.start(withArgs(`{}`))
		c.timeBind("first")
		return c
	}
	none, besidePods, besideGangs := start(), start(), start()
	for g := range gangs {
		name := fmt.Sprintf("gang-%d", g)
		besideGangs.groups.set(name, members)
		for i := range members {
			besideGangs.create(ported(member(name, fmt.Sprintf("%s-%d", name, i)).Priority(100)))
			besidePods.create(ported(member("", fmt.Sprintf("waits-%d-%d", g, i)).Priority(100)))
		}
	}
	clusters := []*cluster{none, besidePods, besideGangs}
	refused := func() bool {
		for g := range gangs {
			if besideGangs.recorder.count(fmt.Sprintf("PodGroup gang-%d GangRolledBack", g), "") == 0 {
				return false
			}
			for i := range members {
				if besidePods.recorder.count(fmt.Sprintf("Pod waits-%d-%d FailedScheduling", g, i), "") == 0 {
					return false
				}
			}
		}
		return true
	}
	for n := 0; !refused(); n++ {
		for _, c := range clusters {
			c.timeBind(fmt.Sprintf("warm-%d", n))
		}
	}
	for b.Loop() {
		took := make([][]time.Duration, len(clusters))
		for i := range pods / turn {
			for k, c := range clusters {
				for n := range turn {
					took[k] = append(took[k], c.timeBind(fmt.Sprintf("plain-%d-%d", i, n)))
				}
			}
		}
		us := func(k, percent int) float64 {
			slices.Sort(took[k])
			return float64(took[k][len(took[k])*percent/100].Microseconds())
		}
		b.ReportMetric(us(0, 50), "none-us")
		for k, name := range []string{"pods", "gangs"} {
			b.ReportMetric(us(k+1, 50), name+"-us")
			b.ReportMetric(us(k+1, 50)/us(0, 50), name+"-ratio")
			b.ReportMetric(us(k+1, 99)/us(0, 99), name+"-p99-ratio")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPodsBesideAPreemption has a gang of 20 preempt on 2,000 nodes of 30 pods with 500 PodDisruptionBudgets,
// while plain pods are created one after the other.
//
//	longest-gap-ms   between two of their binds
//	usual-gap-ms     the median
//	whole-ms         from the gang's creation to its last bind
func BenchmarkPodsBesideAPreemption(b *testing.B) {
	const nodes, budgets = 2000, 500
	c := newGangCluster(b)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		c.addNode(name, 30)
		for k := range 30 {
			low := member("", fmt.Sprintf("low-%s-%d", name, k)).Label("app", fmt.Sprint((i*30+k)%budgets))
			c.bind(name, low.Priority(int32(1+(i+k)%5)))
		}
	}
	c.addNode("free", 4)
	for i := range budgets {
		c.createBudget(fmt.Sprint(i), int32(i%3))
	}
	c.start(withArgs(`{"bindRehearsal": "Never"}`))
	for n := 0; b.Loop(); n++ {
		for i := range 50 {
			c.timeBind(fmt.Sprintf("warm-%d-%d", n, i))
		}
		gang, created, before := fmt.Sprintf("urgent-%d", n), time.Now(), c.bindCount()
		c.groups.set(gang, 20)
		for i := range 20 {
			c.create(member(gang, fmt.Sprintf("%s-%d", gang, i), 5).Priority(100))
		}
		var gaps []time.Duration
		whole, last := time.Duration(0), time.Now()
		for i := 0; whole == 0 || i < 200; i++ {
			c.timeBind(fmt.Sprintf("plain-%d-%d", n, i))
			gaps = append(gaps, time.Since(last))
			last = time.Now()
			if whole == 0 && len(c.bindsSince(before)) == i+1+20 {
				whole = time.Since(created)
			}
			require.Less(b, i, 100_000, "the gang preempts in the end")
		}
		slices.Sort(gaps)
		b.ReportMetric(float64(gaps[len(gaps)-1].Microseconds())/1000, "longest-gap-ms")
		b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds())/1000, "usual-gap-ms")
		b.ReportMetric(float64(whole.Microseconds())/1000, "whole-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// victimSearch is a search for victims on a snapshot, with filters of kube-scheduler.
type victimSearch struct {
	handle  framework.Framework
	nodes   []fwk.NodeInfo
	classes []proposal.Class
	budgets []*policyv1.PodDisruptionBudget
}

// State implements preempt.FilterRunner.
func (s *victimSearch) State(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, bool) {
	state = state.Clone()
	allowed, status, _ := s.handle.RunPreFilterPlugins(ctx, state, pod)
	return state, allowed, status.IsSuccess()
}

// Reserve and Unreserve implement preempt.FilterRunner.
func (*victimSearch) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) bool { return true }
func (*victimSearch) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string)    {}

// The following implement proposal.Cluster.

func (s *victimSearch) Len() int                                    { return len(s.nodes) }
func (s *victimSearch) Node(i int) *v1.Node                         { return s.nodes[i].Node() }
func (*victimSearch) Kept(int, *v1.Pod, []v1.ResourceName, []int64) {}
func (s *victimSearch) Free(i int, names []v1.ResourceName, into []int64) {
	allocatable, requested := s.nodes[i].GetAllocatable(), s.nodes[i].GetRequested()
	for j, name := range names {
		if into[j] = allocatable.GetMilliCPU() - requested.GetMilliCPU(); name == v1.ResourcePods {
			into[j] = int64(allocatable.GetAllowedPodNumber() - len(s.nodes[i].GetPods()))
		}
	}
}

func newVictimSearch(t testing.TB, nodes []*v1.Node, pods []*v1.Pod, members ...*v1.Pod) *victimSearch {
	t.Helper()
	cfg, err := latest.Default()
	require.NoError(t, err)
	profile := cfg.Profiles[0]
	kept := []string{
		names.PrioritySort, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit, names.InterPodAffinity,
		names.DefaultBinder,
	}
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(profile.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return !slices.Contains(kept, p.Name) })
	snapshot := cache.NewSnapshot(pods, nodes)
	s := &victimSearch{classes: []proposal.Class{{Pod: members[0]}}}
	s.handle, err = frameworkruntime.NewFramework(t.Context(), plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)),
		frameworkruntime.WithSnapshotSharedLister(snapshot))
	require.NoError(t, err)
	s.nodes, err = snapshot.NodeInfos().List()
	require.NoError(t, err)
	for _, pod := range members {
		s.classes[0].Members = append(s.classes[0].Members, pod.UID)
	}
	return s
}

func (s *victimSearch) run(t testing.TB, now func() time.Time) preempt.Result {
	search := preempt.Search{
		Handle: s.handle, FilterRunner: s, State: framework.NewCycleState(), Nodes: s.nodes,
		Request:  proposal.Request{Cluster: s, Classes: s.classes, Need: len(s.classes[0].Members)},
		MayEvict: func(pod *v1.Pod) bool { return *pod.Spec.Priority < 100 },
		OnItsWay: func(*v1.Pod) bool { return false }, Stays: func(*v1.Pod) bool { return false },
		GangOf:  func(*v1.Pod) *preempt.Gang { return nil },
		Budgets: s.budgets, Now: now,
	}
	return search.Run(t.Context())
}

// crowd is a cluster that is full of pods that may go, and a gang for which some of them must.
func crowd(t testing.TB, nodeCount, podsPerNode, budgets, size int, change func(p *st.PodWrapper) *st.PodWrapper) *victimSearch {
	var nodes []*v1.Node
	var pods []*v1.Pod
	for i := range nodeCount {
		name := fmt.Sprintf("node-%d", i)
		nodes = append(nodes, newNode(name, "a", fmt.Sprint(podsPerNode)))
		for k := range podsPerNode {
			pods = append(pods, change(member("", fmt.Sprintf("low-%d-%d", i, k)).Label("app", fmt.Sprint((i*podsPerNode+k)%budgets)).Priority(int32(1+(i+k)%5))).Node(name).Obj())
		}
	}
	var members []*v1.Pod
	for i := range size {
		members = append(members, change(member("urgent", fmt.Sprintf("urgent-%d", i), 4).Priority(100)).Obj())
	}
	s := newVictimSearch(t, nodes, pods, members...)
	for i := range budgets {
		s.budgets = append(s.budgets, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(i % 3)},
		})
	}
	return s
}

// askedFilters counts how often the filters are asked about a node.
type askedFilters struct {
	framework.Framework
	asked int
}

func (f *askedFilters) RunFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	f.asked++
	return f.Framework.RunFilterPlugins(ctx, state, pod, info)
}

// BenchmarkSearchForVictims is how long the scheduler stands still while a gang of 20 looks for victims on 2,000 nodes
// of 30 pods that may go, with 500 PodDisruptionBudgets; "blocked": host ports are what keeps the members off.
func BenchmarkSearchForVictims(b *testing.B) {
	for name, change := range map[string]func(p *st.PodWrapper) *st.PodWrapper{
		"full": plain,
		"blocked": func(p *st.PodWrapper) *st.PodWrapper {
			if strings.HasSuffix(p.Obj().Name, "-0") || strings.HasPrefix(p.Obj().Name, "urgent") {
				return p.HostPort(port)
			}
			return p
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := crowd(b, 2000, 30, 500, 20, change)
			filters := &askedFilters{Framework: s.handle}
			s.handle = filters
			var r preempt.Result
			cpu := cpuTime(b)
			for b.Loop() {
				r = s.run(b, time.Now)
			}
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(len(r.Victims)), "victims")
			b.ReportMetric(float64(r.Looked), "nodes")
			b.ReportMetric(float64(filters.asked)/float64(b.N), "filters/op")
		})
	}
}
