package reservecache

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Kept adds to kept[i] the amount of names[i] that unused holds on a node keep from a pod, given the pods in the
// NodeInfo: of CPU in thousandths, of v1.ResourcePods in pods, of all else in units of its own. It does nothing as long
// as no profile has enabled the plugin.
//
// It may be called in a scheduling cycle only, by its own goroutine, from PreFilter. Without holds it costs some
// nanoseconds.
func (s *Shared) Kept(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, kept []int64) {
	r := s.running // set before the first cycle
	if r == nil {
		return
	}
	r.view.Update()
	if r.view.Empty() {
		return
	}
	held := r.view.Node(node.Node().Name)
	if held == nil {
		return
	}
	if version := r.server.Version(); r.kept.pod != pod || r.kept.version != version {
		r.kept.pod, r.kept.version = pod, version
		r.kept.requester, _ = r.requesterOf(pod)
	}
	held.Kept(&r.kept.requester, r.ownedOn(node), names, kept)
}
