package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	servicesHeader = "app,role,cpu,memory_gib,gpu,rdma_percent,disk_gib,max_per_node,instances\n"
	nodesHeader    = "gpu_model,gpus,cpu_milli,memory_mib,nodes\n"
)

// The totals are those that the traces' own papers and the README state.
func TestEmbeddedFiguresHaveThePublishedTotals(t *testing.T) {
	fig, err := loadFigures()
	require.NoError(t, err)

	apps, instances := map[string]bool{}, 0
	for _, line := range fig.services {
		apps[line.app] = true
		instances += line.instances
		require.Equal(t, line.role == GPURole, line.each.GPU > 0, "%s %s: only GPU instances have devices", line.app, line.role)
	}
	require.Len(t, apps, 156)
	require.Equal(t, tracedInstances, instances)

	nodes := 0
	for _, line := range fig.nodes {
		nodes += line.nodes
		require.Equal(t, line.model != "", line.each.GPU > 0)
	}
	require.Equal(t, 1523, nodes)
}

func TestParseServices(t *testing.T) {
	lines, err := parseServices(strings.NewReader(servicesHeader + "app_7,HN,1.5,2.5,1,25,10.0,4,3\napp_7,CN,2,1,0,0,0,-1,9\n"))
	require.NoError(t, err)
	require.Equal(t, []serviceLine{
		{app: "app_7", role: GPURole, each: Resources{MilliCPU: 1500, MemoryMiB: 2560, GPU: 1, RDMAPercent: 25, DiskGiB: 10}, maxPerNode: 4, instances: 3},
		{app: "app_7", role: CPURole, each: Resources{MilliCPU: 2000, MemoryMiB: 1024}, instances: 9},
	}, lines)
}

func TestParseErrorsNameLineAndColumn(t *testing.T) {
	services := func(row string) error {
		_, err := parseServices(strings.NewReader(servicesHeader + "app_1,CN,1,1,0,0,0,-1,1\n" + row + "\n"))
		return err
	}
	nodes := func(row string) error {
		_, err := parseNodes(strings.NewReader(nodesHeader + row + "\n"))
		return err
	}
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"role", services("app_2,XN,1,1,0,0,0,-1,1"), `services.csv: line 3: role: "XN" is neither CN nor HN`},
		{"not a number", services("app_2,CN,many,1,0,0,0,-1,1"), `services.csv: line 3: cpu: "many" is not a number in range`},
		{"not finite", services("app_2,CN,NaN,1,0,0,0,-1,1"), `services.csv: line 3: cpu: "NaN" is not a number in range`},
		{"too large", services("app_2,CN,1,1e300,0,0,0,-1,1"), `services.csv: line 3: memory_gib: "1e300" is not a number in range`},
		{"negative", services("app_2,CN,1,1,-1,0,0,-1,1"), `services.csv: line 3: gpu: "-1" is below 0`},
		{"no instance", services("app_2,CN,1,1,0,0,0,-1,0"), `services.csv: line 3: instances: "0" is below 1`},
		{"limit of none", services("app_2,CN,1,1,0,0,0,0,1"), "services.csv: line 3: max_per_node: 0 would allow no instance anywhere; -1 stands for no limit"},
		{"no app", services(",CN,1,1,0,0,0,-1,1"), "services.csv: line 3: app: empty"},
		{"fields", services("app_2,CN"), "services.csv: record on line 3: wrong number of fields"},
		{"node", nodes("T4,2,0,1,1"), `nodes.csv: line 2: cpu_milli: "0" is below 1`},
	} {
		t.Run(tc.name, func(t *testing.T) { require.EqualError(t, tc.err, tc.want) })
	}
	_, err := parseNodes(strings.NewReader("a,b\n"))
	require.ErrorContains(t, err, "nodes.csv: header")
	_, err = parseNodes(strings.NewReader("a,b,c,d,e\n"))
	require.ErrorContains(t, err, "nodes.csv: header is")
}

// Whatever the input, parsing ends with lines within range or an error.
func FuzzParseServices(f *testing.F) {
	f.Add(servicesHeader + "app_0,CN,48,200.0,0,25,680.0,2,1278\n")
	f.Add(servicesHeader + "app_0,CN,1e999,-0,0,25,680.0,2,1278\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := parseServices(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range lines {
			if l.instances < 1 || l.maxPerNode < 0 || l.each.MilliCPU < 1 || l.each.MemoryMiB < 1 || l.each.GPU < 0 || l.app == "" {
				t.Fatalf("accepted %+v", l)
			}
		}
	})
}
