package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestNativeGangWaitsForLongerThanGangSchedulingDoes: GangScheduling's Permit times out after five minutes, but lets all go as soon as the last
// has come. From then on only PermitGate's own time runs, here while a rehearsal takes longer than that.
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

// TestNativeMembersShareAClaim that none of them has allocated: kube-scheduler allocates it in their cycle, and DynamicResources writes that in
// PreBind, before the barrier. When the gang is sent back from there, no member that is not bound keeps the claim.
func TestNativeMembersShareAClaim(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 3)
		c.addDevices(1, "", "node-0")
		c.addClaim("shared")
		c.start(withArgs(guarded))
		p := c.slowPreparation("n-1")
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 3))
		sharing := func(name string, uid types.UID) {
			pod := nativeMember("n", name).UID(string(uid))
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("shared")}}
			c.create(pod)
		}
		claim := func() (status resourcev1.ResourceClaimStatus, users []types.UID) {
			found, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "shared", metav1.GetOptions{})
			require.NoError(t, err)
			for _, user := range found.Status.ReservedFor {
				users = append(users, user.UID)
			}
			return found.Status, users
		}
		for _, name := range []string{"n-0", "n-1", "n-2"} {
			sharing(name, types.UID(name))
		}
		<-p.started
		c.requireUnbound("n-0", "n-1", "n-2")
		_, users := claim()
		require.Subset(t, []types.UID{"n-0", "n-2"}, users) // of two that write at the same time, the fake API server may forget one
		require.NotEmpty(t, users, "they are prepared")

		c.delete("n-0")
		c.requireRoomFor(3)
		require.Empty(t, c.boundAmong("n-1", "n-2"))
		_, users = claim()
		require.Empty(t, users)

		close(p.goOn)
		sharing("n-0", "another")
		c.requireBound("n-0", "n-1", "n-2")
		status, users := claim()
		require.NotEmpty(t, users)
		require.NotNil(t, status.Allocation)
	})
}
