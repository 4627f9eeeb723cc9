package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/schedulertest"
)

// pair is a ledger and kube-scheduler's cache that hear of the same events.
type pair struct {
	logger   klog.Logger
	ledger   *ledger.Ledger
	cache    cache.Cache
	kept     *ledger.Snapshot
	snapshot *cache.Snapshot

	// What the API server and the scheduler know, so that only events are made that can happen.
	nodes   map[string]*v1.Node
	assumed map[types.UID]*v1.Pod
	added   map[types.UID]*v1.Pod
	// removed are the nodes that went since the last snapshot. stale is set when since then a node has
	// changed its zone or has gone and come back, so that the cache's snapshot keeps an old order.
	removed map[string]bool
	stale   bool
}

func init() {
	metrics.Register()
}

// newPair returns a pair without nodes; the cache's own goroutine ends with ctx.
func newPair(ctx context.Context) *pair {
	return &pair{
		logger:   klog.Background(),
		ledger:   ledger.New(ledger.DefaultOptions()),
		cache:    schedulertest.NewCache(ctx),
		kept:     ledger.NewSnapshot(),
		snapshot: cache.NewEmptySnapshot(),
		nodes:    map[string]*v1.Node{},
		removed:  map[string]bool{},
		assumed:  map[types.UID]*v1.Pod{},
		added:    map[types.UID]*v1.Pod{},
	}
}

func (p *pair) known(uid types.UID) bool {
	return p.assumed[uid] != nil || p.added[uid] != nil
}

// assume is Reserve. It does nothing if the event cannot happen, as all of these.
func (p *pair) assume(t require.TestingT, pod *v1.Pod) {
	if p.known(pod.UID) {
		return
	}
	require.NoError(t, p.cache.AssumePod(p.logger, pod))
	require.NoError(t, p.ledger.AssumePod(pod, pod.Spec.NodeName, time.Unix(0, 0)))
	p.assumed[pod.UID] = pod
}

func (p *pair) forget(t require.TestingT, uid types.UID) {
	pod := p.assumed[uid]
	if pod == nil {
		return
	}
	require.NoError(t, p.cache.ForgetPod(p.logger, pod))
	require.True(t, p.ledger.ForgetPod(uid, pod.Spec.NodeName))
	delete(p.assumed, uid)
}

// add is the informer's Add, of an assumed pod wherever it is or of one that someone else bound.
func (p *pair) add(t require.TestingT, pod *v1.Pod) {
	if p.added[pod.UID] != nil {
		return
	}
	want := ledger.PodAdded
	if assumed := p.assumed[pod.UID]; assumed != nil {
		want = ledger.PodConfirmed
		if assumed.Spec.NodeName != pod.Spec.NodeName {
			want = ledger.PodMoved
		}
	}
	require.NoError(t, p.cache.AddPod(p.logger, pod))
	got, err := p.ledger.AddPod(pod)
	require.NoError(t, err)
	require.Equal(t, want, got)
	delete(p.assumed, pod.UID)
	p.added[pod.UID] = pod
}

func (p *pair) update(t require.TestingT, pod *v1.Pod) {
	old := p.added[pod.UID]
	if old == nil {
		return
	}
	pod.Spec.NodeName = old.Spec.NodeName
	require.NoError(t, p.cache.UpdatePod(p.logger, old, pod))
	got, err := p.ledger.UpdatePod(old, pod)
	require.NoError(t, err)
	require.Contains(t, []ledger.Change{ledger.PodUpdated, ledger.Unchanged}, got) // the sums tell which was right
	p.added[pod.UID] = pod
}

func (p *pair) remove(t require.TestingT, uid types.UID) {
	switch {
	case p.added[uid] != nil:
		require.NoError(t, p.cache.RemovePod(p.logger, p.added[uid]))
	case p.assumed[uid] != nil:
		require.NoError(t, schedulertest.RemoveAssumedPod(p.cache, p.logger, p.assumed[uid]))
	default:
		return
	}
	require.Equal(t, ledger.PodRemoved, p.ledger.RemovePod(uid))
	delete(p.added, uid)
	delete(p.assumed, uid)
}

func (p *pair) setNode(n *v1.Node) {
	old := p.nodes[n.Name]
	if old == nil {
		p.cache.AddNode(p.logger, n)
		p.ledger.AddNode(n)
	} else {
		p.cache.UpdateNode(p.logger, old, n)
		p.ledger.UpdateNode(n)
		p.stale = p.stale || old.Labels[v1.LabelTopologyZone] != n.Labels[v1.LabelTopologyZone]
	}
	p.stale = p.stale || p.removed[n.Name]
	p.nodes[n.Name] = n
}

func (p *pair) removeNode(t require.TestingT, name string) {
	n := p.nodes[name]
	if n == nil {
		return
	}
	require.NoError(t, p.cache.RemoveNode(p.logger, n))
	require.True(t, p.ledger.RemoveNode(n))
	delete(p.nodes, name)
	p.removed[name] = true
}

// account is what both sides must agree on, of one node.
type account struct {
	Ghost       bool
	Pods        []string
	Requested   ledger.Resources
	Allocatable ledger.Resources
}

// amounts translates, and leaves out scalar resources of amount 0, which the cache keeps.
func amounts(r *framework.Resource) ledger.Resources {
	a := ledger.Resources{MilliCPU: r.MilliCPU, Memory: r.Memory, EphemeralStorage: r.EphemeralStorage, Pods: int64(r.AllowedPodNumber)}
	for name, amount := range r.ScalarResources {
		if amount != 0 {
			if a.Scalar == nil {
				a.Scalar = map[v1.ResourceName]int64{}
			}
			a.Scalar[name] = amount
		}
	}
	return a
}

// requireEqual compares everything that the two sides hold.
func (p *pair) requireEqual(t require.TestingT) {
	want := map[string]account{}
	theirs := p.cache.Dump()
	for name, info := range theirs.Nodes {
		a := account{Ghost: info.Node() == nil, Requested: amounts(info.Requested), Pods: []string{}}
		a.Requested.Pods = int64(len(info.Pods))
		if !a.Ghost { // the cache keeps the allocatable resources of a node that is gone
			a.Allocatable = amounts(info.Allocatable)
		}
		for _, pod := range info.Pods {
			a.Pods = append(a.Pods, describe(pod.GetPod(), theirs.AssumedPods.Has(string(pod.GetPod().UID))))
		}
		slices.Sort(a.Pods)
		want[name] = a
	}
	got := map[string]account{}
	for _, n := range p.ledger.Dump().Nodes {
		a := account{Ghost: n.Ghost, Requested: n.Requested, Allocatable: n.Allocatable, Pods: []string{}}
		for _, pod := range n.Pods {
			a.Pods = append(a.Pods, describe(pod.Pod, pod.State == ledger.Assumed))
		}
		if len(a.Requested.Scalar) == 0 {
			a.Requested.Scalar = nil
		}
		slices.Sort(a.Pods)
		got[n.Name] = a
	}
	require.Equal(t, want, got)
}

// describe names the very object, so that an update that was lost shows.
func describe(pod *v1.Pod, assumed bool) string {
	return fmt.Sprintf("%s at %p, assumed %t", pod.UID, pod, assumed)
}

// requireSameSnapshots brings a snapshot of each side up to date, both of which have missed what happened
// since the last call, and compares them: the nodes, their order and their pods.
func (p *pair) requireSameSnapshots(t require.TestingT) {
	require.NoError(t, p.cache.UpdateSnapshot(p.logger, p.snapshot))
	p.ledger.UpdateSnapshot(p.kept)
	if p.stale {
		// See doc.go: only a new snapshot of the cache has the new order.
		fresh := cache.NewEmptySnapshot()
		require.NoError(t, p.cache.UpdateSnapshot(p.logger, fresh))
		p.snapshot, p.stale = fresh, false
	}
	clear(p.removed)
	infos, err := p.snapshot.NodeInfos().List()
	require.NoError(t, err)
	want, got := []string{}, []string{}
	for _, info := range infos {
		want = append(want, info.Node().Name)
	}
	for _, n := range p.kept.Nodes() {
		got = append(got, n.Node.Name)
	}
	require.Equal(t, want, got)
	require.ElementsMatch(t, slices.Collect(maps.Keys(p.nodes)), got)
	for i, info := range infos {
		n := p.kept.Nodes()[i]
		// The ledger may have an older version of a node that takes the same pods.
		require.Equal(t, info.Node().UID, n.Node.UID)
		require.Equal(t, info.Node().Labels, n.Node.Labels)
		require.Equal(t, info.Node().Spec, n.Node.Spec)
		requested := amounts(info.GetRequested().(*framework.Resource))
		requested.Pods = int64(len(info.GetPods()))
		require.True(t, requested.Equal(&n.Requested), "%v: want %+v, got %+v", n.Node.Name, requested, n.Requested)
		theirs, ours := []types.UID{}, []types.UID{}
		for _, pod := range info.GetPods() {
			theirs = append(theirs, pod.GetPod().UID)
		}
		for _, pod := range n.Pods {
			ours = append(ours, pod.UID)
		}
		require.ElementsMatch(t, theirs, ours)
	}
}
