// Package chaos shows that nothing is lost. It runs two replicas of zonewise-scheduler on a control plane of its own, with
// services, gangs, policies and reservations that come and go, and does to them what clusters do: processes are killed and
// stopped, the API server and etcd restart, nodes leave and come back. The history of all writes is recorded, and judged
// when the run is over (history, judge). What is done, and when, follows from a seed; what a run makes of it does not.
package chaos
