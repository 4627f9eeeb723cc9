package holds

import (
	"slices"
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

// on has the pods of that UIDs on a node. They ask for all of what they took.
func on(uids ...string) Present {
	return func(uid types.UID) (ledger.Resources, bool) { return most, slices.Contains(uids, string(uid)) }
}

// most is more than what any hold of a test has.
var most = ledger.Resources{MilliCPU: 1e6, Memory: 1e6, EphemeralStorage: 1e6, Pods: 1e6, Scalar: map[v1.ResourceName]int64{gpu: 1e6}}

// asking has pods on a node that ask for as much.
func asking(requests map[types.UID]ledger.Resources) Present {
	return func(uid types.UID) (ledger.Resources, bool) {
		r, there := requests[uid]
		return r, there
	}
}
