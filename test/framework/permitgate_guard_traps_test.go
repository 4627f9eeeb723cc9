package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/features"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/native"
)

// TestNativeGangWaitsForLongerThanGangSchedulingDoes: GangScheduling's Permit times out after five minutes, but lets
// all go as soon as the last has come. From then on only PermitGate's own time runs, here while a rehearsal takes
// longer than that.
func TestNativeGangWaitsForLongerThanGangSchedulingDoes(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		c.stage.setAnswer(func(string) error {
			time.Sleep(6 * time.Minute) // of the bubble
			return nil
		})
		names := c.createNativeGang("n", 3)
		c.pass(5*time.Minute + 30*time.Second)
		require.Empty(t, c.boundAmong(names...))
		c.requireBound(names...)
		for _, name := range names {
			require.Equal(t, 1, c.mishap.tried(name), "no member was sent back")
		}
	})
}

// newSharingCluster has room for three members of the native gang n, and the claim shared, which is not allocated. The
// preparation of n-1 is slow.
func newSharingCluster(t *testing.T) (*cluster, *preparation) {
	t.Helper()
	c := newGangCluster(t, 3)
	c.addDevices(1, "", "node-0")
	c.addClaim("shared")
	c.start(withArgs(guarded))
	p := c.slowPreparation("n-1")
	c.createPodGroup("n", 3)
	return c, p
}

// sharing has a pod use the claim shared.
func sharing(pod *st.PodWrapper) *st.PodWrapper { return withDevice(pod, "shared") }

// sharedClaim returns the status of the claim shared, and for whom it is reserved.
func (c *cluster) sharedClaim() (status resourcev1.ResourceClaimStatus, users []types.UID) {
	c.t.Helper()
	found, err := c.client.ResourceV1().ResourceClaims("default").Get(c.t.Context(), "shared", metav1.GetOptions{})
	require.NoError(c.t, err)
	for _, user := range found.Status.ReservedFor {
		users = append(users, user.UID)
	}
	return found.Status, users
}

// TestNativeMembersShareAClaim that none of them has allocated: kube-scheduler allocates it in their cycle, and
// DynamicResources writes that in PreBind, before the barrier. When the gang is sent back from there, no member that is
// not bound keeps the claim.
func TestNativeMembersShareAClaim(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c, p := newSharingCluster(t)
		c.createNativeMembers("n", 3, sharing)
		<-p.started
		c.requireUnbound("n-0", "n-1", "n-2")
		_, users := c.sharedClaim()
		require.Subset(t, []types.UID{"n-0-uid", "n-2-uid"}, users) // of two that write at the same time, the fake API server may forget one
		require.NotEmpty(t, users, "they are prepared")

		c.delete("n-0")
		c.requireRoomFor(3)
		require.Empty(t, c.boundAmong("n-1", "n-2"))
		_, users = c.sharedClaim()
		require.Empty(t, users)

		close(p.goOn)
		c.create(sharing(nativeMember("n", "n-0").UID("another")))
		c.requireBound("n-0", "n-1", "n-2")
		status, users := c.sharedClaim()
		require.NotEmpty(t, users)
		require.NotNil(t, status.Allocation)
	})
}

// TestNativeMembersConflictOverAClaim that none of them has allocated, on an API server that refuses the second of two
// writes: DynamicResources fails all but the first member that writes the allocation, so a guarded gang is sent back as
// a whole, again and again. It is bound once another pod has had the claim allocated.
func TestNativeMembersConflictOverAClaim(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 4)
		c.server.Conflicts.Store(true)
		c.addDevices(1, "", "node-0")
		c.addClaim("shared")
		c.start(withArgs(guarded))
		c.createPodGroup("n", 3)
		c.createNativeMembers("n", 3, sharing)
		for range 30 {
			c.pass(2 * time.Second)
			bound := c.boundAmong("n-0", "n-1", "n-2")
			require.True(t, len(bound) == 0 || len(bound) == 3, "bound in part: %v", bound)
		}
		require.Empty(t, c.boundAmong("n-0", "n-1", "n-2"), "kube-scheduler lets members share an allocation in their own cycle, and one of them write it")

		c.create(sharing(member("", "first").UID("first")))
		c.requireBound("first", "n-0", "n-1", "n-2")
	})
}

// TestNativeGroupSharesAClaim that the PodGroup names: it is reserved for the group, and stays so when the gang is sent
// back from the barrier, since DynamicResources does not take it from a group by Unreserve. The PodGroup says that. The
// gang is bound whole or not at all even so, and a cycle in vain gives the claim back.
func TestNativeGroupSharesAClaim(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c, p := newSharingCluster(t)
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) {
			group.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "device", ResourceClaimName: ptr.To("shared")}}
		})
		c.requireGroupCondition("n", native.ConditionGuarded, metav1.ConditionFalse, "do not give back the devices of spec.resourceClaims")
		c.createNativeMembers("n", 3, sharing)
		<-p.started
		c.requireUnbound("n-0", "n-1", "n-2")
		c.delete("n-0")
		c.requireRoomFor(3)
		require.Empty(t, c.boundAmong("n-1", "n-2"))
		status, users := c.sharedClaim()
		require.NotNil(t, status.Allocation)
		require.Equal(t, []types.UID{"uid-n"}, users, "the group keeps it")

		close(p.goOn)
		c.create(member("", "blocker")) // the next cycle is in vain
		c.requireBound("blocker")
		c.create(sharing(nativeMember("n", "n-0").UID("another")))
		c.soon(func() bool {
			_, users := c.sharedClaim()
			return len(users) == 0
		})
		require.Empty(t, c.boundAmong("n-0", "n-1", "n-2"))
		c.delete("blocker")
		c.requireBound("n-0", "n-1", "n-2")
	}, features.DRAWorkloadResourceClaims)
}

// TestNativeMembersAreWrittenOnce: kube-scheduler nominates members that wait in Permit in the API, with a guard and
// without. A guard adds no write for each member.
func TestNativeMembersAreWrittenOnce(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			const members = 5
			c := startGangCluster(t, args, members)
			c.requireBound(c.createNativeGang("n", members)...)
			c.quiet()
			writes := map[string]int{}
			for _, action := range c.client.Actions() {
				if action.GetResource().Resource == "pods" && action.GetVerb() != "create" {
					if patch, ok := action.(clienttesting.PatchAction); ok {
						writes[patch.GetName()]++
					}
				}
			}
			for _, name := range []string{"n-0", "n-1", "n-2", "n-3"} {
				require.Equal(t, 1, writes[name], "the nomination of %s", name)
			}
			require.LessOrEqual(t, writes["n-4"], 1, "without a guard the last one does not wait")
		})
	}
}

// TestNativeMembersWithSchedulingGates count for minCount, and one of them keeps the whole group out of the queue, as
// kube-scheduler has it: also where the others would be enough.
func TestNativeMembersWithSchedulingGates(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		for _, minCount := range []int32{3, 2} {
			nativeBubble(t, fmt.Sprintf("%s, %d of 3", name, minCount), func(t *testing.T) {
				c := startGangCluster(t, args, 3)
				c.createPodGroup("n", minCount)
				c.create(nativeMember("n", "n-2").SchedulingGates([]string{"wait"}), nativeMember("n", "n-0"), nativeMember("n", "n-1"))
				c.pass(20 * time.Second)
				require.Empty(t, c.boundAmong("n-0", "n-1", "n-2"))
				if args == guarded && minCount == 3 {
					c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, "needs 3 members, 2 exist and 1 more are held back: they have scheduling gates")
				}
				c.update(nativeMember("n", "n-2"))
				c.requireBound("n-0", "n-1", "n-2")
			})
		}
	}
}

// TestNativeMembersBeyondTheQuorum: those that are placed in the same cycle are bound with the others; those that are
// left over do not send the gang back, and are bound when room appears.
func TestNativeMembersBeyondTheQuorum(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 3)
		c.maxBackoff = 1000
		c.start(withArgs(guarded))
		c.createPodGroup("n", 2)
		c.create(member("", "blocker"))
		c.requireBound("blocker")
		c.createNativeMembers("n", 3)
		c.soon(func() bool { return len(c.bound("n-")) == 2 })
		c.pass(20 * time.Second) // far into a backoff of 16s
		c.requireGroupCondition("n", native.ConditionReleased, "True", "2 members")

		c.delete("blocker")
		require.Less(t, c.requireBound("n-0", "n-1", "n-2"), time.Second)
		c.requireGroupCondition("n", native.ConditionReleased, "True", "2 members")
	})
}

// TestNativeGangThatAKilledSchedulerLeaves bound in part: the next one binds the rest around those that are bound.
func TestNativeGangThatAKilledSchedulerLeaves(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newGangCluster(t, 2, 2)
			c.createPodGroup("n", 4)
			first := nativeMember("n", "n-1")
			first.Spec.NodeName = "node-1"
			c.create(first, nativeMember("n", "n-0"), nativeMember("n", "n-2"), nativeMember("n", "n-3"))
			c.start(withArgs(args))
			c.requireBound("n-0", "n-2", "n-3")
			require.Equal(t, "node-1", c.bound("n-1")["n-1"])
		})
	}
}
