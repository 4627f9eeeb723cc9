package serve

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/podstatus"
	"zonewise.dev/test/build"
)

// claimed is a gang with one member, which has a claim.
type claimed struct {
	memberless
	member Member
	// comesBack: the member is in another cycle when it is looked at a second time.
	comesBack bool
	looks     *int
}

func (c claimed) Members(podgroup.ID) []Member {
	m := c.member
	m.SentBack = m.SentBack && (!c.comesBack || *c.looks == 0)
	*c.looks++
	return []Member{m}
}

// withDevices is the handle of a scheduler that allocates devices.
type withDevices struct {
	handle
	factory informers.SharedInformerFactory
}

func (h withDevices) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (withDevices) SharedDRAManager() fwk.SharedDRAManager                   { return struct{ fwk.SharedDRAManager }{} }

// TestDevicesAreTakenBack from a member that has been sent back, and from no other pod: its claim may still be shown as
// reserved for it.
func TestDevicesAreTakenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		reservedFor []types.UID
		holds       bool // the member has not been sent back
		comesBack   bool
		takenBack   bool
	}{
		"reserved for no pod":              {takenBack: true},
		"still shown as reserved for it":   {reservedFor: []types.UID{"p"}, takenBack: true},
		"another pod uses it":              {reservedFor: []types.UID{"other"}},
		"another pod uses it, too":         {reservedFor: []types.UID{"p", "other"}},
		"the member has a node":            {reservedFor: []types.UID{"p"}, holds: true},
		"the member is in its next cycle":  {comesBack: true},
		"the member is prepared once more": {reservedFor: []types.UID{"p"}, comesBack: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := build.Pod("p", "1", build.Namespace(train.Namespace), build.Member(train.Name))
			pod.UID = "p"
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("c")}}
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "c", UID: "c"}}
			claim.Status.Allocation = &resourcev1.AllocationResult{}
			for _, uid := range tt.reservedFor {
				claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: uid})
			}
			h := withDevices{handle{client: fake.NewSimpleClientset(claim)}, nil}
			h.factory = informers.NewSharedInformerFactory(h.client, 0)
			require.NoError(t, h.factory.Resource().V1().ResourceClaims().Informer().GetStore().Add(claim))
			s := New(Config{Clock: clock.RealClock{}, Gangs: claimed{
				member: Member{Pod: pod, SentBack: !tt.holds}, comesBack: tt.comesBack, looks: new(int),
			}})
			s.patcher = podstatus.New(h)
			require.NoError(t, s.deallocate(t.Context(), train, s.Gangs.Members(train)))
			claim, err := h.client.ResourceV1().ResourceClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tt.takenBack, claim.Status.Allocation == nil)
			if tt.takenBack {
				require.Empty(t, claim.Status.ReservedFor)
			} else {
				require.Len(t, claim.Status.ReservedFor, len(tt.reservedFor))
			}
		})
	}
}
