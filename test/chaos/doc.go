// Package chaos shows that nothing is lost. It runs two replicas of zonewise-scheduler on a control plane of its own,
// with services, gangs, policies and reservations that come and go, and injects the faults of real clusters: processes
// are killed and stopped, the API server and etcd restart, nodes leave and come back. It records the history of all
// writes, and judges it when the run is over (history, judge). The faults and their times follow from a seed; their
// effects do not.
package chaos
