// Package plugins joins the three plugins of Zonewise into one pack.
//
//	ZoneSpread    decides where a pod goes   plugins/zonespread
//	ReserveCache  keeps room for pods        plugins/reservecache
//	PermitGate    binds gangs as a whole     plugins/permitgate
//
// The plugins do not import each other. If one needs something from another, it declares an interface,
// and [Pack] connects them. All profiles of a scheduler share a Pack and its ledger.
//
// Nothing here or below imports k8s.io/kubernetes: the pack can be registered in any scheduler that is
// built from k8s.io/kube-scheduler/framework.
package plugins
