package holds

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

const gpu v1.ResourceName = "example.com/gpu"

// cpus is an amount of CPUs, and places for pods.
func cpus(n, pods int64) *ledger.Resources {
	return &ledger.Resources{MilliCPU: 1000 * n, Pods: pods}
}

// claimOf is a claim on slots of some CPUs. Its age is in hours.
func claimOf(uid string, use Use, cpu int64, age int) Claim {
	return Claim{
		UID: types.UID(uid), Name: uid, Use: use, Slot: *cpus(cpu, 1),
		Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour),
	}
}

// owning has the pods of each claim on a node ask for as much.
func owning(owned map[types.UID]*ledger.Resources) Owned {
	return func(claim types.UID) ledger.Resources {
		if r := owned[claim]; r != nil {
			return *r
		}
		return ledger.Resources{}
	}
}
