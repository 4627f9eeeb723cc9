package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// setResources creates a PodGroup with spec.minResources.
func (c *cluster) setResources(name string, minMember int32, cpu string) {
	c.groups.edit(name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = minMember
		group.Spec.MinResources = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	})
}

// TestMinResourcesOfTheMembers: KubeRay and Kubeflow Trainer write the sum of the members' requests into each PodGroup.
// Such a gang preempts, and keeps nodes, like any other.
func TestMinResourcesOfTheMembers(t *testing.T) {
	runInBubble(t, "preempts", func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 2)
		c.bind("node-0", low("low-0"), low("low-1"))
		c.quiet()
		c.setResources("urgent", 2, "2")
		c.requireBound(c.createMembers("urgent", 2, ranked(100))...)
	})
	runInBubble(t, "keeps nodes", func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never", "starvationAfter": "20s"}`, 1, 1)
		c.bind("node-0", member("", "small-0"))
		c.bind("node-1", member("", "small-1"))
		c.quiet()
		c.setResources("g", 2, "2")
		c.createMembers("g", 2)
		c.eventually("it keeps nodes", func() bool { return c.recorder.count("PodGroup g GangKeepsNodes", "") == 1 })
	})
}

// TestMinResourcesOfMembersToCome: spark-operator makes a PodGroup for a driver, with the resources of its executors
// too, which the driver creates. Of two applications for which there is no room together, one is let in with all of its
// pods, and the other waits. A gang that asks for nothing of the kind leaves them their room as well, but not for
// longer than the timeout of a gang.
func TestMinResourcesOfMembersToCome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never", "initialBackoff": "1s", "maxBackoff": "1s"}`, 4, 4)
		for _, app := range []string{"spark-a", "spark-b"} {
			c.setResources(app, 1, "6")
			c.create(member(app, app+"-driver"))
			c.pass(time.Second)
		}
		c.requireBound("spark-a-driver")
		c.requireUnbound("spark-b-driver")
		require.Positive(t, c.recorder.count("PodGroup spark-b GangRolledBack", "the cluster lacks spec.minResources"))
		plain := c.createGang("plain", 3)
		c.requireEvent("PodGroup plain GangRolledBack", "5 of it for members that other gangs await")
		c.requireUnbound(plain...)
		executors := c.createPlain("spark-a-executor", 5, labelled(v1alpha1.PodGroupLabel, "spark-a"))
		c.requireBound(executors...)
		c.requireUnbound(append(plain, "spark-b-driver")...)
		c.delete(plain...)
		c.delete(append(executors, "spark-a-driver")...)
		c.requireBound("spark-b-driver") // and no executors of it come
		late := c.createGang("late", 3)
		c.requireUnbound(late...)
		c.pass(time.Minute)
		c.requireBound(late...)
	})
}
