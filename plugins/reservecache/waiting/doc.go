// Package waiting knows the pods that holds keep out, and wakes those that freed room may help.
//
// It is pure: it knows pods, and nodes as its caller shows them, not the scheduling queue. A node with new room is opened. For an
// open node [Pods.Pick] chooses as many waiting pods as its room could take, those of the highest priority first and of these
// the ones that were refused first, and no pod twice for one opening. When a chosen pod does not use the room in the end, because
// something else keeps it off the node, the next one is chosen; so a slot that is freed beside thousands of waiting pods costs as many
// attempts as could fit. A node is closed when no pod is left that it could help.
//
// Pods keep their backoff: one is not chosen before the time at which kube-scheduler would try it again by itself, of which the
// package keeps count by the queue's rule and its default durations.
//
// A Pods may be used from several goroutines, also under the lock of the scheduling queue: its one lock is held for arithmetic
// only.
package waiting
