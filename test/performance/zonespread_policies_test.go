package performance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
	parity "zonewise.dev/test/parity/zonespread"
)

func init() {
	watch.DefaultChanSize = 100_000 // a watch of the fake clientset panics when its channel is full
}

// policyCycles is how many cycles of each kind are timed in one turn.
const policyCycles = 50

// policyShape is a cluster with policies. Each has an app of its own, with as many pods and Jobs as the others.
type policyShape struct{ nodes, pods, namespaces, policies, jobs int }

func (s policyShape) namespace(app int) string { return fmt.Sprintf("ns-%d", app%s.namespaces) }

// job is the number of the Job of an app's n-th pod.
func (s policyShape) job(app, n int) int { return app + s.policies*(n%(s.jobs/s.policies)) }

// BenchmarkZoneSpreadPolicies is the cost of PreFilter and PreScore, and of Filter, for a pod that a policy selects, for one that none
// selects, and, to compare with, for one with a hard constraint over zones instead. Between two cycles a pod is bound, one ends, and
// their Jobs' status changes, all of which informers show.
func BenchmarkZoneSpreadPolicies(b *testing.B) {
	for _, shape := range []policyShape{
		{5000, 50_000, 1, 10, 500},
		{5000, 150_000, 20, 1000, 10_000},
		{5000, 150_000, 1, 1, 10_000},
		{15_000, 150_000, 20, 1000, 10_000},
	} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d/namespaces=%d/policies=%d/owners=%d", shape.nodes, shape.pods, shape.namespaces, shape.policies, shape.jobs), func(b *testing.B) {
			measurePolicies(b, newPolicyCluster(b, shape))
		})
	}
}

func measurePolicies(b *testing.B, c *policyCluster) {
	b.Helper()
	kinds := []struct {
		name string
		pod  func(app, n int) *v1.Pod
	}{
		{"policy", c.ownedPod},
		{"constraint", func(app, n int) *v1.Pod {
			p := c.ownedPod(app, n)
			delete(p.Labels, "app") // by which policies select
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"twin": p.Labels["twin"]}},
			}}
			return p
		}},
		{"neither", func(app, n int) *v1.Pod {
			p := c.ownedPod(app, n)
			delete(p.Labels, "app")
			return p
		}},
	}
	took := make([]spreadSamples, len(kinds))
	cycle := 0
	for b.Loop() {
		for range policyCycles {
			// The first two learn what has happened since the last cycle that had to, and that is as much for both.
			for _, k := range []int{0, 2, 1, 2} {
				cycle++
				app := cycle % c.shape.policies
				pod := kinds[k].pod(app, cycle)
				d, _ := c.cost(b, c.pair.Ours, pod, c.candidates(b, cycle*97))
				took[k] = append(took[k], d)
				c.turn(b, pod, (cycle*7919)%len(c.nodes), true)
				c.show(b, cycle)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for k := range kinds {
		b.ReportMetric(float64(took[k].median().Nanoseconds())/1000, kinds[k].name+"-us/pod")
		b.ReportMetric(float64(took[k].percentile(99).Nanoseconds())/1000, kinds[k].name+"-p99-us")
	}
	b.ReportMetric(float64(took[0].percentile(99))/float64(took[1].percentile(99)), "p99-ratio")
	reportPolicyFilter(b, c.spreadCluster, c.ownedPod(0, 0))
}

// reportPolicyFilter reports time and allocations of Filter over all nodes, a third of which the policy refuses.
func reportPolicyFilter(b *testing.B, c *spreadCluster, pod *v1.Pod) {
	b.Helper()
	nodes, err := c.snapshot.NodeInfos().List()
	require.NoError(b, err)
	ctx := context.Background()
	state := framework.NewCycleState()
	_, status := c.pair.Ours.PreFilter(ctx, state, pod, nodes)
	require.True(b, status.IsSuccess(), status.AsError())
	filter := func() {
		for _, info := range nodes {
			c.pair.Ours.Filter(ctx, state, pod, info)
		}
	}
	b.ReportMetric(testing.AllocsPerRun(10, filter)/float64(len(nodes)), "filter-allocs")
	var rounds spreadSamples
	for range 20 {
		start := time.Now()
		filter()
		rounds = append(rounds, time.Since(start))
	}
	b.ReportMetric(float64(rounds.median().Nanoseconds())/float64(len(nodes)), "filter-ns/node")
	b.ReportMetric(testing.AllocsPerRun(100, func() {
		c.pair.Ours.PreFilter(ctx, framework.NewCycleState(), pod, nodes)
	}), "policy-allocs/pod")
}

// policyCluster is a spreadCluster with policies, whose informers have the pods and Jobs.
type policyCluster struct {
	*spreadCluster
	shape    policyShape
	handle   fwk.Handle
	tracker  clienttesting.ObjectTracker
	policies *crdtest.Source
	shown    []*v1.Pod // by informers since the start, oldest first
}

func newPolicyCluster(b *testing.B, shape policyShape) *policyCluster {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := &policyCluster{spreadCluster: newBareCluster(ctx, shape.nodes), shape: shape}
	objects := make([]runtime.Object, 0, shape.nodes+shape.jobs)
	for _, node := range c.nodes {
		objects = append(objects, node)
	}
	for job := range shape.jobs {
		objects = append(objects, shape.newJob(job, 0))
	}
	var err error
	c.handle, err = parity.NewHandle(ctx, c.snapshot, objects...)
	require.NoError(b, err)
	c.tracker = c.handle.ClientSet().(*fake.Clientset).Tracker()
	c.policies = parity.ServePolicies(ctx, c.handle)
	c.pair, err = parity.NewPairOn(ctx, c.handle, parity.Options{})
	require.NoError(b, err)

	serial := 0
	c.fillWith(b, shape.pods, shape.policies, func(p *v1.Pod) {
		*p = *c.ownedPod(serial%shape.policies, serial/shape.policies)
		serial++
	})
	store := c.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer()
	for _, pod := range c.pods {
		require.NoError(b, store.Add(pod))
	}
	for app := range shape.policies {
		c.policies.Put(shape.capPolicy(app))
	}
	c.pair.Ours.PreFilter(ctx, framework.NewCycleState(), c.ownedPod(0, 0), nil) // waits until everything is known
	return c
}

// newJob is a Job with so many pods that have succeeded.
func (s policyShape) newJob(job int, succeeded int32) *batchv1.Job {
	name := fmt.Sprintf("job-%d", job)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(job % s.policies), Name: name, UID: types.UID(name)},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](1000), Completions: ptr.To[int32](1_000_000),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: name}},
		},
		Status: batchv1.JobStatus{Succeeded: succeeded},
	}
}

// ownedPod makes a pod of one of an app's Jobs.
func (c *policyCluster) ownedPod(app, n int) *v1.Pod {
	p := c.newPod(app)
	job := fmt.Sprintf("job-%d", c.shape.job(app, n))
	p.Namespace = c.shape.namespace(app)
	p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", app), "twin": fmt.Sprintf("app-%d", app), batchv1.ControllerUidLabel: job}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job), Controller: ptr.To(true)}}
	return p
}

// show has informers show what happened in a cycle: a pod came, an older one ended, and a Job has noted it.
func (c *policyCluster) show(b *testing.B, cycle int) {
	b.Helper()
	app := cycle % c.shape.policies
	pod := c.ownedPod(app, cycle)
	pod.Spec.NodeName = c.nodes[cycle%len(c.nodes)].Name
	require.NoError(b, c.tracker.Add(pod))
	c.shown = append(c.shown, pod)
	if len(c.shown) > 100 {
		old := c.shown[0]
		c.shown = c.shown[1:]
		require.NoError(b, c.tracker.Delete(v1.SchemeGroupVersion.WithResource("pods"), old.Namespace, old.Name))
	}
	job := c.shape.newJob(c.shape.job(app, cycle), int32(cycle)) //nolint:gosec // far fewer cycles
	require.NoError(b, c.tracker.Update(batchv1.SchemeGroupVersion.WithResource("jobs"), job, job.Namespace))
}

// capPolicy spreads an app over zones with a cap.
func (s policyShape) capPolicy(app int) *v1alpha1.ZoneSpreadPolicy {
	name := fmt.Sprintf("app-%d", app)
	return &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(app), Name: name, UID: types.UID("policy-" + name)},
		Spec: v1alpha1.ZoneSpreadPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			MaxPerZone:  ptr.To(intstr.FromString("40%")),
			Zones:       []v1alpha1.ZoneSpreadZone{{Name: "zone-2", Weight: ptr.To[int32](0)}},
		},
	}
}
