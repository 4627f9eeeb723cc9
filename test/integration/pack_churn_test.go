package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/test/build"
)

// churnSteps is how many random steps one run takes.
const churnSteps = 120

// TestChurn lets pods, gangs and nodes come and go at random while the scheduler works. The world's
// watcher looks at every moment of it, and what must be true at the end of every test is true at the end of
// this one, for each of several orders.
func TestChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c := &churn{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, seed)), gangs: map[string][]*v1.Pod{}}
			for range 3 {
				c.addNode()
			}
			s := c.startScheduler()
			for range churnSteps {
				c.step()
			}
			// Room for all that is left.
			c.addNodes("64", "a-last", "b-last", "c-last")
			c.waitBoundCount(len(c.all()), nil)
			c.assertInvariants()
			t.Logf("%d pods and %d gangs are left on %d nodes", len(c.all()), len(c.gangs), s.ledger().Stats().Nodes)
		})
	}
}

// churn is a world and what is in it.
type churn struct {
	*world
	rand  *rand.Rand
	made  int
	nodes []string
	pods  []*v1.Pod            // of no gang
	gangs map[string][]*v1.Pod // by name of the PodGroup
	names []string             // of the gangs, in the order of their making
}

// all lists the pods that should exist.
func (c *churn) all() []*v1.Pod {
	pods := slices.Clone(c.pods)
	for _, name := range c.names {
		pods = append(pods, c.gangs[name]...)
	}
	return pods
}

func (c *churn) step() {
	c.t.Helper()
	c.made++
	switch dice := c.rand.IntN(100); {
	case dice < 40:
		c.addPod()
	case dice < 60:
		c.addGang()
	case dice < 75:
		c.deleteSomePod()
	case dice < 85:
		c.deleteSomeGang()
	case dice < 95:
		c.addNode()
	default:
		c.loseNode()
	}
}

func (c *churn) cpu() string { return fmt.Sprintf("%dm", 100*(1+c.rand.IntN(20))) }

func (c *churn) addPod() {
	c.t.Helper()
	options := []podOption{build.Label("app", "plain")}
	if c.rand.IntN(2) == 0 {
		options = []podOption{ofApp("soft", 1, soft)}
	}
	c.pods = append(c.pods, c.create(newPod(fmt.Sprintf("pod-%d", c.made), c.cpu(), options...))...)
}

func (c *churn) addGang() {
	c.t.Helper()
	name, members := fmt.Sprintf("gang-%d", c.made), 2+c.rand.IntN(4)
	// The PodGroup comes before its members, among them or after them.
	when := c.rand.IntN(members + 1)
	cpu := c.cpu()
	for i := range members {
		if i == when {
			c.createGroup(name, int32(members), 0)
		}
		c.gangs[name] = append(c.gangs[name], c.create(newPod(fmt.Sprintf("%s-%d", name, i), cpu, build.Member(name)))...)
	}
	if when == members {
		c.createGroup(name, int32(members), 0)
	}
	c.names = append(c.names, name)
}

func (c *churn) deleteSomePod() {
	c.t.Helper()
	if len(c.pods) == 0 {
		return
	}
	i := c.rand.IntN(len(c.pods))
	c.deletePod(c.pods[i])
	c.pods = slices.Delete(c.pods, i, i+1)
}

func (c *churn) deleteSomeGang() {
	c.t.Helper()
	if len(c.names) > 0 {
		c.deleteGang(c.names[c.rand.IntN(len(c.names))])
	}
}

// deleteGang deletes a gang as its controller would: all of it.
func (c *churn) deleteGang(name string) {
	c.t.Helper()
	c.watcher.setGang(name, 0) // members that are bound while others are deleted break no promise
	for _, pod := range c.gangs[name] {
		c.deletePod(pod)
	}
	c.deleteGroup(name)
	delete(c.gangs, name)
	c.names = slices.DeleteFunc(c.names, func(other string) bool { return other == name })
}

func (c *churn) addNode() {
	c.t.Helper()
	c.made++
	name := fmt.Sprintf("%s%d", []string{"a", "b", "c"}[c.rand.IntN(3)], c.made)
	c.addNodes(fmt.Sprint(2+c.rand.IntN(6)), name)
	c.nodes = append(c.nodes, name)
}

// loseNode takes a node away with its pods; gangs that had a member there are given up whole.
func (c *churn) loseNode() {
	c.t.Helper()
	if len(c.nodes) < 2 {
		return
	}
	i := c.rand.IntN(len(c.nodes))
	lost := c.nodes[i]
	c.nodes = slices.Delete(c.nodes, i, i+1)
	c.deleteNode(lost)
	// The scheduler may have been about to use it: pods arrive for as long as it does not know.
	c.eventually("no pod is on the lost node", func() (bool, string) {
		c.dropPodsOf(lost)
		known := false
		for _, s := range c.schedulers {
			_, there := s.cacheAccount()[lost]
			known = known || there
		}
		return !known, lost
	})
}

func (c *churn) dropPodsOf(node string) {
	c.t.Helper()
	there := map[string]bool{}
	for _, pod := range c.world.pods(nil) {
		if pod.Spec.NodeName == node {
			there[pod.Name] = true
		}
	}
	isThere := func(pod *v1.Pod) bool { return there[pod.Name] }
	for _, pod := range c.pods {
		if isThere(pod) {
			c.deletePod(pod)
		}
	}
	c.pods = slices.DeleteFunc(c.pods, isThere)
	for _, name := range slices.Clone(c.names) {
		if slices.ContainsFunc(c.gangs[name], isThere) {
			c.deleteGang(name)
		}
	}
}
