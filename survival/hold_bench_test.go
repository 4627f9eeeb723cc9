package survival_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/demo/workload"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/trace"
)

var (
	traceNodes = flag.Int("trace-nodes", 300, "how many nodes BenchmarkHold has, in zones of 50, 30 and 20 percent")
	traceLoad  = flag.Float64("trace-load", 0.4, "the part of the CPU or of the memory that services take in BenchmarkHold")
	traceTimes = flag.Int("trace-times", 4, "how many times as large as those of the trace the nodes of BenchmarkHold are")
	losses     = flag.Int("trace-losses", 5, "how many times each zone is lost in BenchmarkHold, each time in another order")
	traceZones = flag.String("trace-zones", "a,b,c", "the zones that may be lost in BenchmarkHold")
	traceEvery = flag.Int("trace-policies", 0, "every how many services of BenchmarkHold one has a ZoneSpreadPolicy; none if 0")
)

// BenchmarkHold holds room for the CPU services of a trace, lets other pods of the same priority take all other room,
// and loses each zone several times, in orders of its own. It reports what is held, as multiples of the least that has
// to be held; how many protected pods wait in the
// losses beyond those that were said to lack room; and in how many losses although the certificate of the full cluster
// says that none would. Ratios are means over the clusters, all else is the sum.
func BenchmarkHold(b *testing.B) {
	sum := map[string]float64{}
	for n := range b.N {
		b.StopTimer()
		seed := *first + uint64(n) //nolint:gosec // not negative
		c, services := traced(b, seed)
		asked := holding()
		asked.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: strings.Split(*traceZones, ",")}
		for _, s := range services {
			asked.Spec.Workloads = append(asked.Spec.Workloads, protecting(s.Name()).Spec.Workloads[0])
		}
		b.StartTimer()
		var status v1alpha1.ZoneSurvivalStatus
		room := survival.Hold(c.Objects(), asked, survival.HoldOptions{Now: metav1.Time{Time: clitest.Now}}, &status)
		b.StopTimer()
		least := leastOf(c, asked.Spec.Survive.ZoneNames)
		c = placed(b, c, room.Changed)
		missing, held := int64(0), v1.ResourceList{}
		for _, r := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
			missing += r.Status.Slots.Desired - r.Status.Slots.Held
			for range r.Status.Slots.Held - r.Status.Slots.Used {
				plus(held, r.Spec.Slot.Requests)
			}
		}
		lost, short, broken, untrue := 0, 0, 0, 0
		packed := filled(b, c)
		certificate, err := survival.Certify(b.Context(), packed.Objects(), []*v1alpha1.ZoneSurvival{asked}, survival.Options{Sim: sim.Options{Now: clitest.Now}})
		require.NoError(b, err)
		for _, loss := range certificate[0].Losses {
			for other := range int64(*losses) {
				displaced, waiting := loseFrom(b, packed, loss.Zone, 100+other)
				lost += displaced
				if waiting > 0 {
					b.Logf("cluster %d: after the loss of zone %s with seed %d, %d of %d wait; the certificate says %d", seed, loss.Zone, 100+other, waiting, displaced, loss.Waiting)
				}
				if waiting > int(missing) {
					short += waiting
					broken++
					if loss.Waiting == 0 {
						untrue++
					}
				}
			}
		}
		packed.Close()
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			quantity := held[name]
			sum["held-"+string(name)+"/least"] += quantity.AsApproximateFloat64() / least[name] / float64(b.N)
		}
		sum["missing-pods"] += float64(missing)
		sum["displaced-pods"] += float64(lost)
		sum["waiting-pods"] += float64(short)
		sum["losses-with-waiting"] += float64(broken)
		sum["false-certificates"] += float64(untrue)
	}
	for name, value := range sum {
		b.ReportMetric(value, name)
	}
}

func plus(sum, list v1.ResourceList) {
	for name, quantity := range list {
		quantity.Add(sum[name])
		sum[name] = quantity
	}
}

// traced is a cluster with the services of the trace, placed by the scheduler.
func traced(b *testing.B, seed uint64) (*clitest.Cluster, []workload.Service) {
	b.Helper()
	traced := trace.New(trace.Options{Nodes: *traceNodes, Times: *traceTimes, Load: *traceLoad, Seed: seed})
	c := clitest.New()
	for _, n := range traced.Nodes {
		c.Node(n.Name, n.Zone, fmt.Sprintf("%dm", n.Capacity[workload.CPU]), fmt.Sprintf("%dMi", n.Capacity[workload.Memory]))
	}
	for i, s := range traced.Services {
		if *traceEvery > 0 && i%*traceEvery == 0 {
			c.Policy(s.Name(), func(p *v1alpha1.ZoneSpreadPolicySpec) {
				p.Zones = trace.Shares()
				p.UnavailableZones.DownAfter = &metav1.Duration{Duration: 10 * time.Second}
			})
		}
		cpu, memory := fmt.Sprintf("%dm", s.Each[workload.CPU]), fmt.Sprintf("%dMi", s.Each[workload.Memory])
		add := c.Deployment(s.Name(), int32(s.Replicas), cpu, memory, priority(10)) //nolint:gosec // hundreds
		for range s.Replicas {
			add("")
		}
	}
	s, err := sim.New(b.Context(), c.Objects(), sim.Options{Now: clitest.Now, Seed: int64(seed)}) //nolint:gosec // small
	require.NoError(b, err)
	defer s.Close()
	require.NoError(b, s.Run(b.Context()))
	placed := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	placed.Add(s.Objects()...)
	if seed == *first {
		b.Logf("%d pods of %d services ask for %d%% of the CPU and %d%% of the memory of %d nodes", traced.Replicas(), len(traced.Services),
			100*traced.Asked[workload.CPU]/traced.Total[workload.CPU], 100*traced.Asked[workload.Memory]/traced.Total[workload.Memory], *traceNodes)
	}
	return placed, traced.Services
}

// leastOf is how much of each resource has to be held at least: as much as the largest loss displaces, and as all do,
// divided by the number of the other zones.
func leastOf(c *clitest.Cluster, zones []string) map[v1.ResourceName]float64 {
	in := map[string]string{}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		in[node.Name] = node.Labels[v1.LabelTopologyZone]
	}
	out := map[v1.ResourceName]float64{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		all := 0.0
		demand := map[string]float64{}
		for _, pod := range c.Pods() {
			quantity := pod.Spec.Containers[0].Resources.Requests[name]
			demand[in[pod.Spec.NodeName]] += quantity.AsApproximateFloat64()
		}
		for _, zone := range zones {
			out[name], all = max(out[name], demand[zone]), all+demand[zone]
		}
		out[name] = max(out[name], all/2) // of three zones two remain
	}
	return out
}

// placed is the cluster with reservations, once the scheduler has found room for them.
func placed(tb testing.TB, c *clitest.Cluster, reservations []*v1alpha1.ZoneReservation) *clitest.Cluster {
	tb.Helper()
	for _, r := range reservations {
		adopt(c, r)
	}
	s, err := sim.New(tb.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(tb, err)
	defer s.Close()
	require.NoError(tb, s.Run(tb.Context()))
	out := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	out.Add(s.Objects()...)
	return out
}

// filled is the cluster after other pods have taken all room that they may have.
func filled(tb testing.TB, c *clitest.Cluster) *sim.Sim {
	tb.Helper()
	s, err := sim.New(tb.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(tb, err)
	// A filler for each node that is as large as the node's room: the reservation keeps what is held from it.
	used := map[string]v1.ResourceList{}
	for _, pod := range c.Pods() {
		if pod.Spec.NodeName != "" {
			if used[pod.Spec.NodeName] == nil {
				used[pod.Spec.NodeName] = v1.ResourceList{}
			}
			plus(used[pod.Spec.NodeName], pod.Spec.Containers[0].Resources.Requests)
		}
	}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
		for i := range r.Status.Zones {
			for _, n := range r.Status.Zones[i].Nodes {
				if used[n.Name] == nil {
					used[n.Name] = v1.ResourceList{}
				}
				for range n.Slots - n.Used {
					plus(used[n.Name], r.Spec.Slot.Requests)
				}
			}
		}
	}
	fillers := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		rest := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			room := node.Status.Allocatable[name].DeepCopy()
			room.Sub(used[node.Name][name])
			if room.Sign() < 0 {
				room = resource.Quantity{}
			}
			rest[name] = room
		}
		pod := fillers.Pod("filler-"+node.Name, node.Name, clitest.Plain("0", "0"), map[string]string{"app": "filler"})
		pod.UID, pod.Spec.Priority = types.UID(pod.Name), priorityOf(10)
		pod.Spec.Containers[0].Resources.Requests = rest
	}
	for _, pod := range fillers.Pods() {
		require.NoError(tb, s.Add(pod))
	}
	require.NoError(tb, s.Run(tb.Context()))
	return s
}

// loseFrom replays the loss of a zone, and returns how many protected pods are displaced and how many wait in the end.
func loseFrom(tb testing.TB, base *sim.Sim, zone string, seed int64) (displaced, waiting int) {
	tb.Helper()
	s, err := base.Fork(tb.Context(), func(o *sim.Options) { o.Seed = seed })
	require.NoError(tb, err)
	defer s.Close()
	loss := s.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone })
	require.NoError(tb, s.Run(tb.Context()))
	for _, pod := range loss.Replacements {
		if is, ok := sim.Get[*v1.Pod](s, pod.Namespace, pod.Name); !ok || is.Spec.NodeName == "" {
			waiting++
		}
	}
	return len(loss.Replacements), waiting
}

func priorityOf(n int32) *int32 { return &n }
