package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

func TestWithoutTheCRD(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.stop()
		c.groups.Serve(&v1alpha1.PodGroup{}, false)
		c.start(withArgs(slowBackoff))

		names := c.createGang("g", 3)
		c.create(member("", "plain"))
		c.requireBound("plain")
		c.delete("plain")
		c.grace()
		for _, name := range names {
			c.requireEvent("Pod "+name+" PodGroupCRDMissing", "podgroups.scheduling.x-k8s.io is not installed")
		}
		c.requireUnbound(names...)
		c.groups.Serve(&v1alpha1.PodGroup{}, true)
		c.requireBound(names...)
	})
}

func TestMissingPodGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.create(member("g", "g-0"), member("", "plain"))
		c.requireBound("plain")
		require.Zero(t, c.recorder.count("", "PodGroupNotFound"), "not before its time: pods may come first")
		c.grace()
		c.requireEvent("Pod g-0 PodGroupNotFound", "PodGroup default/g: the PodGroup does not exist")
		c.groups.set("g", 1)
		c.requireBound("g-0")
	})
}

func TestInvalidPodGroup(t *testing.T) {
	inBubbles(t, map[string]int32{"zero": 0, "negative": -1}, func(t *testing.T, minMember int32) {
		c := startGangCluster(t, slowBackoff, 3)
		c.groups.set("g", minMember)
		c.create(member("g", "g-0"), member("", "plain"))
		c.requireBound("plain")
		words := fmt.Sprintf("spec.minMember is %d, must be at least 1", minMember)
		c.requireEvent("Pod g-0 InvalidPodGroup", words)
		c.requireEvent("PodGroup g InvalidPodGroup", words)
		c.requireUnbound("g-0")
		c.groups.set("g", 1)
		c.requireBound("g-0")
	})
}

func TestInvalidTimeout(t *testing.T) {
	for seconds, words := range map[int32]string{
		0:    "must be at least 1: the scheduler's default is used",
		-5:   "must be at least 1: the scheduler's default is used",
		1000: "must be at most 900: the maximum is used",
	} {
		runInBubble(t, fmt.Sprint(seconds), func(t *testing.T) {
			c := startGangCluster(t, slowBackoff, 3)
			c.groups.set("g", 1, seconds)
			c.create(member("g", "g-0"))
			c.requireBound("g-0")
			c.requireEvent("PodGroup g InvalidScheduleTimeout", fmt.Sprintf("spec.scheduleTimeoutSeconds is %d, %s", seconds, words))
		})
	}
}

func TestTooFewMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 5)
		c.groups.set("g", 3)
		c.create(member("g", "g-0"), member("g", "g-1").SchedulerName("somebody-else"))
		c.grace()
		c.requireEvent("Pod g-0 TooFewMembers", "needs 3 members, 1 exist and 1 more are held back")
		c.requireEvent("PodGroup g TooFewMembers", "needs 3 members")
		c.requireUnbound("g-0")
		c.create(member("g", "g-2"), member("g", "g-3"))
		c.requireBound("g-0", "g-2", "g-3")
	})
}

// TestEachMemberSaysWhichClaimIsMissing: while a member names a claim that does not exist, no cycle of any member says
// why they wait.
func TestEachMemberSaysWhichClaimIsMissing(t *testing.T) {
	type test struct {
		with func(p *st.PodWrapper, claim string) *st.PodWrapper
		says string
	}
	inBubbles(t, map[string]test{
		"PersistentVolumeClaim": {withVolume, "g-2 waits for the PersistentVolumeClaim absent"},
		"ResourceClaim":         {withDevice, "g-2 waits for the ResourceClaim absent"},
	}, func(t *testing.T, tt test) {
		c := startGangCluster(t, slowBackoff, 3)
		c.groups.set("g", 3)
		c.create(member("g", "g-0"), member("g", "g-1"), tt.with(member("g", "g-2"), "absent"))
		c.grace()
		for _, object := range []string{"Pod g-0", "Pod g-1", "Pod g-2", "PodGroup g"} {
			c.requireEvent(object+" TooFewMembers", tt.says)
		}
	})
}

// grace lets so much time pass that members that are missing are worth an event.
func (c *cluster) grace() {
	c.t.Helper()
	c.quiet()
	c.pass(6 * time.Second)
}
