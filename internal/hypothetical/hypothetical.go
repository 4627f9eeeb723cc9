// Package hypothetical tells questions about pods from their scheduling cycles. A plugin that runs the filters of a
// profile for a pod that is not being scheduled marks the state with which it does; plugins that record what a cycle
// shows then record nothing.
package hypothetical

import fwk "k8s.io/kube-scheduler/framework"

const stateKey fwk.StateKey = "zonewise.dev/hypothetical"

type mark struct{}

// Clone returns the mark itself: it never changes.
func (m mark) Clone() fwk.StateData { return m }

// Mark marks a state, which must be a copy of the cycle's own, as one of a question.
func Mark(state fwk.CycleState) { state.Write(stateKey, mark{}) }

// Marked reports whether a state, or the one that it was cloned from, was marked.
func Marked(state fwk.CycleState) bool {
	_, err := state.Read(stateKey)
	return err == nil
}
