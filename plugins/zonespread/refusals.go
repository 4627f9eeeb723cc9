package zonespread

import (
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"
)

// refusals makes the statuses of a cycle's refused nodes. The framework keeps them and writes to them, so
// they cannot be shared, and in a large cluster most nodes may be refused. So they are allocated in blocks.
type refusals struct {
	block atomic.Pointer[refusalBlock]
}

type refusalBlock struct {
	used     atomic.Int32
	statuses [32]fwk.Status
}

// like returns a copy of a status. The reasons are shared, since they are never written to in place.
func (r *refusals) like(status *fwk.Status) *fwk.Status {
	for {
		block := r.block.Load()
		if block != nil {
			if i := block.used.Add(1) - 1; int(i) < len(block.statuses) {
				block.statuses[i] = *status
				return &block.statuses[i]
			}
		}
		r.block.CompareAndSwap(block, &refusalBlock{})
	}
}
