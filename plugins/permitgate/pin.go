package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// pinKey marks the cycle state of a member that has a planned node.
const pinKey = fwk.StateKey(Name + "/pin")

// pin is the planned node.
type pin struct{ node string }

// Clone returns the pin itself, which nobody changes.
func (p *pin) Clone() fwk.StateData { return p }

func pinOf(state fwk.CycleState) *pin {
	data, _ := state.Read(pinKey) // an error says that there is none
	p, _ := data.(*pin)
	return p
}

// Filter lets a member pass only on its planned node. What PreFilter returned is not enough: the
// framework tries a node that the member is nominated to before it looks at that.
func (*PermitGate) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if p := pinOf(state); p != nil && info.Node().Name != p.node {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang's plan has another node for the member")
	}
	return nil
}
