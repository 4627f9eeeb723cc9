package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
)

// preFilters is the part of kube-scheduler's framework that a handle does not name; that of 1.37 names the last two.
type preFilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
	RunReservePluginsReserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status
	RunReservePluginsUnreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string)
}

// filterRunner asks the filters of a profile about hypothetical pods and nodes. It is used in scheduling cycles only.
type filterRunner struct {
	handle fwk.Handle
	// run is nil when the framework does not let plugins run these.
	run preFilters
	// hypothetical is true during a question, when this plugin's own PreFilter skips.
	hypothetical bool
}

func newFilterRunner(handle fwk.Handle) *filterRunner {
	run, _ := handle.(preFilters)
	return &filterRunner{handle: handle, run: run}
}

// State prepares a cycle's state for a pod, which need not be the cycle's own pod, and returns the nodes that the pod
// may go to. It reports false when PreFilter refuses the pod, or cannot be run.
func (r *filterRunner) State(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, bool) {
	if r.run == nil {
		return nil, nil, false
	}
	r.hypothetical = true
	defer func() { r.hypothetical = false }()
	state = state.Clone()
	hypothetical.Mark(state)
	nodes, status, _ := r.run.RunPreFilterPlugins(ctx, state, pod)
	return state, nodes, status.IsSuccess()
}

// accepts reports whether the filters let a pod onto a node.
func (r *filterRunner) accepts(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) bool {
	state, nodes, ok := r.State(ctx, state, pod)
	return ok && (nodes.AllNodes() || nodes.NodeNames.Has(node.Node().Name)) &&
		r.handle.RunFilterPlugins(ctx, state, pod, node).IsSuccess()
}

// Reserve has the profile's plugins reserve for a pod, which the filters have accepted with such a state. Plugins of
// this module do nothing then.
func (r *filterRunner) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) bool {
	if r.run.RunReservePluginsReserve(ctx, state, pod, node).IsSuccess() {
		return true
	}
	r.Unreserve(ctx, state, pod, node)
	return false
}

// Unreserve undoes Reserve.
func (r *filterRunner) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	r.run.RunReservePluginsUnreserve(ctx, state, pod, node)
}
