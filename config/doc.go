// Package config holds the scheduler configurations that the project ships: one file for each way to
// run it.
//
//	zonewise.yaml          all three plugins, instead of kube-scheduler
//	zonespread.yaml        ZoneSpread alone, instead of PodTopologySpread
//	reservecache.yaml      ReserveCache alone
//	permitgate.yaml        PermitGate alone
//	second-scheduler.yaml  all three plugins, beside the cluster's own scheduler
//
// Each is a complete KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) and can be given to
// --config as it is. They are embedded so that programs and tests use exactly the files that users read.
//
// A test loads every file with the scheduler's own loader and builds its profiles.
package config
