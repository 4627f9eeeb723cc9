package workload

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The totals are those that the traces' own papers and the README state.
func TestEmbeddedFiguresHaveThePublishedTotals(t *testing.T) {
	apps, instances := map[string]bool{}, 0
	for _, l := range linesOf(servicesCSV) {
		apps[l["app"]] = true
		instances += int(l.number("instances", 1))
		require.Positive(t, l.number("instances", 1))
		require.Positive(t, l.number("cpu", 1000))
		require.Positive(t, l.number("memory_gib", 1024))
		require.Equal(t, l["role"] == "HN", l.number("gpu", 1) > 0, "%s: only GPU instances have devices", l)
		require.Contains(t, []string{"CN", "HN"}, l["role"])
		require.NotZero(t, l.number("max_per_node", 1), "%s: no instance could be anywhere; -1 stands for no limit", l)
	}
	require.Len(t, apps, 156)
	require.Equal(t, tracedInstances, instances)

	nodes := 0
	for i, p := range poolsOf(linesOf(nodesCSV)) {
		for _, s := range p {
			nodes += s.count
			require.Equal(t, i == 1, s.Capacity[GPU] > 0)
			require.Equal(t, s.Model != "", s.Capacity[GPU] > 0)
			require.Positive(t, s.Capacity[CPU])
			require.Positive(t, s.Capacity[Memory])
		}
	}
	require.Equal(t, 1523, nodes)
}

// given returns a line of the services' table with changes.
func given(changes line) line {
	l := line{"app": "app_1", "role": "CN", "cpu": "1", "memory_gib": "1", "gpu": "0", "rdma_percent": "0", "disk_gib": "0", "max_per_node": "-1", "instances": "1"}
	maps.Copy(l, changes)
	return l
}

func TestServicesHaveTheMostCommonShapeAndAllInstances(t *testing.T) {
	small, large := Resources{CPU: 1000, Memory: 1024}, Resources{CPU: 2500, Memory: 1024}
	got := servicesOf([]line{
		given(line{"instances": "10"}),
		given(line{"instances": "6", "cpu": "2.5"}),
		given(line{"instances": "5", "cpu": "2.5"}),
		given(line{"role": "HN", "gpu": "1", "max_per_node": "4"}),
		given(line{"app": "app_2", "instances": "100"}),
	}, 1)
	require.Equal(t, []Service{
		{App: "app-1", Role: "cn", Each: large, Instances: 21, Replicas: 8},
		{App: "app-1", Role: "hn", Each: Resources{CPU: 1000, Memory: 1024, GPU: 1}, MaxPerNode: 4, Instances: 1, Replicas: 1},
		{App: "app-2", Role: "cn", Each: small, Instances: 100, Replicas: 37},
	}, got)
	require.Equal(t, "app-1-hn", got[1].Name())
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name string
		give Service
		want Service
	}{
		{
			"fits",
			Service{Each: Resources{CPU: 32_000, Memory: 256 << 10}, MaxPerNode: 2, Instances: 3},
			Service{Each: Resources{CPU: 32_000, Memory: 256 << 10}, MaxPerNode: 2, Instances: 3},
		},
		{
			"by processors",
			Service{Each: Resources{CPU: 96_000, Memory: 300 << 10, RDMA: 100, Disk: 10}, MaxPerNode: 2, Instances: 3},
			Service{Each: Resources{CPU: 32_000, Memory: 100 << 10, RDMA: 34, Disk: 4}, MaxPerNode: 6, Instances: 9},
		},
		{
			"by memory",
			Service{Each: Resources{CPU: 30_000, Memory: 1000 << 10}, Instances: 1},
			Service{Each: Resources{CPU: 7500, Memory: 250 << 10}, Instances: 4},
		},
		{
			"devices stay whole",
			Service{Each: Resources{CPU: 96_000, Memory: 1, GPU: 1}, Instances: 1},
			Service{Each: Resources{CPU: 96_000, Memory: 1, GPU: 1}, Instances: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.give.split()
			require.Equal(t, tc.want, tc.give)
		})
	}
}

// A split never asks for less than the whole did, and every part fits the most common node.
func TestSplitKeepsWhatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Service{Instances: rapid.IntRange(1, 1000).Draw(t, "instances"), Each: Resources{
			CPU: rapid.Int64Range(1, 400_000).Draw(t, "cpu"), Memory: rapid.Int64Range(1, 2<<20).Draw(t, "memory"), RDMA: rapid.Int64Range(0, 100).Draw(t, "rdma"),
		}}
		parts := whole
		parts.split()
		if parts.Each[CPU] > largest[CPU] || parts.Each[Memory] > largest[Memory] {
			t.Fatalf("a part of %+v is still too large", parts.Each)
		}
		before, after := Resources{}.plus(whole.Each, int64(whole.Instances)), Resources{}.plus(parts.Each, int64(parts.Instances))
		if !after.fits(before) {
			t.Fatalf("asked for %+v, the parts ask for %+v", before, after)
		}
	})
}

func TestMixSharesAllNodesInProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pool{}
		total := 0
		for _, count := range rapid.SliceOfN(rapid.IntRange(1, 600), 1, 12).Draw(t, "counts") {
			p = append(p, Shape{Instance: string(rune('a' + len(p))), count: count})
			total += count
		}
		n := rapid.IntRange(0, 500).Draw(t, "n")
		got := map[string]int{}
		for _, s := range p.nodeMix(n) {
			got[s.Instance]++
		}
		sum := 0
		for _, s := range p {
			sum += got[s.Instance]
			exact := float64(n) * float64(s.count) / float64(total)
			if d := float64(got[s.Instance]) - exact; d < -2 || d > 2 {
				t.Fatalf("shape %s got %d, its share is %.2f", s.Instance, got[s.Instance], exact)
			}
		}
		if sum != n {
			t.Fatalf("%d of %d nodes", sum, n)
		}
	})
}
