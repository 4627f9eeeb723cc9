package rebalance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/trace"
)

// day is a cluster of services for whose pods and nodes somebody always finds something to do.
type day struct {
	*running
	rand     *rand.Rand
	replaced int    // pods of services every ten minutes
	batchCPU string // of a pod of batch work: a node's
	batch    int    // pods of batch work that there were
	// spare are the nodes that the autoscaler would remove if they still are so at its next look. It has removed and added
	// so many.
	spare          map[string]bool
	removed, added int
}

func newDay(t *testing.T, c *clitest.Cluster, r *v1alpha1.ZoneRebalance, replaced int) *day {
	t.Helper()
	largest := resource.Quantity{}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		if cpu := node.Status.Allocatable.Cpu(); cpu.Cmp(largest) > 0 {
			largest = *cpu
		}
	}
	return &day{
		running: run(t, c, r), rand: rand.New(rand.NewPCG(1, 24)), replaced: replaced, batchCPU: largest.String(), spare: map[string]bool{},
	}
}

// smallDay has nine nodes and ten services.
func smallDay(t *testing.T) *day {
	t.Helper()
	c := clitest.New()
	for i := range 9 {
		c.Node(fmt.Sprintf("node-%d", i), string(rune('a'+i%3)), "16", "64Gi")
	}
	var apps []string
	for i := range 10 {
		app, replicas := fmt.Sprintf("app-%d", i), 3+i%4
		apps = append(apps, app)
		change := func(p *v1.PodTemplateSpec) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{clitest.ZoneSpread(app, 1)}
		}
		if i%2 == 0 {
			change = nil
			c.Policy(app, nil)
		}
		add := c.Deployment(app, int32(replicas), "1", "1Gi", change) //nolint:gosec // small
		for range replicas {
			add("")
		}
	}
	return newDay(t, c, newRebalance(apps...), 2)
}

// churn is what happens every ten minutes: pods are replaced, batch work comes and goes, and an autoscaler looks at the nodes.
func (d *day) churn() {
	for range d.replaced {
		all := sim.List[*v1.Pod](d.sim)
		pod := all[d.rand.IntN(len(all))]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		if pod.Labels["app"] == "batch" {
			d.sim.Remove(pod)
		} else {
			require.NoError(d.t, d.sim.Evict(pod))
		}
	}
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Labels["app"] == "batch" && d.sim.Now().Sub(pod.CreationTimestamp.Time) >= time.Hour {
			d.sim.Remove(pod)
		}
	}
	if d.batch++; d.batch%3 == 0 {
		require.NoError(d.t, d.sim.Add(occupant(d.running, fmt.Sprint("batch-", d.batch), "", d.batchCPU, map[string]string{"app": "batch"})))
	}
	d.schedule()
	d.scaleNodes()
	d.schedule()
}

// scaleNodes is an autoscaler: it adds a node while pods wait, and removes nodes that have run nothing for ten minutes, or
// that it has added and that have run no batch work for so long: their pods are evicted. The last node of a zone stays.
func (d *day) scaleNodes() {
	used, inZone, waits := map[string]bool{}, map[string]int{}, false
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Labels["app"] == "batch" || !strings.Contains(pod.Spec.NodeName, "-added-") {
			used[pod.Spec.NodeName] = true
		}
		waits = waits || pod.Spec.NodeName == ""
	}
	nodes, before := sim.List[*v1.Node](d.sim), d.spare
	for _, node := range nodes {
		inZone[node.Labels[v1.LabelTopologyZone]]++
	}
	d.spare = map[string]bool{}
	for _, node := range nodes {
		switch zone := node.Labels[v1.LabelTopologyZone]; {
		case used[node.Name]:
		case before[node.Name] && inZone[zone] > 1:
			d.drain(node)
			inZone[zone]--
			d.removed++
		default:
			d.spare[node.Name] = true
		}
	}
	if waits {
		_, err := d.sim.AddNodes(1, d.largestNode(nodes))
		require.NoError(d.t, err)
		d.added++
	}
}

// drain evicts the pods of a node, and removes it.
func (d *day) drain(node *v1.Node) {
	d.t.Helper()
	going := node.DeepCopy()
	going.Spec.Unschedulable = true
	d.put(going)
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Spec.NodeName == node.Name && pod.DeletionTimestamp == nil {
			require.NoError(d.t, d.sim.Evict(pod))
		}
	}
	d.schedule()
	d.sim.RemoveNode(node.Name)
}

// largestNode names the first of the nodes with the most CPUs of which the autoscaler has added none like it yet.
func (d *day) largestNode(nodes []*v1.Node) string {
	name, most := "", int64(0)
	for _, node := range nodes {
		_, added := sim.Get[*v1.Node](d.sim, "", node.Name+"-added-1")
		if cpu := node.Status.Allocatable.Cpu().MilliValue(); cpu > most && !added {
			name, most = node.Name, cpu
		}
	}
	return name
}

// live lets time pass, with churn. The controller has a turn soon after it has written something, as it sees that change like any other.
func (d *day) live(length time.Duration) {
	const settle = 5 * time.Second
	next := d.sim.Now()
	for end := d.sim.Now().Add(length); d.sim.Now().Before(end); {
		if !d.sim.Now().Before(next) {
			d.churn()
			next = d.sim.Now().Add(10 * time.Minute)
		}
		version := d.stored.ResourceVersion
		wait := min(d.turn(), max(settle, next.Sub(d.sim.Now())))
		if d.stored.ResourceVersion != version {
			wait = settle
		}
		d.schedule()
		d.pass(max(time.Second, wait))
	}
}

// last lives through 24 hours: six of them without a loss, and after each of three losses of a zone six more. balanced says whether the cluster
// is as it should be again, three hours after each return.
func (d *day) last(balanced func()) {
	d.t.Helper()
	d.live(6 * time.Hour)
	require.Empty(d.t, d.evicted, "nothing has drifted")
	moves, least := 0, 0
	for range 3 {
		zone := string(rune('a' + d.rand.IntN(3)))
		loss := d.sim.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone })
		d.schedule()
		d.pass(20 * time.Minute)
		require.NoError(d.t, d.sim.ReturnNodes(loss))
		d.schedule()
		standing := rebalance.StandingOf(d.sim, rebalance.Options{})
		for _, r := range standing.Rules {
			least += clitest.LeastMoves(r.Pods, 3)
		}
		before := len(d.evicted)
		d.live(3 * time.Hour)
		require.Equal(d.t, v1alpha1.ReasonNotStopped, d.reason(v1alpha1.ConditionStopped))
		require.Equal(d.t, v1alpha1.ReasonBalanced, d.reason(v1alpha1.ConditionBalanced))
		balanced()
		require.Greater(d.t, len(d.evicted), before, "replicas are moved back to zone %s", zone)
		moves += len(d.evicted) - before

		before = len(d.evicted)
		d.live(3 * time.Hour)
		require.Len(d.t, d.evicted, before, "what has been moved back stays")
	}
	d.t.Logf("%d moves after three returns of a zone, of which %d are the least, and none in the 15 hours without one; %d nodes were removed and %d added", moves, least, d.removed, d.added)
	require.LessOrEqual(d.t, moves, least)
	require.Positive(d.t, d.removed)
}

// TestADay: for 24 hours pods are replaced, batch work comes and goes, and an autoscaler removes spare nodes and adds
// others. Nothing is moved but after a disturbance: a zone that returns, or a scale-down. Each of them ends in an empty
// plan.
func TestADay(t *testing.T) {
	smallDay(t).last(func() {})
}

// TestADayOfATrace is TestADay on 300 nodes, with services drawn from a production trace.
func TestADayOfATrace(t *testing.T) {
	traced := trace.New(trace.Options{Nodes: 300, Services: 331, Pods: 2100, Load: 0.4, Seed: 1})
	spread := traced.Spread(v1.DoNotSchedule)
	r := newRebalance()
	for _, team := range spread.Namespaces {
		r.Spec.Workloads = append(r.Spec.Workloads, v1alpha1.SurvivalWorkload{Namespace: team})
	}
	r.Spec.MaxAtOnce, r.Spec.MaxPerHour = new(int32(40)), new(int32(400))
	d := newDay(t, spread.Cluster, r, 20)
	d.last(func() {
		standing, within := rebalance.StandingOf(d.sim, rebalance.Options{}), 0
		for _, rule := range standing.Rules {
			if rule.Excess == 0 {
				within++
			}
		}
		t.Logf("%d of %d services are within maxSkew after %d moves", within, len(standing.Rules), len(d.evicted))
		require.Len(t, standing.Rules, 331)
		require.GreaterOrEqual(t, within, 328)
	})
}
