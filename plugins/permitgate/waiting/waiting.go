// Package waiting deals with pods that kube-scheduler has waiting in Permit, or prepares for their binds. Its functions
// take kube-scheduler's locks: call them without others.
package waiting

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// Pods finds pods in the profiles that have a plugin, in whose name they wait and are sent back.
type Pods struct {
	Plugin string
	// Handle returns that of the profile with a name, or of any when it has no such plugin; Handles returns all.
	Handle  func(profile string) fwk.Handle
	Handles func() []fwk.Handle
}

// handlesFor returns the handle of a pod's profile. A pod that is gone from the informer, which is nil, may be in any.
func (p *Pods) handlesFor(pod *v1.Pod) []fwk.Handle {
	if pod == nil {
		return p.Handles()
	}
	return []fwk.Handle{p.Handle(pod.Spec.SchedulerName)}
}

// SendBack ends the attempts of pods, as far as the framework lists them as waiting or as being prepared. known are those
// that the informer has.
func (p *Pods) SendBack(uids []types.UID, known map[types.UID]*v1.Pod, why string) {
	for _, uid := range uids {
		for _, h := range p.handlesFor(known[uid]) {
			p.sendBack(h, uid, why)
		}
	}
}

func (p *Pods) sendBack(h fwk.Handle, uid types.UID, why string) {
	if waiting := h.GetWaitingPod(uid); waiting != nil {
		// kube-scheduler itself rejects a pod that is deleted, and notes a rejection under a read lock only: two of
		// them are a data race. Allow in the name of no plugin changes nothing, but takes the write lock, which orders
		// what is not at the very same moment.
		waiting.Allow("")
		waiting.Reject(p.Plugin, why)
		waiting.Allow("")
	} else if preparing := h.GetPodInPreBind(uid); preparing != nil {
		preparing.CancelPod(why)
	}
}

// Release lets pods go together. Of those that wait in Permit for nothing but the plugin, choose says which; it returns
// how many. The framework lists a waiting pod only after Permit has returned, so that it may not be found at first.
func (p *Pods) Release(uids []types.UID, known map[types.UID]*v1.Pod, choose func(ready []types.UID) (released []types.UID)) int {
	waiting := map[types.UID]fwk.WaitingPod{}
	ready := make([]types.UID, 0, len(uids))
	for _, uid := range uids {
		for _, h := range p.handlesFor(known[uid]) {
			pod := h.GetWaitingPod(uid)
			if pod == nil {
				continue
			}
			if pending := pod.GetPendingPlugins(); len(pending) == 1 && pending[0] == p.Plugin {
				waiting[uid] = pod
				ready = append(ready, uid)
			}
		}
	}
	released := choose(ready)
	for _, uid := range released {
		waiting[uid].Allow(p.Plugin)
	}
	return len(released)
}
