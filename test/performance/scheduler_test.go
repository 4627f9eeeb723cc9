package performance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"zonewise.dev/test/schedulertest"
)

// newAPI is an API server in memory that has nodes and pods.
func newAPI(nodes []*v1.Node, pods []*v1.Pod) *fake.Clientset {
	objects := make([]runtime.Object, 0, len(nodes)+len(pods))
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	return fake.NewSimpleClientset(objects...)
}

// newScheduler makes a scheduler over an API server in memory. It is not running; its caches are full.
func newScheduler(ctx context.Context, b *testing.B, api *fake.Clientset, profiles []config.KubeSchedulerProfile, registry frameworkruntime.Registry) *scheduler.Scheduler {
	b.Helper()
	factory := schedulertest.NewInformerFactory(api)
	s, err := scheduler.New(ctx, api, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	require.NoError(b, err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	require.NoError(b, s.WaitForHandlersSync(ctx))
	return s
}

// bindsAtOnce has an API server in memory bind pods when it is asked to. bound gets each of them as it is then.
func bindsAtOnce(api *fake.Clientset, pods []*v1.Pod, bound func(pod *v1.Pod)) {
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Name] = pod
	}
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding, ok := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if !ok {
			return false, nil, nil
		}
		pod := byName[binding.Name].DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		bound(pod)
		return true, binding, nil
	})
}
