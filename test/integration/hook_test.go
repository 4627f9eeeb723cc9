package integration

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins"
)

// hookName is the name of hook in the registry.
const hookName = "TestHook"

// hook is a plugin of a test, behind all others at its extension points. It makes happen what other
// people's plugins do to a pod that the pack has already taken into account. A func that is nil lets every
// pod pass. The funcs are called from the scheduler's goroutines.
type hook struct {
	reserve, permit, preBind func(*v1.Pod) *fwk.Status
}

var (
	_ fwk.ReservePlugin = &hook{}
	_ fwk.PermitPlugin  = &hook{}
	_ fwk.PreBindPlugin = &hook{}
)

// factory returns the constructor, to be given to withTestPlugin.
func (h *hook) factory() plugins.Factory {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return h, nil }
}

// Name implements fwk.Plugin.
func (*hook) Name() string { return hookName }

// Reserve implements fwk.ReservePlugin.
func (h *hook) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if h.reserve == nil {
		return nil
	}
	return h.reserve(pod)
}

// Unreserve implements fwk.ReservePlugin.
func (*hook) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// Permit implements fwk.PermitPlugin. A pod that it lets wait does so until the test decides.
func (h *hook) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if h.permit == nil {
		return nil, 0
	}
	return h.permit(pod), 10 * time.Minute
}

// PreBindPreFlight implements fwk.PreBindPlugin.
func (h *hook) PreBindPreFlight(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if h.preBind == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{}, nil
}

// PreBind implements fwk.PreBindPlugin.
func (h *hook) PreBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if h.preBind == nil {
		return nil
	}
	return h.preBind(pod)
}
