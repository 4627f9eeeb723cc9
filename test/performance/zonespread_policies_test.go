package performance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
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
	"zonewise.dev/test/crdtest"
	parity "zonewise.dev/test/parity/zonespread"
)

func init() {
	watch.DefaultChanSize = 100_000 // a watch of the fake clientset panics when its channel is full
}

// policyShape is a cluster with policies. Each has an app of its own, with as many pods and owners as the others: Jobs,
// of which all pods are of one revision, or Deployments, of which each has its own.
type policyShape struct {
	nodes, pods, namespaces, policies, owners int
	deployments                               bool
}

func (s policyShape) namespace(app int) string { return fmt.Sprintf("ns-%d", app%s.namespaces) }

// owner is the number of the owner of an app's n-th pod.
func (s policyShape) owner(app, n int) int { return app + s.policies*(n%(s.owners/s.policies)) }

// BenchmarkZoneSpreadPolicies is the cost of PreFilter and PreScore, and of Filter, for a pod that a policy selects,
// for one that none selects, and, to compare with, for one with a hard constraint over zones instead. PreFilter's own
// p99 for a pod with a policy is told apart. Between two cycles a pod is bound, one ends, and their owners' status
// changes, all of which informers show. An iteration is a cycle with a policy, one with a constraint and two with
// neither: run it with -benchtime=3000x, so that 30 cycles are beyond the p99.
func BenchmarkZoneSpreadPolicies(b *testing.B) {
	for _, shape := range []policyShape{
		{5000, 50_000, 1, 10, 500, false},
		{5000, 150_000, 20, 1000, 10_000, false},
		{5000, 150_000, 1, 1, 10_000, false},
		{5000, 150_000, 1, 1, 10_000, true},
		{15_000, 150_000, 20, 1000, 10_000, false},
	} {
		kind := "jobs"
		if shape.deployments {
			kind = "deployments"
		}
		b.Run(fmt.Sprintf("nodes=%d/pods=%d/namespaces=%d/policies=%d/%s=%d", shape.nodes, shape.pods, shape.namespaces, shape.policies,
			kind, shape.owners), func(b *testing.B) {
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
	var preFilter spreadSamples // with a policy
	cycle := 0
	for b.Loop() {
		// The first two learn what has happened since the last cycle that had to, and that is as much for both.
		for _, k := range []int{0, 2, 1, 2} {
			cycle++
			app := cycle % c.shape.policies
			pod := kinds[k].pod(app, cycle)
			d, _ := c.cost(b, c.pair.Ours, pod, c.candidates(b, cycle*97))
			took[k] = append(took[k], d.sum())
			if k == 0 {
				preFilter = append(preFilter, d.preFilter)
			}
			c.turn(b, pod, (cycle*7919)%len(c.nodes), true)
			c.show(b, cycle)
		}
	}
	b.ReportMetric(0, "ns/op")
	for k := range kinds {
		b.ReportMetric(float64(took[k].median().Nanoseconds())/1000, kinds[k].name+"-us/pod")
		b.ReportMetric(float64(took[k].percentile(99).Nanoseconds())/1000, kinds[k].name+"-p99-us")
		b.ReportMetric(float64(slices.Max(took[k]).Microseconds())/1000, kinds[k].name+"-longest-ms")
	}
	b.ReportMetric(float64(preFilter.percentile(99).Nanoseconds())/1000, "policy-prefilter-p99-us")
	b.ReportMetric(float64(took[0].percentile(99))/float64(took[1].percentile(99)), "p99-ratio")
	b.ReportMetric(float64(c.policies.Writes()), "statuses")
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

// policyCluster is a spreadCluster with policies, whose informers have the pods and owners.
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
	objects := make([]runtime.Object, 0, shape.nodes+shape.owners)
	for _, node := range c.nodes {
		objects = append(objects, node)
	}
	for n := range shape.owners {
		objects = append(objects, shape.newOwner(n, 0))
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
	c.cost(b, c.pair.Ours, c.ownedPod(0, 0), c.candidates(b, 0))                 // reads the whole cluster
	return c
}

// newOwner is a Job with so many pods that have succeeded, or a Deployment's ReplicaSet with so many that are ready.
func (s policyShape) newOwner(n int, pods int32) runtime.Object {
	name := fmt.Sprintf("owner-%d", n)
	meta := metav1.ObjectMeta{Namespace: s.namespace(n % s.policies), Name: name, UID: types.UID(name)}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{ownerLabel: name}}
	if s.deployments {
		meta.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": "1000"}
		meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: "deployment-" + meta.UID, Controller: ptr.To(true)}}
		return &appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1000), Selector: selector},
			Status: appsv1.ReplicaSetStatus{ReadyReplicas: pods},
		}
	}
	return &batchv1.Job{
		ObjectMeta: meta,
		Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](1000), Completions: ptr.To[int32](1_000_000), Selector: selector},
		Status:     batchv1.JobStatus{Succeeded: pods},
	}
}

// ownerLabel is the label by which owners select their pods.
const ownerLabel = "owner"

// ownedPod makes a pod of one of an app's owners.
func (c *policyCluster) ownedPod(app, n int) *v1.Pod {
	p := c.newPod(app)
	owner := fmt.Sprintf("owner-%d", c.shape.owner(app, n))
	p.Namespace = c.shape.namespace(app)
	p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", app), "twin": fmt.Sprintf("app-%d", app), ownerLabel: owner}
	reference := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: owner, UID: types.UID(owner), Controller: ptr.To(true)}
	if c.shape.deployments {
		p.Labels["pod-template-hash"] = owner
		reference.APIVersion, reference.Kind = "apps/v1", "ReplicaSet"
	}
	p.OwnerReferences = []metav1.OwnerReference{reference}
	return p
}

// show has informers show what happened in a cycle: a pod came, an older one ended, and an owner has noted it.
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
	resource := batchv1.SchemeGroupVersion.WithResource("jobs")
	if c.shape.deployments {
		resource = appsv1.SchemeGroupVersion.WithResource("replicasets")
	}
	owner := c.shape.newOwner(c.shape.owner(app, cycle), int32(cycle)) //nolint:gosec // far fewer cycles
	require.NoError(b, c.tracker.Update(resource, owner, pod.Namespace))
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
