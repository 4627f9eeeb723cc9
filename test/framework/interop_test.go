package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// The tests of docs/interop.md: each plays the objects that another project makes of a workload, in its order.

// TestKueueAdmitsAGang: Kueue makes the pods wait behind its gates. With topology-aware scheduling it names the node of
// each pod in its node selector when it takes the gate away, one pod after the other.
func TestKueueAdmitsAGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 2, 2, 8)
		c.groups.set("g", 3)
		gates := []string{"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"}
		names := []string{"g-0", "g-1", "g-2"}
		for _, name := range names {
			c.create(member("g", name).SchedulingGates(gates))
		}
		c.requireUnbound(names...)
		for i, name := range names {
			c.update(member("g", name).SchedulingGates(gates[1:]))
			c.requireUnbound(names...)
			admitted := member("g", name).NodeSelector(map[string]string{v1.LabelHostname: fmt.Sprintf("node-%d", i/2)})
			admitted.Generation = 1 // after the first update
			c.update(admitted)
			if i < len(names)-1 {
				c.requireUnbound(names...)
			}
		}
		c.requireBound(names...)
		require.Equal(t, map[string]string{"g-0": "node-0", "g-1": "node-0", "g-2": "node-1"}, c.bound("g-"))
	})
}

// TestJobSetIsAGang: the pods of all Jobs of a JobSet name one PodGroup, whose minMember is the sum of their
// parallelism.
func TestJobSetIsAGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 2)
		c.groups.set("train", 4)
		podOf := func(replicatedJob string, index int) *st.PodWrapper {
			p := member("train", fmt.Sprintf("train-%s-0-%d", replicatedJob, index))
			return owned(p.Label("jobset.sigs.k8s.io/jobset-name", "train").Label("jobset.sigs.k8s.io/replicatedjob-name", replicatedJob), types.UID("uid-"+replicatedJob))
		}
		names := []string{"train-driver-0-0", "train-workers-0-0", "train-workers-0-1", "train-workers-0-2"}
		c.create(podOf("driver", 0), podOf("workers", 0), podOf("workers", 1), podOf("workers", 2))
		c.requireUnbound(names...)
		c.addNode("node-1", 2)
		c.requireBound(names...)
	})
}

// TestLeaderWorkerSetIsAGang: with the startup policy LeaderCreated the workers of a group are created once their
// leader is, and the group is bound whole. With LeaderReady they are created once the leader runs, which a gang of the
// whole group never lets it.
func TestLeaderWorkerSetIsAGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 8)
		c.groups.set("lws-0", 3)
		podOf := func(index int) *st.PodWrapper {
			name := "lws-0"
			if index > 0 {
				name = fmt.Sprintf("lws-0-%d", index)
			}
			return member("lws-0", name).Label("leaderworkerset.sigs.k8s.io/name", "lws").Label("leaderworkerset.sigs.k8s.io/group-index", "0").
				Label("leaderworkerset.sigs.k8s.io/worker-index", fmt.Sprint(index))
		}
		c.create(podOf(0))
		c.requireUnbound("lws-0")
		c.create(podOf(1), podOf(2))
		c.requireBound("lws-0", "lws-0-1", "lws-0-2")
	})
}

// TestProfileOfTheCoschedulingPlugin: KubeRay and the training operator ask for the scheduler
// scheduler-plugins-scheduler, and write a PodGroup with the resources of the whole. A profile of that name takes their
// pods.
func TestProfileOfTheCoschedulingPlugin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const name = "scheduler-plugins-scheduler"
		c := newGangCluster(t, 1)
		c.edit = func(p *config.KubeSchedulerProfile) { p.SchedulerName = name }
		c.start(withArgs(slowBackoff))
		c.setResources("ray", 3, "3")
		names := []string{"ray-head", "ray-worker-0", "ray-worker-1"}
		for _, n := range names {
			c.create(member("ray", n).SchedulerName(name).Label("ray.io/cluster", "ray"))
		}
		c.requireUnbound(names...)
		c.addNode("node-1", 2)
		c.requireBound(names...)
	})
}
