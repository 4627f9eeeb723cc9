package framework

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

// startGangCluster starts a scheduler with PermitGate and nodes of so many CPUs each, on a new API server.
func startGangCluster(t testing.TB, args string, cpus ...int) *cluster {
	t.Helper()
	c := newGangCluster(t, cpus...)
	c.start(withArgs(args))
	return c
}

// newGangCluster makes a cluster without a scheduler, to be one with PermitGate.
func newGangCluster(t testing.TB, cpus ...int) *cluster {
	t.Helper()
	c := newCluster(t, permitGateOnly)
	c.maxBackoff = 2
	for i, cpu := range cpus {
		c.addNode(fmt.Sprintf("node-%d", i), cpu)
	}
	return c
}

// holdFailure has the scheduler come to a halt, when a pod has failed for the first time, before it does anything about
// it: until the second channel is closed. The first one is closed by then.
func (c *cluster) holdFailure(name string) (failed, handled chan struct{}) {
	failed, handled = make(chan struct{}), make(chan struct{})
	var once atomic.Bool // a sync.Once would have others wait for its lock
	c.onFailure = func(pod string) {
		if pod == name && once.CompareAndSwap(false, true) {
			close(failed)
			<-handled
		}
	}
	return failed, handled
}

// requireKept waits until a node is kept for so many pods.
func (c *cluster) requireKept(node string, pods int) {
	c.t.Helper()
	c.soonEqual(pods, func() any { return c.nominated(node) })
}

// nominated returns how many pods the scheduler keeps room for on a node.
func (c *cluster) nominated(node string) int {
	return len(upstream.NominatedTo(c.scheduler.Profiles["default-scheduler"], node))
}

func (c *cluster) addNode(name string, cpu int) {
	c.t.Helper()
	c.addZonalNode(name, "", cpu)
}

// addZonalNode adds a node of a zone.
func (c *cluster) addZonalNode(name, zone string, cpu int) {
	c.t.Helper()
	c.add(newNode(name, zone, fmt.Sprint(cpu)))
}

// member returns a pod of a gang that requests one CPU, or as many as are given; gang "" makes a pod of
// none.
func member(gang, name string, cpu ...int) *st.PodWrapper {
	if len(cpu) == 0 {
		cpu = []int{1}
	}
	pod := build.Pod(name, fmt.Sprint(cpu[0]))
	pod.UID += "-uid"
	if gang != "" {
		build.Member(gang)(pod)
	}
	return &st.PodWrapper{Pod: *pod}
}

func (c *cluster) create(pods ...*st.PodWrapper) {
	c.t.Helper()
	for _, p := range pods {
		c.createPods(p.Obj())
	}
}

// change makes something else of a pod.
type change func(p *st.PodWrapper) *st.PodWrapper

func plain(p *st.PodWrapper) *st.PodWrapper { return p }

func labelled(key, value string) change {
	return func(p *st.PodWrapper) *st.PodWrapper { return p.Label(key, value) }
}

func ranked(priority int32) change {
	return func(p *st.PodWrapper) *st.PodWrapper { return p.Priority(priority) }
}

// createGang creates the PodGroup and as many members as its quorum, and returns their names.
func (c *cluster) createGang(name string, size int, changes ...change) []string {
	c.t.Helper()
	c.groups.set(name, int32(size))
	return c.createMembers(name, size, changes...)
}

// createMembers creates members GANG-0, GANG-1 and on, and returns their names.
func (c *cluster) createMembers(gang string, size int, changes ...change) []string {
	c.t.Helper()
	return c.createAlike(gang, size, func(name string) *st.PodWrapper { return member(gang, name) }, changes)
}

// createPlain creates pods without a gang, and returns their names.
func (c *cluster) createPlain(prefix string, n int, changes ...change) []string {
	c.t.Helper()
	return c.createAlike(prefix, n, func(name string) *st.PodWrapper { return member("", name) }, changes)
}

// createAlike creates pods PREFIX-0, PREFIX-1 and on, and returns their names.
func (c *cluster) createAlike(prefix string, n int, pod func(name string) *st.PodWrapper, changes []change) []string {
	c.t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		p := pod(names[i])
		for _, change := range changes {
			p = change(p)
		}
		c.create(p)
	}
	return names
}

// update replaces a pod.
func (c *cluster) update(p *st.PodWrapper) {
	c.t.Helper()
	pod := p.Obj()
	pod.Generation++
	_, err := c.client.CoreV1().Pods("default").Update(c.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// boundAmong lists the bound pods among names.
func (c *cluster) boundAmong(names ...string) []string {
	var bound []string
	for name := range c.bound("") {
		if slices.Contains(names, name) {
			bound = append(bound, name)
		}
	}
	return bound
}

// requireBound waits until all of names are bound, and returns how long that took.
func (c *cluster) requireBound(names ...string) time.Duration {
	c.t.Helper()
	start := c.clock.Now()
	c.soon(func() bool { return len(c.boundAmong(names...)) == len(names) })
	return c.clock.Since(start)
}

// requireUnbound makes sure that none of names is bound when the scheduler has nothing to do.
func (c *cluster) requireUnbound(names ...string) {
	c.t.Helper()
	c.quiet()
	require.Empty(c.t, c.boundAmong(names...))
}

// requireRoomFor binds and removes a pod of so many CPUs: nobody holds them.
func (c *cluster) requireRoomFor(cpu int) {
	c.t.Helper()
	c.create(member("", "probe", cpu))
	c.requireBound("probe")
	c.delete("probe")
}

func (c *cluster) exists(name string) bool {
	c.t.Helper()
	return slices.ContainsFunc(c.listPods(name), func(p v1.Pod) bool { return p.Name == name })
}

// starve has a gang be refused for long.
func (c *cluster) starve(gang ...string) {
	c.t.Helper()
	for range 40 {
		c.pass(time.Second)
		c.quiet()
	}
	require.Empty(c.t, c.boundAmong(gang...))
}

// groups are the PodGroups, and all other custom resources.
type groups struct {
	*crdtest.Source

	mu      sync.Mutex // guards created
	created int
}

func newGroups() *groups { return &groups{Source: crdtest.New()} }

func (g *groups) get(name string) (*v1alpha1.PodGroup, bool) {
	return crdtest.Get(g.Source, &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}

// set creates or changes a PodGroup; a timeout is optional, in seconds.
func (g *groups) set(name string, minMember int32, timeout ...int32) {
	g.edit(name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = minMember
		if len(timeout) > 0 {
			group.Spec.ScheduleTimeoutSeconds = &timeout[0]
		}
	})
}

// edit creates or changes a PodGroup.
func (g *groups) edit(name string, f func(group *v1alpha1.PodGroup)) {
	group, exists := g.get(name)
	if !exists {
		g.mu.Lock()
		g.created++
		group.UID = types.UID(fmt.Sprintf("group-%d", g.created))
		group.CreationTimestamp = metav1.Time{Time: time.Unix(int64(g.created), 0)}
		g.mu.Unlock()
	}
	f(group)
	g.Put(group)
}

// annotate changes a PodGroup's annotations.
func (g *groups) annotate(name string, annotations map[string]string) {
	g.edit(name, func(group *v1alpha1.PodGroup) { group.Annotations = annotations })
}

func (g *groups) delete(name string) {
	group, _ := g.get(name)
	g.Delete(group)
}

// status returns a PodGroup's status.
func (g *groups) status(name string) v1alpha1.PodGroupStatus {
	group, _ := g.get(name)
	return group.Status
}
