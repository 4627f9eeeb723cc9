package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/proposal"
)

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
