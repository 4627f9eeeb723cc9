package permitgate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"zonewise.dev/plugins/permitgate"
)

// BenchmarkPodWithoutGang is what the plugin costs a pod that is in no gang, over all its extension points.
func BenchmarkPodWithoutGang(b *testing.B) {
	client := fake.NewClientset()
	registry := frameworkruntime.Registry{permitgate.Name: permitgate.NewShared().New}
	f, err := frameworkruntime.NewFramework(b.Context(), registry, nil,
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithClientSet(client))
	require.NoError(b, err)
	plugin, err := registry[permitgate.Name](b.Context(), nil, f)
	require.NoError(b, err)
	p := plugin.(*permitgate.PermitGate)
	pod := member("", "plain").Obj()
	ctx := b.Context()
	var state fwk.CycleState = framework.NewCycleState()
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
