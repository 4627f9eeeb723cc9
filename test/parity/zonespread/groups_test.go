package parity

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// activating is a handle that tells which pods are activated.
type activating struct {
	fwk.Handle
	activated chan string
}

func (h *activating) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for name := range pods {
		h.activated <- name
	}
}

// TestPodsOfGroupsAreWoken: a pod that a policy refuses in the cycle of its pod group, of which PostFilter does not
// hear, is woken when the policy is changed.
func TestPodsOfGroupsAreWoken(t *testing.T) {
	// Given: the only zone is at its cap of one pod.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	node := st.MakeNode().Name("a1").Label(v1.LabelTopologyZone, "a").Obj()
	bound := st.MakePod().Namespace("default").Name("bound").UID("bound").Label("app", "web").Node("a1").Obj()
	waiting := st.MakePod().Namespace("default").Name("waiting").UID("waiting").Label("app", "web").Obj()
	snapshot := cache.NewSnapshot([]*v1.Pod{bound}, []*v1.Node{node})
	plain, err := NewHandle(ctx, snapshot, node, bound, waiting)
	require.NoError(t, err)
	handle := &activating{plain, make(chan string, 10)}
	source := ServePolicies(ctx, handle)
	pair, err := NewPairOn(ctx, handle, Options{})
	require.NoError(t, err)
	capped := func(pods int32) *v1alpha1.ZoneSpreadPolicy {
		return &v1alpha1.ZoneSpreadPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: v1alpha1.ZoneSpreadPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Zones:       []v1alpha1.ZoneSpreadZone{{Name: "a", MaxPods: ptr.To(pods)}},
			},
		}
	}
	source.Put(capped(1))
	// When: it is refused in a group's cycle, and the cap is raised.
	cycle, status, err := StartIn(ctx, PodGroupCycle(), pair.Ours, pair.Lister, waiting)
	require.NoError(t, err)
	require.True(t, status.IsSuccess(), status.AsError())
	require.NotEqual(t, "Success", cycle.Filter(ctx, cycle.State)["a1"])
	source.Put(capped(3))
	// Then: it is activated.
	select {
	case name := <-handle.activated:
		require.Equal(t, "default/waiting", name)
	case <-time.After(30 * time.Second):
		t.Fatal("the pod was not activated")
	}
}
