package ledger

// Leaves reports whether no holds of the view can keep a pod without slots off a node, whichever node it is: the pod fits
// beside all slots that any one node has, used or not. It spares most pods of a cluster with room the search for the
// node's holds. A false answer says nothing.
func (v *HoldsView) Leaves(request, allocatable, requested *Resources) bool {
	if len(request.Scalar) > 0 {
		return false
	}
	most := &v.most
	return most.Pods == 0 ||
		1+most.Pods <= allocatable.Pods-requested.Pods &&
			!short(request.MilliCPU, most.MilliCPU, allocatable.MilliCPU-requested.MilliCPU) &&
			!short(request.Memory, most.Memory, allocatable.Memory-requested.Memory) &&
			!short(request.EphemeralStorage, most.EphemeralStorage, allocatable.EphemeralStorage-requested.EphemeralStorage)
}

// bound keeps most no less than what is held on any node, and not much more for long: once as many nodes have changed
// as there are, it is taken anew.
func (v *HoldsView) bound() {
	v.stale += len(v.changed)
	if v.stale <= len(v.nodes) {
		for _, name := range v.changed {
			v.most.raise(v.nodes[name])
		}
		return
	}
	v.most, v.stale = Resources{}, 0
	for _, held := range v.nodes {
		v.most.raise(held)
	}
}

// raise makes each amount but those of Scalar no less than all slots of a node take. held may be nil.
func (r *Resources) raise(held *NodeHolds) {
	if held == nil {
		return
	}
	var sum Resources
	for i := range held.Holds {
		h := &held.Holds[i]
		slots := int64(h.Slots)
		sum.MilliCPU += slots * h.Requests.MilliCPU
		sum.Memory += slots * h.Requests.Memory
		sum.EphemeralStorage += slots * h.Requests.EphemeralStorage
		sum.Pods += slots
	}
	r.MilliCPU = max(r.MilliCPU, sum.MilliCPU)
	r.Memory = max(r.Memory, sum.Memory)
	r.EphemeralStorage = max(r.EphemeralStorage, sum.EphemeralStorage)
	r.Pods = max(r.Pods, sum.Pods)
}
