package rebalance

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// day is a cluster of ten services for whose pods and nodes somebody always finds something to do.
type day struct {
	*running
	rand  *rand.Rand
	apps  []string
	batch int
}

func newDay(t *testing.T) *day {
	t.Helper()
	c := clitest.New()
	for i := range 9 {
		c.Node(fmt.Sprintf("node-%d", i), string(rune('a'+i%3)), "16", "64Gi")
	}
	d := &day{rand: rand.New(rand.NewPCG(1, 24))}
	for i := range 10 {
		app, replicas := fmt.Sprintf("app-%d", i), 3+i%4
		d.apps = append(d.apps, app)
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
	z := newRebalance(d.apps...)
	d.running = run(t, c, z)
	return d
}

// churn is what happens every few minutes: pods are replaced, batch work comes and goes, and an autoscaler removes nodes
// that have become empty, or adds one while pods wait.
func (d *day) churn() {
	for range 2 {
		all := sim.List[*v1.Pod](d.sim)
		pod := all[d.rand.IntN(len(all))]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		if pod.Labels["app"] == "batch" {
			d.sim.Remove(pod)
		} else {
			require.NoError(d.t, d.sim.Evict(pod))
			d.schedule()
		}
	}
	if d.batch++; d.batch%3 == 0 {
		require.NoError(d.t, d.sim.Add(occupant(d.running, fmt.Sprint("batch-", d.batch), "", "4", map[string]string{"app": "batch"})))
	}
	d.schedule()
	used, inZone, waits := map[string]bool{}, map[string]int{}, false
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		used[pod.Spec.NodeName] = true
		waits = waits || pod.Spec.NodeName == ""
	}
	nodes := sim.List[*v1.Node](d.sim)
	for _, node := range nodes {
		inZone[node.Labels[v1.LabelTopologyZone]]++
	}
	for _, node := range nodes {
		if zone := node.Labels[v1.LabelTopologyZone]; !used[node.Name] && inZone[zone] > 1 {
			d.sim.RemoveNode(node.Name)
			inZone[zone]--
		}
	}
	if waits {
		_, err := d.sim.AddNodes(1, nodes[0].Name)
		require.NoError(d.t, err)
	}
	d.schedule()
}

// live lets time pass, with churn.
func (d *day) live(length time.Duration) {
	next := d.sim.Now()
	for end := d.sim.Now().Add(length); d.sim.Now().Before(end); {
		if !d.sim.Now().Before(next) {
			d.churn()
			next = d.sim.Now().Add(10 * time.Minute)
		}
		wait := d.turn()
		d.schedule()
		d.pass(max(time.Second, min(wait, 10*time.Minute)))
	}
}

// TestADay: for 24 hours pods are replaced, batch work comes and goes, and an autoscaler removes empty nodes and adds
// others. Nothing is moved but after a disturbance: a zone that returns, or a scale-down. Each of them ends in an empty
// plan.
func TestADay(t *testing.T) {
	d := newDay(t)
	d.live(6 * time.Hour)
	require.Empty(t, d.evicted, "nothing has drifted")
	moves := 0
	for range 3 {
		zone := string(rune('a' + d.rand.IntN(3)))
		loss := d.sim.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone })
		d.schedule()
		d.pass(20 * time.Minute)
		require.NoError(t, d.sim.ReturnNodes(loss))
		d.schedule()
		before := len(d.evicted)
		d.live(3 * time.Hour)
		require.Equal(t, v1alpha1.ReasonBalanced, d.reason(v1alpha1.ConditionBalanced))
		require.Nil(t, d.stored.Status.Stop)
		require.Greater(t, len(d.evicted), before, "replicas are moved back to zone %s", zone)
		moves += len(d.evicted) - before

		before = len(d.evicted)
		d.live(3 * time.Hour)
		require.Len(t, d.evicted, before, "a plan that was carried out is followed by no other")
	}
	t.Logf("%d moves after three returns of a zone, and none in the 15 hours without one", moves)
}
