package reservecache

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// PreFilter holds the cycle back until the ledger has seen the cluster and the slots of the reservations are placed,
// compares ledger and snapshot now and then, and finds out which slots the pod may use. It rejects no pod and no node, and
// has Filter skipped for pods that no hold can touch. It fails with an error, so that the pod is retried, when the
// handlers have not synced in time.
func (p *ReserveCache) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.running
	if err := r.gate.wait(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	r.reservations.AwaitStart(ctx)
	// A pod-group cycle tries placements on the snapshot without changing its generations.
	if !state.IsPodGroupSchedulingCycle() {
		r.drift.check(klog.FromContext(ctx), nodes, p.now())
		r.reservations.Refill(cycleView(nodes))
	}
	r.ledger.UpdateHoldsView(r.view)
	r.blocked.forget(pod.UID)
	asker, owner := r.askerFor(pod)
	if asker.IgnoreHolds || r.view.Empty() && asker.Use != ledger.UseOnly {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, &cycleData{
		asker:     asker,
		request:   r.ledger.Requests(pod),
		owner:     owner,
		elsewhere: &elsewhere{state: state, nodes: nodes},
		refused:   &atomic.Bool{},
		refusal:   &refusal{pod: pod},
	})
	return nil, nil
}

// signature is what tells pods without slots apart, as far as holds are concerned.
type signature struct {
	Priority     int32
	IgnoresHolds bool
}

// SignPod signs the pods that own no slot, so that the framework may batch them: what holds make of a node is the same for
// all pods of one priority. Where an owner goes depends on the slots that are left.
func (p *ReserveCache) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	asker, _ := p.running.askerFor(pod)
	if len(asker.Claims) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods that own held capacity are not signable")
	}
	if !p.running.reservations.Any() {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name, Value: signature{asker.Priority, asker.IgnoreHolds}}}, nil
}
