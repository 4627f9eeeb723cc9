package framework

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestPreemptionThroughACap: three preemptors at once, each blocked by the cap of the one zone, go on by themselves
// when their victims are gone: whether the room that they need is there when the victims begin to terminate, or when
// they have.
func TestPreemptionThroughACap(t *testing.T) {
	inBubbles(t, map[string]string{"room beside the victims": "64", "room of the victims": "3"}, func(t *testing.T, cpu string) {
		c := newSpreadCluster(t)
		c.addNodes(cpu, "a1")
		c.policies.Put(newPolicy(maxPerZone("3", 100), ofReplicas(6)))
		c.start()
		c.createPods(newPods(3, "low", "1", priority(1))...)
		c.waitBound("low", 3)
		c.server.Graceful.Store(true)
		c.createPods(newPods(3, "high", "1", priority(1000))...)
		c.eventually("all victims terminate", func() bool { return len(c.bound("low")) == 0 })
		if cpu == "64" {
			c.eventuallyWithin(time.Minute, "the preemptors are bound beside them", func() bool { return len(c.bound("high")) == 3 })
			return
		}
		c.pass(30 * time.Second)
		require.Empty(t, c.bound("high"))
		c.finish("low-0", "low-1", "low-2")
		c.eventuallyWithin(30*time.Second, "the preemptors are bound", func() bool { return len(c.bound("high")) == 3 })
	})
}

// TestTerminatingPodsMakeRoom: pods that a cap or the skew refuses go on when a pod that counts begins to terminate;
// its end alone is enough, too, whatever its last state was.
func TestTerminatingPodsMakeRoom(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.ZoneSpreadPolicySpec){
		"cap": maxPerZone("2", 100),
		// Of all revisions, as of the last pods of a rollout.
		"cap, all revisions": func(s *v1alpha1.ZoneSpreadPolicySpec) {
			maxPerZone("2", 100)(s)
			s.MatchLabelKeys = []string{}
		},
		"skew": declaring("a", "b", "missing"),
	} {
		for _, how := range []string{"terminates", "was not seen to terminate", "was terminating"} {
			runInBubble(t, name+", "+how, func(t *testing.T) {
				c := newSpreadCluster(t)
				c.addNodes("64", "a1", "b1")
				c.policies.Put(newPolicy(edit, ofReplicas(6)))
				placed := map[string]int{"cap": 4, "cap, all revisions": 4, "skew": 2}[name]
				c.start()
				c.createPods(newPods(placed, "web", "1", build.Label("pod-template-hash", "1"))...)
				c.waitBound("web", placed)
				waiting := newPods(2, "waiting", "1", build.Label("pod-template-hash", "1"))
				c.createPods(waiting...)
				c.eventually("both were tried", func() bool { return c.mishap.tried("waiting-0") > 0 && c.mishap.tried("waiting-1") > 0 })
				c.pass(15 * time.Second)
				require.Empty(t, c.bound("waiting"))
				switch how {
				case "terminates":
					c.server.Graceful.Store(true)
					c.delete("web-0")
				case "was not seen to terminate":
					c.finish("web-0")
				case "was terminating":
					// The scheduler starts when the pod terminates already; room is what is wanted, on one node.
					c.server.Graceful.Store(true)
					c.delete("web-0")
					c.eventually("one goes on", func() bool { return len(c.bound("waiting")) == 1 })
					c.finish("web-0")
				}
				c.eventuallyWithin(15*time.Second, "one goes on", func() bool { return len(c.bound("waiting")) == 1 })
				c.pass(15 * time.Second)
				require.Len(t, c.bound("waiting"), 1, "%v", c.byZone(""))
			})
		}
	}
}

var (
	starved = flag.Int("starved", 100, "pods that wait in TestAttemptsAreFew; docs/performance.md has the figures for 3000")
	coming  = flag.Int("coming", 1, "pods that come and go each second in TestAttemptsAreFew; docs/performance.md has the figures for 20")
)

// TestAttemptsAreFew: many pods wait for room under a policy whose desired replicas follow the number of pods, while
// pods come and go. They are not tried more often than with the in-tree plugin and a like constraint: be it that no
// zone has room, or that the only one that has is refused; while pods that wait come and go, which helps none of the
// others, and while bound ones go, too.
func TestAttemptsAreFew(t *testing.T) {
	for name, rest := range map[string]string{"no zone has room": "4", "one zone is refused": "400"} {
		runInBubble(t, name, func(t *testing.T) {
			attempts := map[string][2]int64{}
			for name, edit := range map[string]func(*v1alpha1.ZoneSpreadPolicySpec){
				"in-tree": nil, "policy": matching, "policy with caps": func(s *v1alpha1.ZoneSpreadPolicySpec) {
					matching(s)
					maxPerZone("40%", 1)(s)
				},
			} {
				attempts[name] = attemptsBesideStarved(t, rest, edit)
			}
			t.Logf("attempts in 30 s of %d waiting pods, with %d more each second, and in 30 s in which bound ones go, too: %v", *starved, *coming, attempts)
			for phase, inTree := range attempts["in-tree"] {
				require.LessOrEqual(t, attempts["policy"][phase], inTree*3/2)
				require.LessOrEqual(t, attempts["policy with caps"][phase], inTree*3/2)
			}
		})
	}
}

// attemptsBesideStarved counts the scheduling cycles while pods come and go that find no room, and then while bound
// ones go, too. Zone a has as many CPUs as given; edit is nil for the in-tree plugin.
func attemptsBesideStarved(t *testing.T, cpu string, edit func(*v1alpha1.ZoneSpreadPolicySpec)) (attempts [2]int64) {
	t.Helper()
	c := newSpreadCluster(t)
	c.addNodes(cpu, "a1")
	c.addNodes("4", "b1", "c1")
	var options []option
	spread := func(*v1.Pod) {}
	if edit == nil {
		spread = func(pod *v1.Pod) { pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{overZones()} }
		options = append(options, inTree)
	} else {
		c.policies.Put(newPolicy(edit))
	}
	c.start(options...)
	c.createPods(newPods(*starved+12, "web", "1", spread)...)
	c.eventually("all were tried", func() bool {
		return len(c.bound("")) >= 12 && c.mishap.tried(fmt.Sprintf("web-%d", *starved+11)) > 0
	})
	c.pass(30 * time.Second)
	for phase := range attempts {
		start := c.cycles.Load()
		for i := range 30 {
			more := newPods(*coming, fmt.Sprintf("coming-%d-%d", phase, i), "1", spread)
			c.createPods(more...)
			c.pass(time.Second / 2)
			for _, pod := range more {
				c.finish(pod.Name)
			}
			if phase == 1 && i%10 == 0 {
				for pod := range c.bound("web") {
					c.finish(pod)
					break
				}
			}
			c.pass(time.Second / 2)
		}
		attempts[phase] = c.cycles.Load() - start
	}
	c.stop()
	return attempts
}
