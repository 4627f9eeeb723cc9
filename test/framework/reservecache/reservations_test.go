package reservecache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// binds has all bind calls succeed.
func binds(string, int) outcome { return outcome{binds: true, answers: true} }

// smallNode makes a node of some CPUs.
func (c *cluster) smallNode(t *testing.T, name, zone, cpu string, change func(*v1.Node)) {
	t.Helper()
	n := st.MakeNode().Name(name).UID(name).Label(v1.LabelTopologyZone, zone).Label(v1.LabelHostname, name).
		Capacity(map[v1.ResourceName]string{"cpu": cpu, "memory": "64Gi", "pods": "110"}).Obj()
	if change != nil {
		change(n)
	}
	_, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	require.NoError(t, err)
}

// pod makes a pod of an app that asks for some CPU.
func (c *cluster) pod(t *testing.T, name, app, cpu string, change func(*v1.Pod)) {
	t.Helper()
	p := st.MakePod().Namespace("default").Name(name).UID(name).Label("app", app).SchedulerName("default-scheduler").
		Req(map[v1.ResourceName]string{"cpu": cpu}).Obj()
	if change != nil {
		change(p)
	}
	c.createPod(t, p)
}

// bound waits until a pod has a node, and returns it.
func (c *cluster) bound(t *testing.T, name string) string {
	t.Helper()
	node := ""
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		pod, err := c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(ct, err)
		node = pod.Spec.NodeName
		require.NotEmpty(ct, node, "%v", pod.Status.Conditions)
	}, time.Minute, 5*time.Millisecond)
	return node
}

// refused waits until a pod has been tried and found no node, and returns why.
func (c *cluster) refused(t *testing.T, name string) string {
	t.Helper()
	message := ""
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		pod, err := c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(ct, err)
		require.Empty(ct, pod.Spec.NodeName)
		require.NotEmpty(ct, pod.Status.Conditions)
		message = pod.Status.Conditions[0].Message
	}, time.Minute, 5*time.Millisecond)
	return message
}

func priority(value int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &value } }

func TestOthersAreKeptOffAndOwnersLetIn(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "4", nil)
	c.reservations.apply(reservation("shop-failover", "web", 2, nil))
	c.reservations.requireSlots(t, "shop-failover", 2, 0)

	for i := range 2 {
		c.pod(t, fmt.Sprintf("batch-%d", i), "batch", "1", nil)
		c.bound(t, fmt.Sprintf("batch-%d", i))
	}
	c.pod(t, "late", "batch", "1", nil)
	require.Contains(t, c.refused(t, "late"), "held for ZoneReservation shop-failover")
	c.pod(t, "web-0", "web", "1", nil)
	require.Equal(t, "n1", c.bound(t, "web-0"))
	c.reservations.requireSlots(t, "shop-failover", 2, 1)
	c.reservations.requireCondition(t, "shop-failover", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)

	// An owner that leaves gives its slot back.
	c.deletePod(t, "web-0")
	c.reservations.requireSlots(t, "shop-failover", 2, 0)
	c.reservations.requireCondition(t, "shop-failover", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	require.Empty(t, c.nodeOf(t, "late"))

	// What is held is free at once when the reservation goes.
	c.reservations.delete("shop-failover")
	require.Equal(t, "n1", c.bound(t, "late"))
	require.Empty(t, c.shared.Drift().Nodes)
}

func TestAChangedReservationTakesEffectAtOnce(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "2", nil)
	c.reservations.apply(reservation("r", "web", 2, nil))
	c.reservations.requireSlots(t, "r", 2, 0)
	c.pod(t, "p", "batch", "1", nil)
	c.refused(t, "p")
	c.reservations.apply(reservation("r", "web", 1, nil))
	c.bound(t, "p")
	c.reservations.requireSlots(t, "r", 1, 0)

	// A pod that becomes an owner is let in.
	c.pod(t, "q", "batch", "1", nil)
	c.refused(t, "q")
	c.reservations.apply(reservation("r", "batch", 1, nil))
	c.bound(t, "q")
}

func TestHeadroomIsLeftAlone(t *testing.T) {
	c := startCluster(t, binds)
	for i := range 3 {
		c.smallNode(t, fmt.Sprintf("n%d", i), string(rune('a'+i)), "2500m", nil)
	}
	c.reservations.apply(reservation("r", "web", 3, nil))
	c.reservations.requireSlots(t, "r", 3, 0)
	for i := range 3 {
		name := fmt.Sprintf("web-%d", i)
		c.pod(t, name, "web", "1", nil)
		c.bound(t, name)
	}
	c.reservations.requireSlots(t, "r", 3, 0)
	c.pod(t, "web-3", "web", "1", nil)
	c.bound(t, "web-3")
	c.reservations.requireSlots(t, "r", 3, 1)

	// What becomes free goes to the headroom, and the pod that used it is like any other from then on.
	c.deletePod(t, "web-0")
	c.reservations.requireSlots(t, "r", 3, 0)
	require.Empty(t, c.shared.Drift().Nodes)
}

func TestGuaranteedSlotsAreUsedFirst(t *testing.T) {
	c := startCluster(t, binds)
	for i := range 3 {
		c.smallNode(t, fmt.Sprintf("n%d", i), string(rune('a'+i)), "8", nil)
	}
	c.reservations.apply(reservation("r", "web", 2, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Mode = v1alpha1.ModeGuarantee
		r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "b", Slots: 2}}
	}))
	c.reservations.requireSlots(t, "r", 2, 0)
	for i := range 2 {
		name := fmt.Sprintf("web-%d", i)
		c.pod(t, name, "web", "1", nil)
		require.Equal(t, "n1", c.bound(t, name), "there its slot is")
	}
	c.reservations.requireSlots(t, "r", 2, 2)
	c.reservations.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	c.pod(t, "web-2", "web", "1", nil)
	c.bound(t, "web-2")
}

func TestOwnersThatMayRunInTheirSlotsOnly(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "8", nil)
	r := reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired })
	c.reservations.apply(r)
	c.reservations.requireSlots(t, "r", 1, 0)
	c.pod(t, "web-0", "web", "1", nil)
	c.bound(t, "web-0")
	c.pod(t, "web-1", "web", "1", nil)
	require.Contains(t, c.refused(t, "web-1"), "no unused slot of ZoneReservation r")
	c.reservations.requireSlots(t, "r", 1, 1)

	// One more slot wakes it.
	*r.Spec.Slots = 2
	c.reservations.apply(r)
	c.bound(t, "web-1")
	c.reservations.requireSlots(t, "r", 2, 2)
}

// TestASlotWhereSpreadWantsThePod: there is free room, but in the zone that spreading forbids.
func TestASlotWhereSpreadWantsThePod(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "8", nil)
	c.smallNode(t, "n2", "b", "1", nil)
	c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "b", Slots: 1}}
	}))
	c.reservations.requireSlots(t, "r", 1, 0)
	spread := func(p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
	}
	c.pod(t, "web-0", "web", "1", spread)
	require.Equal(t, "n1", c.bound(t, "web-0"), "free room comes first")
	c.pod(t, "web-1", "web", "1", spread)
	require.Equal(t, "n2", c.bound(t, "web-1"), "the only zone that it may go to")
	c.reservations.requireSlots(t, "r", 1, 1)
}

func TestPrioritiesAndExemptions(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "1", nil)
	protection := int32(100)
	r := reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Priority = &protection })
	c.reservations.apply(r)
	c.reservations.requireSlots(t, "r", 1, 0)
	c.pod(t, "equal", "batch", "1", priority(100))
	require.Contains(t, c.refused(t, "equal"), "held for ZoneReservation r")
	c.pod(t, "higher", "batch", "1", priority(101))
	c.bound(t, "higher")
	c.reservations.requireSlots(t, "r", 0, 0)
	c.reservations.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)

	// It comes back to the reservation, and not to the pod that waits.
	c.deletePod(t, "higher")
	c.reservations.requireSlots(t, "r", 1, 0)
	require.Empty(t, c.nodeOf(t, "equal"))

	c.pod(t, "agent", "agent", "1", func(p *v1.Pod) { ofDaemonSet(p); onlyOn(p, "n1") })
	c.bound(t, "agent")
	c.deletePod(t, "agent")
	c.reservations.requireSlots(t, "r", 1, 0)
	// Anybody may write an owner reference.
	c.pod(t, "not-pinned", "agent", "1", ofDaemonSet)
	require.Contains(t, c.refused(t, "not-pinned"), "held for ZoneReservation r")
	c.pod(t, "forged", "agent", "1", func(p *v1.Pod) {
		ofDaemonSet(p)
		p.OwnerReferences[0].APIVersion = "example.com/v1"
		onlyOn(p, "n1")
	})
	require.Contains(t, c.refused(t, "forged"), "held for ZoneReservation r")
	critical := *r.DeepCopy()
	highest := int32(1_000_000_000)
	critical.Spec.Priority = &highest
	c.reservations.apply(&critical)
	c.pod(t, "critical", "dns", "1", priority(2_000_000_000))
	c.bound(t, "critical")
}

func ofDaemonSet(p *v1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent-set", Controller: ptr.To(true)}}
}

// onlyOn lets a pod run on one node only, as the DaemonSet controller does.
func onlyOn(p *v1.Pod, node string) {
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}}},
	}}}
}

// TestPreemptionFindsTheSlotsOfVictims: a slot that is used by an owner of a lower priority is not lost to one of a higher.
func TestPreemptionFindsTheSlotsOfVictims(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "1", nil)
	c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired }))
	c.reservations.requireSlots(t, "r", 1, 0)
	c.pod(t, "low", "web", "1", nil)
	c.bound(t, "low")
	c.reservations.requireSlots(t, "r", 1, 1)
	c.pod(t, "high", "web", "1", priority(10))
	require.Equal(t, "n1", c.bound(t, "high"))
	c.reservations.requireSlots(t, "r", 1, 1)
}

// TestPreemptionEvictsNobodyInVain: to evict the pod beside a slot would not help a pod that the slot keeps out.
func TestPreemptionEvictsNobodyInVain(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "2", nil)
	protection := int32(1000)
	c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Priority = &protection }))
	c.reservations.requireSlots(t, "r", 1, 0)
	c.pod(t, "small", "batch", "1", nil)
	c.bound(t, "small")
	c.pod(t, "large", "batch", "2", priority(10))
	c.refused(t, "large")
	c.pod(t, "middle", "batch", "1", priority(10))
	require.Equal(t, "n1", c.bound(t, "middle"), "in the place of a pod of a lower priority")
	c.reservations.requireSlots(t, "r", 1, 0)
	_, err := c.client.CoreV1().Pods("default").Get(t.Context(), "small", metav1.GetOptions{})
	require.Error(t, err)
	require.Empty(t, c.nodeOf(t, "large"))
}

func TestSlotsMoveOffANodeThatIsCordoned(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "1", nil)
	c.reservations.apply(reservation("r", "web", 1, nil))
	c.reservations.requireSlots(t, "r", 1, 0)
	c.smallNode(t, "n2", "a", "1", nil)
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	node = node.DeepCopy()
	node.Spec.Unschedulable = true
	_, err = c.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		zones := c.reservations.status("r").Zones
		require.Len(ct, zones, 1)
		require.Equal(ct, []v1alpha1.ReservationNodeStatus{{Name: "n2", Slots: 1}}, zones[0].Nodes)
	}, time.Minute, 5*time.Millisecond)

	// A node that goes takes its slot with it, and the reservation says so.
	require.NoError(t, c.client.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	require.Contains(t, c.reservations.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodesLost), "n2")
	c.smallNode(t, "n3", "a", "1", nil)
	c.reservations.requireSlots(t, "r", 1, 0)
	c.reservations.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsDesired)
}

func TestAnExpiredReservationHoldsNothing(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "2", nil)
	r := reservation("r", "web", 2, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Hour} })
	c.reservations.apply(r)
	c.reservations.requireSlots(t, "r", 2, 0)
	c.pod(t, "web", "web", "1", nil)
	c.bound(t, "web")
	c.pod(t, "p", "batch", "1", nil)
	c.refused(t, "p")
	r.Spec.TTL.Duration = time.Millisecond
	c.reservations.apply(r)
	c.bound(t, "p")
	c.reservations.requireCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionTrue, v1alpha1.ReasonExpired)
	require.Equal(t, v1alpha1.SlotCounts{}, c.reservations.status("r").Slots)
	require.Equal(t, "n1", c.nodeOf(t, "web"), "nobody is evicted")

	// More time revives it.
	c.deletePod(t, "p")
	r.Spec.TTL.Duration = time.Hour
	c.reservations.apply(r)
	c.reservations.requireCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionFalse, v1alpha1.ReasonNotExpired)
	c.reservations.requireSlots(t, "r", 1, 0)
}
