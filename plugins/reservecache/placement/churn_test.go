package placement

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/waiting"
)

// TestTwoHoursOfChurnTakeNoMemory: each second pods end and others come, each minute a node and a reservation go and others with
// new names come. After two hours as much memory is in use as after forty minutes, with reservations and without.
func TestTwoHoursOfChurnTakeNoMemory(t *testing.T) {
	for name, reservations := range map[string]bool{"without reservations": false, "with reservations": true} {
		t.Run(name, func(t *testing.T) {
			c := newChurn(t, reservations)
			c.run(40 * time.Minute)
			before := heapInUse()
			c.run(80 * time.Minute)
			require.Less(t, heapInUse()-before, int64(50_000), "bytes more than after forty minutes")
			require.Greater(t, c.came, 2*60*60)
			if reservations {
				require.Positive(t, c.taken, "owners took headroom")
				require.Positive(t, c.refused, "holds kept pods out")
				require.Positive(t, c.lacking, "some reservations lack slots")
			}
			runtime.KeepAlive(c)
		})
	}
}

// heapInUse is what is reachable, in bytes.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools of the first one held
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // not that large
}

// churn is a scene in which time goes by.
type churn struct {
	*scene
	t       *testing.T
	rand    *rand.Rand
	waiting *waiting.Pods
	now     time.Time
	// cycle is the snapshot of the scheduling cycles.
	cycle *ledger.Snapshot
	// pods have a node, and refused ones wait for it. nodes and claims are those that are there.
	pods          []string
	waits         []*v1.Pod
	nodes, claims []string
	reservations  bool
	// came counts the pods; taken, refused and lacking what has happened.
	came, taken, refused, lacking int
}

func newChurn(t *testing.T, reservations bool) *churn {
	c := &churn{
		scene: newScene(1), t: t, rand: rand.New(rand.NewPCG(1, 2)), waiting: waiting.New(),
		now: t0, cycle: ledger.NewSnapshot(), reservations: reservations,
	}
	for range 30 {
		c.addNode()
	}
	for range 12 {
		c.addClaim()
	}
	c.reconcile(t)
	return c
}

// run lets time go by.
func (c *churn) run(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(time.Second) {
		second := int(c.now.Sub(t0) / time.Second)
		for len(c.pods) > 70 {
			c.endPod()
		}
		c.schedule()
		c.schedule()
		if second%7 == 0 {
			c.cordon(second%14 == 0)
		}
		if second%60 == 0 {
			c.replaceNode()
			c.replaceClaim()
		}
		c.pass()
	}
}

func (c *churn) addNode() {
	name := fmt.Sprintf("n%d", c.rand.Uint64())
	c.nodes = append(c.nodes, name)
	c.ledger.AddNode(makeNode(name, string("abc"[len(c.nodes)%3]), "4"))
}

// replaceNode removes a node, and then its pods, and adds another.
func (c *churn) replaceNode() {
	name := c.nodes[0]
	c.nodes = c.nodes[1:]
	c.ledger.RemoveNode(makeNode(name, "a", "4"))
	for _, p := range c.ledger.PodsOn(name) {
		c.end(p.Pod.Name)
	}
	c.addNode()
}

// cordon cordons a node, or opens all.
func (c *churn) cordon(cordons bool) {
	for i, name := range c.nodes {
		n := makeNode(name, string("abc"[i%3]), "4")
		n.Spec.Unschedulable = cordons && i == 3
		c.ledger.AddNode(n)
	}
}

// addClaim adds a claim of one of the kinds: headroom, one that is too large for most nodes, a guarantee, amounts.
func (c *churn) addClaim() {
	if !c.reservations {
		return
	}
	name := fmt.Sprintf("r%d", c.rand.Uint64())
	d := target(name, len(c.claims), Zone{"a", 2}, Zone{"b", 2}, Zone{"c", 2})
	switch c.rand.IntN(4) {
	case 0:
		d.Claim.Slot.MilliCPU = 3500
	case 1:
		d.Claim.Use = holds.UseFirst
	case 2:
		d = targetOn(name, 0, map[string]ledger.Resources{c.nodes[c.rand.IntN(len(c.nodes))]: cpus(3, 3)})
	default:
	}
	c.claims = append(c.claims, name)
	c.planner.Set(d)
	c.planner.OwnersChanged()
}

func (c *churn) replaceClaim() {
	if !c.reservations {
		return
	}
	c.planner.Remove(types.UID(c.claims[0]))
	c.claims = c.claims[1:]
	c.addClaim()
}

// schedule has a pod come, of a claim or of none, and tries it on a few nodes. Some are forgotten again, some give up waiting.
func (c *churn) schedule() {
	c.came++
	pod := makePod(fmt.Sprintf("p%d", c.rand.Uint64()), "", "1")
	var claim types.UID
	if len(c.claims) > 0 && c.rand.IntN(2) == 0 {
		claim = types.UID(c.claims[c.rand.IntN(len(c.claims))])
	}
	c.waiting.AttemptBegins(pod.UID)
	c.ledger.UpdateSnapshot(c.cycle)
	view := snapshotView{c.cycle}
	c.planner.Collect(view)
	for range 5 {
		node := c.nodes[c.rand.IntN(len(c.nodes))]
		uses, fits := c.scene.schedule(c.t, view, node, pod, claim)
		if !fits {
			continue
		}
		if uses {
			c.taken++
		}
		c.waiting.Placed(pod.UID, node)
		if c.rand.IntN(10) == 0 {
			c.ledger.ForgetPod(pod.UID, node)
			return
		}
		bound := pod.DeepCopy()
		bound.Spec.NodeName = node
		c.add(c.t, bound)
		c.pods = append(c.pods, pod.Name)
		return
	}
	c.refused++
	request := c.ledger.Requests(pod)
	c.waiting.Refused(pod, &request, waiting.Terms{Claim: claim}, c.now)
	if c.waits = append(c.waits, pod); len(c.waits) > 20 {
		c.waiting.Gone(c.waits[0].UID)
		c.waits = c.waits[1:]
	}
}

func (c *churn) endPod() {
	i := c.rand.IntN(len(c.pods))
	c.end(c.pods[i])
	c.pods[i] = c.pods[len(c.pods)-1]
	c.pods = c.pods[:len(c.pods)-1]
}

// pass does what the worker does.
func (c *churn) pass() {
	c.reconcile(c.t)
	for _, uid := range c.planner.TakeTouched() {
		c.planner.Report(uid)
	}
	c.lacking += len(c.planner.Unfilled())
	c.waiting.Opened(c.planner.TakeToWake())
	c.waiting.Pick(c.now, &waiting.Cluster{
		Node: func(name string) (waiting.Node, bool) {
			n := c.kept.Node(name)
			if n == nil {
				return waiting.Node{}, false
			}
			return waiting.Node{
				Object: n.Node, Pods: n.Pods, Allocatable: n.Allocatable, Requested: n.Requested, Holds: c.holds.Node(name),
			}, true
		},
		Requester: func(pod *v1.Pod) holds.Requester { return holds.Requester{Claim: types.UID(pod.Labels["claim"])} },
		MayGo:     func(*v1.Pod, *v1.Node) bool { return true },
	})
}
