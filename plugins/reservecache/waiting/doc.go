// Package waiting has the pods that holds keep out, and chooses those that freed room may help.
//
// It is pure: it knows pods, and nodes through its caller, but not the scheduling queue. A node with new room is
// opened. For an openNodes node [Pods.Pick] chooses as many waiting pods as its room could take: those of the highest
// priority first, and among these the ones that were refused first. It chooses no pod twice for one opening. If a
// chosen pod does not use the room, because something else keeps it off the node, the next one is chosen. So when a
// slot is freed while thousands of pods wait, there are only as many attempts as pods that could fit. A node is closed
// when no pod is left that it could help. If a node is opened while a pod is being tried, it is opened once more if the
// pod is refused: the attempt may not have seen the room.
//
// Pods keep their backoff: a pod is not chosen before kube-scheduler would retry it. The package computes that time by
// the queue's rule with its default durations.
//
// A Pods may be used from several goroutines, also under the lock of the scheduling queue: its one lock is held for
// less than a millisecond, and while Reowned goes through all pods.
package waiting
