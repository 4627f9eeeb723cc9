// Package waiting deals with pods that kube-scheduler has waiting in Permit, or prepares for their binds. Its functions
// take kube-scheduler's locks: call them without others.
package waiting

import (
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// SendBack ends the attempt of a pod that waits in Permit or is being prepared for its bind, in the name of a plugin;
// it does nothing to one that the framework lists as neither.
func SendBack(h fwk.Handle, uid types.UID, plugin, why string) {
	if waiting := h.GetWaitingPod(uid); waiting != nil {
		// kube-scheduler itself rejects a pod that is deleted, and notes a rejection under a read lock only: two of
		// them are a data race. Allow in the name of no plugin changes nothing, but takes the write lock, which orders
		// what is not at the very same moment.
		waiting.Allow("")
		waiting.Reject(plugin, why)
		waiting.Allow("")
	} else if preparing := h.GetPodInPreBind(uid); preparing != nil {
		preparing.CancelPod(why)
	}
}

// For returns a pod that waits in Permit for nothing but one plugin, nil if it does not. The framework lists a waiting
// pod only after Permit has returned, so that it may not be found at first.
func For(h fwk.Handle, uid types.UID, plugin string) fwk.WaitingPod {
	pod := h.GetWaitingPod(uid)
	if pod == nil {
		return nil
	}
	if pending := pod.GetPendingPlugins(); len(pending) == 1 && pending[0] == plugin {
		return pod
	}
	return nil
}
