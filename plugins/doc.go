// Package plugins joins the three plugins of Zonewise into one pack.
//
//	ZoneSpread    decides where a pod goes   plugins/zonespread
//	ReserveCache  keeps the place            plugins/reservecache
//	PermitGate    lets the pods go           plugins/permitgate
//
// The plugins do not import each other. What one needs of another is an interface that the consumer
// declares, and [Pack] is the one place that puts the pieces together, around one ledger per process:
// all profiles of a scheduler share what a Pack holds.
//
// Nothing here or below imports k8s.io/kubernetes: the pack can be registered in any scheduler that is
// built from k8s.io/kube-scheduler/framework.
package plugins
