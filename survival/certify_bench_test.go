package survival_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

var certifyNodes = flag.Int("certify-nodes", 5000, "how many nodes BenchmarkCertify has")

// large is a cluster of nodes in three zones with 30 pods each, of Deployments of 150, of which every other one is
// spread over the zones, and a ZoneSurvival for a tenth of them.
func large(nodes int) (*clitest.Cluster, *v1alpha1.ZoneSurvival) {
	const replicas = 150
	apps := nodes * 30 / replicas
	c := clitest.New()
	for i := range nodes {
		c.Node(fmt.Sprintf("node-%04d", i), string(rune('a'+i%3)), "32", "128Gi")
	}
	asked := protecting()
	for i := range apps {
		app := fmt.Sprintf("app-%04d", i)
		on := make([]string, replicas)
		for j := range on {
			on[j] = fmt.Sprintf("node-%04d", (i*replicas+j)%nodes)
		}
		spread := func(t *v1.PodTemplateSpec) {
			if i%2 == 0 {
				constraint := clitest.ZoneSpread(app, 1)
				constraint.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor) // else all wait while the lost nodes exist
				t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
			}
		}
		c.Running(app, "500m", spread, on...)
		if i < apps/10 {
			asked.Spec.Workloads = append(asked.Spec.Workloads, protecting(app).Spec.Workloads...)
		}
	}
	return c, asked
}

// decoded returns the objects as the controller has them: read one by one, with a version, and trimmed.
func decoded(b *testing.B, objects []client.Object) []client.Object {
	b.Helper()
	var sharing snapshot.Sharing
	out := make([]client.Object, len(objects))
	for i, obj := range objects {
		content, err := json.Marshal(obj)
		require.NoError(b, err)
		read, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(obj).Elem()))
		require.True(b, ok)
		require.NoError(b, json.Unmarshal(content, read))
		read.SetResourceVersion("1")
		sharing.Trim(read)
		out[i] = read
	}
	return out
}

// readLarge returns the objects of a large cluster, those of a workload of 150 pods that comes later, and the
// ZoneSurvival.
func readLarge(b *testing.B) (objects, later []client.Object, asked *v1alpha1.ZoneSurvival) {
	b.Helper()
	c, asked := large(*certifyNodes)
	var on []string
	for i := range 150 {
		on = append(on, fmt.Sprintf("node-%04d", i*7%*certifyNodes))
	}
	c.Running("new", "500m", nil, on...)
	for _, obj := range decoded(b, c.Objects()) {
		if strings.HasPrefix(obj.GetName(), "new") {
			later = append(later, obj)
		} else {
			objects = append(objects, obj)
		}
	}
	return objects, later, asked
}

// BenchmarkCertify is a round of the controller on a large cluster: each zone is lost in both forms, by the default
// number of replays, and with "nodes" each node. Then another workload of 150 pods comes, and the answer follows. cpu-s
// is what the process used of all cores. snapshot-MB is the heap with the cluster alone, peak-MB the most that was live
// during the round, by a look every 5 seconds, and peak/snapshot the ratio; resident-MB is the most that the process
// had from the system, which says something of one benchmark alone.
func BenchmarkCertify(b *testing.B) {
	for _, losses := range []string{"zones", "nodes"} {
		b.Run(losses, func(b *testing.B) {
			for b.Loop() {
				empty := heapMB()
				objects, later, asked := readLarge(b)
				snapshotMB, peak := heapMB()-empty, 0.0
				if losses == "nodes" {
					againstNodes(asked)
				}
				var certifier survival.Certifier
				last := time.Now()
				options := survival.Options{Sim: sim.Options{Now: clitest.Now, Progress: func(sim.Progress) {
					if time.Since(last) > 5*time.Second {
						peak = max(peak, heapMB()-empty)
						last = time.Now()
					}
				}}}
				before := cpuSeconds(b)
				out, err := certifier.Certify(b.Context(), objects, []*v1alpha1.ZoneSurvival{asked}, options)
				require.NoError(b, err)
				b.ReportMetric(cpuSeconds(b)-before, "cpu-s/round")
				require.Equal(b, metav1.ConditionTrue, out[0].Conditions[0].Status, out[0].Conditions[0].Message)
				b.ReportMetric(snapshotMB, "snapshot-MB")
				b.ReportMetric(peak, "peak-MB")
				b.ReportMetric(peak/snapshotMB, "peak/snapshot")
				b.ReportMetric(residentMB(b), "resident-MB")
				if losses == "zones" {
					objects = append(objects, later...)
					before = cpuSeconds(b)
					_, followed, err := certifier.Follow(b.Context(), objects, []*v1alpha1.ZoneSurvival{asked}, options)
					require.NoError(b, err)
					require.True(b, followed)
					b.ReportMetric(cpuSeconds(b)-before, "cpu-s/follow")
				}
			}
		})
	}
}

// heapMB is what is live in the heap.
func heapMB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// residentMB is the most memory that the process has had from the system.
func residentMB(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Maxrss) / 1e3 // of KiB
}

// cpuSeconds is the CPU time of the process.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
