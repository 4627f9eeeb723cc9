package performance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
	parity "zonewise.dev/test/parity/zonespread"
)

// policyCycles is how many cycles of each kind are timed in one turn.
const policyCycles = 50

// BenchmarkZoneSpreadPolicies is the cost of PreFilter and PreScore, and of Filter, for a pod that one policy of its namespace selects,
// for one that none selects, and, to compare with, for one with a hard constraint over zones instead.
func BenchmarkZoneSpreadPolicies(b *testing.B) {
	for _, size := range []struct{ nodes, pods, policies int }{
		{5000, 50_000, 1},
		{5000, 50_000, 10},
		{5000, 50_000, 100},
		{5000, 5_000, 10},
		{5000, 150_000, 10},
		{15_000, 50_000, 10},
	} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d/policies=%d", size.nodes, size.pods, size.policies), func(b *testing.B) {
			apps := size.pods / podsPerApp
			c := newPolicyCluster(b, size.nodes, apps)
			c.fillWith(b, size.pods, apps, owned)
			c.shows(b, c.pods)
			for app := range size.policies {
				c.policies.Put(capPolicy(app))
			}
			selected := func(i int) *v1.Pod { return newOwnedPod(c.spreadCluster, i%min(size.policies, apps)) }
			measurePolicies(b, c.spreadCluster, selected)
		})
	}
}

func measurePolicies(b *testing.B, c *spreadCluster, selected func(i int) *v1.Pod) {
	b.Helper()
	kinds := []struct {
		name string
		pod  func(i int) *v1.Pod
	}{
		{"policy", selected},
		{"constraint", func(i int) *v1.Pod {
			p := c.newPod(i%len(c.nodes), spreadBy(i%10, v1.LabelTopologyZone, v1.DoNotSchedule))
			p.Labels["app"] = "none"
			return p
		}},
		{"neither", func(int) *v1.Pod {
			p := c.newPod(0)
			p.Labels["app"] = "none"
			return p
		}},
	}
	took := make([]spreadSamples, len(kinds))
	cycle := 0
	for b.Loop() {
		for k := range kinds {
			for range policyCycles {
				cycle++
				pod := kinds[k].pod(cycle)
				d, _ := c.cost(b, c.pair.Ours, pod, c.candidates(b, cycle*97))
				took[k] = append(took[k], d)
				c.turn(b, pod, (cycle*7919)%len(c.nodes), true)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for k := range kinds {
		b.ReportMetric(float64(took[k].median().Nanoseconds())/1000, kinds[k].name+"-us/pod")
	}
	reportPolicyFilter(b, c, selected(0))
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

// policyCluster is a spreadCluster with policies.
type policyCluster struct {
	*spreadCluster
	handle   fwk.Handle
	policies *crdtest.Source
}

func newPolicyCluster(b *testing.B, nodes, apps int) *policyCluster {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := &policyCluster{spreadCluster: newBareCluster(ctx, nodes)}
	var err error
	c.handle, err = parity.NewHandle(ctx, c.snapshot, owners(apps)...)
	require.NoError(b, err)
	c.policies = parity.ServePolicies(ctx, c.handle)
	c.pair, err = parity.NewPairOn(ctx, c.handle, parity.Options{})
	require.NoError(b, err)
	return c
}

// shows puts pods where informers keep them.
func (c *policyCluster) shows(b *testing.B, pods []*v1.Pod) {
	b.Helper()
	store := c.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer()
	for _, pod := range pods {
		require.NoError(b, store.Add(pod))
	}
}

// owners are the Deployments of the apps with their ReplicaSets.
func owners(apps int) []runtime.Object {
	objects := make([]runtime.Object, 0, 2*apps)
	for app := range apps {
		name := fmt.Sprintf("app-%d", app)
		template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, "tier": "backend"}}}
		objects = append(objects,
			&appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
				Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](podsPerApp), Template: template},
			},
			&appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("rs-" + name), OwnerReferences: []metav1.OwnerReference{
					{Kind: "Deployment", Name: name, UID: types.UID(name), Controller: ptr.To(true)},
				}},
				Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](podsPerApp), Template: template},
			})
	}
	return objects
}

// owned makes a pod the ReplicaSet's of its app.
func owned(p *v1.Pod) {
	app := p.Labels["app"]
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app, UID: types.UID("rs-" + app), Controller: ptr.To(true)}}
}

func newOwnedPod(c *spreadCluster, app int) *v1.Pod {
	p := c.newPod(app)
	owned(p)
	return p
}

// capPolicy spreads an app over zones with a cap.
func capPolicy(app int) *v1alpha1.ZoneSpreadPolicy {
	name := fmt.Sprintf("app-%d", app)
	return &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("policy-" + name), Generation: 1},
		Spec: v1alpha1.ZoneSpreadPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			MaxPerZone:  ptr.To(intstr.FromString("40%")),
			Zones:       []v1alpha1.ZoneSpreadZone{{Name: "zone-2", Weight: ptr.To[int32](0)}},
		},
	}
}
