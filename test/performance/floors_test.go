package performance

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins"
	"zonewise.dev/sim"
	"zonewise.dev/test/crdtest"
)

// floorRounds is how often BenchmarkFloors measures each case, the others in between.
const floorRounds = 11

// The sizes of upstream's cases, but for the measured pods: between 2,000 and 50,000 there.
const (
	floorNodes    = 5000
	floorBound    = 5000
	floorMeasured = 2000
	floorTainted  = 1000
)

// floorCase is a case of scheduler_perf. floor is the least rate that upstream's continuous integration accepts,
// against that of SchedulingBasic with 50,000 pods, 790 pods a second.
type floorCase struct {
	name  string
	floor float64
	// app is the label of the pods, spread their constraints.
	app    string
	spread []v1.TopologySpreadConstraint
	// service selects the pods, so that the default constraints apply; tainted nodes are among the nodes, and no other
	// pods.
	service, tainted bool
}

func floorCases() []floorCase {
	by := func(key string, skew int32, action v1.UnsatisfiableConstraintAction) v1.TopologySpreadConstraint {
		return v1.TopologySpreadConstraint{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: action, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "blue"}},
		}
	}
	honoring := by(v1.LabelHostname, 1, v1.DoNotSchedule)
	honor := v1.NodeInclusionPolicyHonor
	honoring.NodeAffinityPolicy, honoring.NodeTaintsPolicy = &honor, &honor
	return []floorCase{
		{name: "SchedulingBasic"},
		{name: "TopologySpreading", floor: 460. / 790, app: "blue", spread: []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5, v1.DoNotSchedule)}},
		{name: "PreferredTopologySpreading", floor: 340. / 790, app: "blue", spread: []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5, v1.ScheduleAnyway)}},
		{name: "DefaultTopologySpreading", floor: 160. / 790, app: "blue", service: true},
		{name: "SchedulingWithNodeInclusionPolicy", floor: 270. / 790, app: "blue", spread: []v1.TopologySpreadConstraint{honoring}, tainted: true},
	}
}

// objects makes the cluster of a case and the pods that wait. No two of them are alike, as in scheduler_perf, so that
// the framework batches none.
func (c *floorCase) objects() *scaleObjects {
	o := &scaleObjects{nodes: &v1.NodeList{}, bound: &v1.PodList{}}
	for i := range floorNodes {
		node := st.MakeNode().Name(nodeName(i)).UID(nodeName(i)).Label(v1.LabelHostname, nodeName(i)).Label(v1.LabelTopologyZone, fmt.Sprintf("moon-%d", i%3)).
			Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "4", v1.ResourceMemory: "32Gi", v1.ResourcePods: "110"}).Obj()
		if c.tainted && i%(floorNodes/floorTainted) == 0 {
			node.Spec.Taints = []v1.Taint{{Key: "foo", Value: "bar", Effect: v1.TaintEffectNoSchedule}}
		}
		o.nodes.Items = append(o.nodes.Items, *node)
	}
	pod := func(name string) *v1.Pod {
		return st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).Label("serial", name).
			Req(map[v1.ResourceName]string{v1.ResourceCPU: "100m", v1.ResourceMemory: "500Mi"}).Obj()
	}
	for i := 0; i < floorBound && !c.tainted; i++ {
		p := pod(fmt.Sprint("bound-", i))
		p.Spec.NodeName = nodeName(i % floorNodes)
		o.bound.Items = append(o.bound.Items, *p)
	}
	for i := range floorMeasured {
		p := pod(fmt.Sprint("measured-", i))
		if c.app != "" {
			p.Labels["app"] = c.app
		}
		p.Spec.TopologySpreadConstraints = c.spread
		o.waiting = append(o.waiting, p)
	}
	return o
}

// pace is how fast a scheduler places pods.
type pace struct {
	// perSecond is how many it binds in a second, cpu the processor time of each, in microseconds: of the whole
	// process, the API server and the garbage collector among it.
	perSecond, cpu float64
}

// pace has a scheduler place the pods of a case, all of which wait from the start.
func (c *floorCase) pace(b *testing.B, cfg *config.KubeSchedulerConfiguration, pack *plugins.Pack) pace {
	b.Helper()
	o := c.objects()
	var services []apiruntime.Object
	if c.service {
		services = append(services, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}, Spec: v1.ServiceSpec{Selector: map[string]string{"app": "blue"}},
		})
	}
	p := o.start(b, cfg, pack, services...)
	defer p.stop()
	runtime.GC() // of what the start has left
	start, used := time.Now(), cpuTime(b)
	for _, pod := range o.waiting[1:] {
		p.send(pod)
	}
	for range o.waiting[1:] {
		<-p.bound
	}
	took := time.Since(start)
	used = cpuTime(b) - used
	measured := float64(len(o.waiting) - 1)
	return pace{perSecond: measured / took.Seconds(), cpu: us(used) / measured}
}

// BenchmarkFloors has kube-scheduler's plugins alone, and the shipped profile, place the pods of scheduler_perf's four
// cases with spreading and of SchedulingBasic. The API server is in memory: what is measured is the scheduler. The
// cases take turns; rates and ratios are medians.
//
//	*-pods/s          the rate
//	of-intree         our rate against kube-scheduler's of the same round; cpu-of-intree is the same of the processor time for a pod
//	*-of-basic        against the same scheduler's rate of SchedulingBasic; 1 is the ceiling
//	floor-of-basic    the same of the rates that upstream's continuous integration accepts
func BenchmarkFloors(b *testing.B) {
	inTree, err := latest.Default()
	require.NoError(b, err)
	shipped, err := sim.DefaultConfig()
	require.NoError(b, err)
	cases := floorCases()
	theirs, ours := make([][]pace, len(cases)), make([][]pace, len(cases))
	for range floorRounds {
		for i := range cases {
			theirs[i] = append(theirs[i], cases[i].pace(b, inTree, nil))
			ours[i] = append(ours[i], cases[i].pace(b, shipped, plugins.NewPack(plugins.WithoutElection(), plugins.WithSource(crdtest.New()))))
		}
	}
	for i, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() { // it is measured already
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(middle(theirs[i], nil, rate), "intree-pods/s")
			b.ReportMetric(middle(ours[i], nil, rate), "zonewise-pods/s")
			b.ReportMetric(middle(ours[i], theirs[i], rate), "of-intree")
			b.ReportMetric(middle(ours[i], theirs[i], func(p pace) float64 { return p.cpu }), "cpu-of-intree")
			if c.floor > 0 {
				b.ReportMetric(middle(theirs[i], theirs[0], rate), "intree-of-basic")
				b.ReportMetric(middle(ours[i], ours[0], rate), "zonewise-of-basic")
				b.ReportMetric(c.floor, "floor-of-basic")
			}
		})
	}
}

func rate(p pace) float64 { return p.perSecond }

// middle is the median of a figure of an odd number of rounds, or of its ratio to that of other paces in each round.
func middle(paces, others []pace, figure func(pace) float64) float64 {
	var values []float64
	for i, p := range paces {
		value := figure(p)
		if others != nil {
			value /= figure(others[i])
		}
		values = append(values, value)
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// cpuTime is the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
