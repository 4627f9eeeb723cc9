package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate"
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
