package performance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/schedulertest"
)

// The cluster on which ledger and cache are compared.
const (
	ledgerNodes = 5000
	ledgerPods  = 50000
	ledgerZones = 3
	// ledgerRounds is how many times the two take turns within one run; the medians are reported.
	ledgerRounds = 5
)

func init() {
	metrics.Register()
}

// accountant is what ledger and cache have in common.
type accountant interface {
	assume(pod *v1.Pod)
	forget(pod *v1.Pod)
	add(pod *v1.Pod)
	remove(pod *v1.Pod)
	addNode(n *v1.Node)
	removeNode(n *v1.Node)
	// snapshot brings the one snapshot that is kept up to date, newSnapshot takes one from nothing.
	snapshot()
	newSnapshot()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

type ours struct {
	ledger *ledger.Ledger
	kept   *ledger.Snapshot
}

func newOurs() *ours {
	return &ours{ledger: ledger.New(ledger.DefaultOptions()), kept: ledger.NewSnapshot()}
}

func (o *ours) assume(pod *v1.Pod)    { must(o.ledger.AssumePod(pod, pod.Spec.NodeName, time.Time{})) }
func (o *ours) forget(pod *v1.Pod)    { o.ledger.ForgetPod(pod.UID, pod.Spec.NodeName) }
func (o *ours) remove(pod *v1.Pod)    { o.ledger.RemovePod(pod.UID) }
func (o *ours) addNode(n *v1.Node)    { o.ledger.AddNode(n) }
func (o *ours) removeNode(n *v1.Node) { o.ledger.RemoveNode(n) }
func (o *ours) snapshot()             { o.ledger.UpdateSnapshot(o.kept) }
func (o *ours) newSnapshot()          { o.ledger.UpdateSnapshot(ledger.NewSnapshot()) }
func (o *ours) add(pod *v1.Pod) {
	_, err := o.ledger.AddPod(pod)
	must(err)
}

type theirs struct {
	logger klog.Logger
	cache  cache.Cache
	kept   *cache.Snapshot
}

func newTheirs(ctx context.Context) *theirs {
	return &theirs{logger: klog.FromContext(ctx), cache: schedulertest.NewCache(ctx), kept: cache.NewEmptySnapshot()}
}

func (s *theirs) assume(pod *v1.Pod)    { must(s.cache.AssumePod(s.logger, pod)) }
func (s *theirs) forget(pod *v1.Pod)    { must(s.cache.ForgetPod(s.logger, pod)) }
func (s *theirs) add(pod *v1.Pod)       { must(s.cache.AddPod(s.logger, pod)) }
func (s *theirs) remove(pod *v1.Pod)    { must(s.cache.RemovePod(s.logger, pod)) }
func (s *theirs) addNode(n *v1.Node)    { s.cache.AddNode(s.logger, n) }
func (s *theirs) removeNode(n *v1.Node) { must(s.cache.RemoveNode(s.logger, n)) }
func (s *theirs) snapshot()             { must(s.cache.UpdateSnapshot(s.logger, s.kept)) }
func (s *theirs) newSnapshot()          { must(s.cache.UpdateSnapshot(s.logger, cache.NewEmptySnapshot())) }

func ledgerNode(i int) *v1.Node {
	name := fmt.Sprintf("node-%d", i)
	return st.MakeNode().Name(name).UID(name).Label(v1.LabelTopologyZone, fmt.Sprintf("zone-%d", i%ledgerZones)).
		Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "64", v1.ResourceMemory: "256Gi", v1.ResourcePods: "110"}).Obj()
}

func ledgerPod(i int, node int) *v1.Pod {
	name := fmt.Sprintf("pod-%d", i)
	return st.MakePod().Namespace("default").Name(name).UID(name).Node(fmt.Sprintf("node-%d", node)).
		Req(map[v1.ResourceName]string{v1.ResourceCPU: "100m", v1.ResourceMemory: "128Mi"}).Obj()
}

// ledgerCluster returns the objects of the cluster.
func ledgerCluster() ([]*v1.Node, []*v1.Pod) {
	nodes := make([]*v1.Node, ledgerNodes)
	for i := range nodes {
		nodes[i] = ledgerNode(i)
	}
	pods := make([]*v1.Pod, ledgerPods)
	for i := range pods {
		pods[i] = ledgerPod(i, i%ledgerNodes)
	}
	return nodes, pods
}

// fill feeds a cluster to an accountant.
func fill(a accountant, nodes []*v1.Node, pods []*v1.Pod) {
	for _, n := range nodes {
		a.addNode(n)
	}
	for _, pod := range pods {
		a.add(pod)
	}
}

// ledgerCases time n operations of a kind, without what has to be done around them. n is what makes one
// turn long enough to be measured.
var ledgerCases = []struct {
	name string
	n    int
	time func(a accountant, n int) time.Duration
}{
	{"AssumeForget", 20000, func(a accountant, n int) time.Duration {
		pods := extraPods(n)
		start := time.Now()
		for _, pod := range pods {
			a.assume(pod)
			a.forget(pod)
		}
		return time.Since(start)
	}},
	{"AddOfAssumed", 20000, func(a accountant, n int) time.Duration {
		assumed, shown := extraPods(n), extraPods(n)
		for _, pod := range assumed {
			a.assume(pod)
		}
		start := time.Now()
		for _, pod := range shown {
			a.add(pod)
		}
		elapsed := time.Since(start)
		for _, pod := range shown {
			a.remove(pod)
		}
		return elapsed
	}},
	{"SnapshotIdle", 200000, func(a accountant, n int) time.Duration {
		a.snapshot()
		start := time.Now()
		for range n {
			a.snapshot()
		}
		return time.Since(start)
	}},
	{"SnapshotAfterOneAssume", 5000, func(a accountant, n int) time.Duration {
		a.snapshot()
		pods := extraPods(n)
		var elapsed time.Duration
		for _, pod := range pods {
			a.assume(pod)
			start := time.Now()
			a.snapshot()
			elapsed += time.Since(start)
		}
		for _, pod := range pods {
			a.forget(pod)
		}
		return elapsed
	}},
	{"SnapshotAfterNodeAdded", 50, func(a accountant, n int) time.Duration {
		a.snapshot()
		var elapsed time.Duration
		for i := range n {
			node := ledgerNode(ledgerNodes + i%ledgerZones)
			a.addNode(node)
			start := time.Now()
			a.snapshot()
			elapsed += time.Since(start)
			a.removeNode(node)
			a.snapshot()
		}
		return elapsed
	}},
	{"SnapshotFull", 10, func(a accountant, n int) time.Duration {
		start := time.Now()
		for range n {
			a.newSnapshot()
		}
		return time.Since(start)
	}},
}

// extraPods returns pods that the cluster does not have, spread over its nodes.
func extraPods(n int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = ledgerPod(ledgerPods+i, i*7%ledgerNodes)
		pods[i].UID = types.UID(fmt.Sprintf("extra-%d", i))
	}
	return pods
}

// BenchmarkLedgerVsCache times the ledger and kube-scheduler's own cache in turns on the same cluster of
// 5,000 nodes and 50,000 pods, and reports the medians of both and their ratio: a speed of 1.00 is the
// cache's, more is faster.
func BenchmarkLedgerVsCache(b *testing.B) {
	nodes, pods := ledgerCluster()
	zonewise, upstream := newOurs(), newTheirs(b.Context())
	fill(zonewise, nodes, pods)
	fill(upstream, nodes, pods)
	for _, c := range ledgerCases {
		b.Run(c.name, func(b *testing.B) {
			var z, u []float64
			for b.Loop() {
				for round := range ledgerRounds {
					// Who goes first changes, so that neither always runs on the other's garbage.
					for _, mine := range []bool{round%2 == 0, round%2 != 0} {
						runtime.GC()
						if mine {
							z = append(z, float64(c.time(zonewise, c.n))/float64(c.n))
						} else {
							u = append(u, float64(c.time(upstream, c.n))/float64(c.n))
						}
					}
				}
			}
			slices.Sort(z)
			slices.Sort(u)
			mid := len(z) / 2
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(z[mid], "zonewise-ns/op")
			b.ReportMetric(u[mid], "upstream-ns/op")
			b.ReportMetric(u[mid]/z[mid], "speed")
		})
	}
}
