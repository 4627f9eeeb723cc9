package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMergeTakesTheMostCommonShapeAndAllInstances(t *testing.T) {
	small, large := Resources{MilliCPU: 1000, MemoryMiB: 1024}, Resources{MilliCPU: 2000, MemoryMiB: 1024}
	got := mergeServices([]serviceLine{
		{app: "app_1", role: CPURole, each: small, instances: 10},
		{app: "app_1", role: CPURole, each: large, instances: 6},
		{app: "app_1", role: CPURole, each: large, instances: 5},
		{app: "app_1", role: GPURole, each: small, instances: 1},
		{app: "app_2", role: CPURole, each: small, instances: 100},
	}, 1)
	require.Equal(t, []Service{
		{App: "app-2", Role: CPURole, Each: small, Instances: 100, Replicas: 37},
		{App: "app-1", Role: CPURole, Each: large, Instances: 21, Replicas: 8},
		{App: "app-1", Role: GPURole, Each: small, Instances: 1, Replicas: 1},
	}, got)
	require.Equal(t, "app-1-hn", got[2].Name())
}

func TestMergeOrdersServicesOfOneSizeByNumber(t *testing.T) {
	each := Resources{MilliCPU: 1, MemoryMiB: 1}
	got := mergeServices([]serviceLine{
		{app: "app_10", role: CPURole, each: each, instances: 1},
		{app: "app_9", role: CPURole, each: each, instances: 1},
	}, 1)
	require.Equal(t, "app-9", got[0].App)
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name string
		give Service
		want Service
	}{
		{
			"fits",
			Service{Each: Resources{MilliCPU: 32_000, MemoryMiB: 256 << 10}, MaxPerNode: 2, Instances: 3},
			Service{Each: Resources{MilliCPU: 32_000, MemoryMiB: 256 << 10}, MaxPerNode: 2, Instances: 3},
		},
		{
			"by processors",
			Service{Each: Resources{MilliCPU: 96_000, MemoryMiB: 300 << 10, RDMAPercent: 100, DiskGiB: 10}, MaxPerNode: 2, Instances: 3},
			Service{Each: Resources{MilliCPU: 32_000, MemoryMiB: 100 << 10, RDMAPercent: 34, DiskGiB: 4}, MaxPerNode: 6, Instances: 9},
		},
		{
			"by memory",
			Service{Each: Resources{MilliCPU: 30_000, MemoryMiB: 1000 << 10}, Instances: 1},
			Service{Each: Resources{MilliCPU: 7500, MemoryMiB: 250 << 10}, Instances: 4},
		},
		{
			"devices stay whole",
			Service{Each: Resources{MilliCPU: 96_000, MemoryMiB: 1, GPU: 1}, Instances: 1},
			Service{Each: Resources{MilliCPU: 96_000, MemoryMiB: 1, GPU: 1}, Instances: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, split(tc.give)) })
	}
}

// A split never asks for less than the whole did, and every part fits the most
// common node.
func TestSplitKeepsWhatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Service{
			Each: Resources{
				MilliCPU:    rapid.Int64Range(1, 400_000).Draw(t, "cpu"),
				MemoryMiB:   rapid.Int64Range(1, 2<<20).Draw(t, "memory"),
				RDMAPercent: rapid.Int64Range(0, 100).Draw(t, "rdma"),
			},
			Instances: rapid.IntRange(1, 1000).Draw(t, "instances"),
		}
		parts := split(whole)
		if parts.Each.MilliCPU > largestMilliCPU || parts.Each.MemoryMiB > largestMemoryMiB {
			t.Fatalf("a part of %+v is still too large", parts.Each)
		}
		before, after := Resources{}.add(whole.Each, int64(whole.Instances)), Resources{}.add(parts.Each, int64(parts.Instances))
		if !after.holds(before) {
			t.Fatalf("asked for %+v, the parts ask for %+v", before, after)
		}
	})
}
