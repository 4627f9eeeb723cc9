// Package leader tells a scheduler's plugins whether their process leads, and keeps the writes of one that lost its
// lease away from the API server.
//
// # Contract
//
// Standby replicas of kube-scheduler build the plugins, and run informers and PreEnqueue; only the leader may write to
// the API server. The framework gives plugins no callback for the change. A process leads when one of these holds:
//
//   - A scheduling cycle runs (Leader.Cycle): standby replicas run none.
//   - Its elector has written the lease (Election), and its informers have synced.
//   - It has no leader election (Election.Observe with nil), and its informers have synced.
//
// A process that loses its lease exits, so that leading, once true, stays true. It exits late when it was stopped: from
// the time that it goes on to the time that its elector notices, a second leader may be there already. Fence holds back
// what such a process would write meanwhile.
//
// The proof is the elector's own: an Election stands between the elector and its lock, and notes when a write of the
// lease began that the API server then accepted. No other process takes the lease before leaseDuration has passed since
// that write was observed, so clocks of two processes are never compared. Writes go through until renewDeadline has
// passed, for which time a leader may rely on a lease without renewing it; the rest of leaseDuration is for requests
// under way. A process that was stopped need not notice it: its proof is too old, whichever goroutine runs first.
//
// # Non-goals
//
// A scheduler that calls app.NewSchedulerCommand of k8s.io/kubernetes by itself hands no elector over: it leads from
// its first cycle, and nothing that it writes is held back.
package leader
