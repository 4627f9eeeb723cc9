package reservecache

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Kept adds to kept[i] the amount of names[i] that slots on a node keep from a pod, given the pods in the NodeInfo: of
// CPU in thousandths, of v1.ResourcePods in pods, of all else in units of its own. Of a pod that has to run in slots
// that is all room but its own slots. It does nothing as long as no profile has enabled the plugin.
//
// It may be called in a scheduling cycle only, between PreFilter and Reserve. Without reservations it costs some
// nanoseconds.
func (s *Shared) Kept(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, kept []int64) {
	s.ask(pod, node, names, kept, (*floor.Floor).Kept)
}

// Own adds to own[i] the amount of names[i] that unused slots of a pod's own reservation on a node leave for it. Its
// conditions are those of Kept.
func (s *Shared) Own(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, own []int64) {
	s.ask(pod, node, names, own, (*floor.Floor).Own)
}

// Owns reports whether a pod is an owner of a reservation. It may be called from any goroutine.
func (s *Shared) Owns(pod *v1.Pod) bool {
	r := s.get()
	return r != nil && r.server.Claims().OwnerOf(pod) != nil
}

func (s *Shared) ask(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, into []int64, question func(*floor.Floor, *floor.Pod, *floor.At) ledger.Resources) {
	r := s.running // set before the first cycle
	if r == nil {
		return
	}
	claims := r.server.Claims()
	if len(claims.List) == 0 {
		return
	}
	asked, _, ignores := r.floorPod(claims, pod)
	if ignores {
		return
	}
	at := r.at(claims, true, node)
	amounts := question(r.floor.floor, &asked, &at)
	for i, name := range names {
		into[i] += amounts.Amount(name)
	}
}
