package survival_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// TestHold has a small cluster for each thing that decides what is held. The nodes a, b and c have 8 CPUs.
func TestHold(t *testing.T) {
	onlyA := func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} }
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		asked   func(s *v1alpha1.ZoneSurvival)
		options survival.HoldOptions
		// want is the slots in each zone, by workload, those that pods use among them; slot is "cpu" of the first.
		want     map[string]map[string]int32
		reason   string
		contains string
	}{
		{
			name:    "one slot for all losses",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "b") },
			want:    map[string]map[string]int32{"web 2": {"a": 1, "b": 1, "c": 1}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "a share in each zone",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a", "b", "b", "c", "c") },
			want:    map[string]map[string]int32{"web 2": {"a": 3, "b": 3, "c": 3}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "each workload has slots of its own size",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "2", nil, "a", "b")
				c.Running("api", "3", nil, "a", "a")
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Workloads = protecting("web", "api").Spec.Workloads },
			want: map[string]map[string]int32{
				"web 2": {"a": 1, "b": 1, "c": 1}, "api 3": {"a": 1, "b": 1, "c": 1},
			},
			reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "pods that are all in one zone, which alone may be lost",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a", "a") },
			asked:   onlyA,
			want:    map[string]map[string]int32{"web 2": {"b": 2, "c": 1}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "no pod runs",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "") },
			reason:  v1alpha1.ReasonRoomHeld,
		},
		{
			name: "weights of a policy divide the slots",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a", "a", "a", "a", "b", "b", "c", "c")
				c.Policy("web", func(p *v1alpha1.ZoneSpreadPolicySpec) {
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To[int32](2)}}
				})
			},
			want: map[string]map[string]int32{"web 1": {"a": 6, "b": 4, "c": 4}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "a zone that a policy forbids has no slots",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a", "b")
				c.Policy("web", func(p *v1alpha1.ZoneSpreadPolicySpec) {
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "c", Weight: ptr.To[int32](0)}}
				})
			},
			want: map[string]map[string]int32{"web 1": {"a": 2, "b": 2}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "a zone in which the pods may not be has no slots",
			cluster: func(c *clitest.Cluster) {
				for _, node := range []string{"a", "b"} {
					node := c.Node(node+"2", node, "8", "32Gi")
					node.Labels["pool"] = "web"
				}
				c.Running("web", "1", func(t *v1.PodTemplateSpec) { t.Spec.NodeSelector = map[string]string{"pool": "web"} }, "a2", "b2")
			},
			want: map[string]map[string]int32{"web 1": {"a": 2, "b": 2}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "a failed zone whose nodes stay keeps its slots",
			cluster: func(c *clitest.Cluster) {
				for _, node := range c.Objects() {
					if n, ok := node.(*v1.Node); ok && n.Name == "a" {
						n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
						n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}}
					}
				}
				c.Running("web", "1", nil, "b", "b", "b", "c", "c", "c")
			},
			want: map[string]map[string]int32{"web 1": {"a": 3, "b": 3, "c": 3}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "nothing is held for pods whose volumes no other zone has",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(t *v1.PodTemplateSpec) { t.Spec.Volumes = clitest.Claiming("disk") }, "a")
				c.ZonalVolume("disk", "a")
			},
			reason: v1alpha1.ReasonRoomHeld, contains: "1 pod of Deployment/web in namespace shop, which may run in no other zone",
		},
		{
			name: "pods of an older reservation have their own room",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "4", nil, "a")
				c.Running("api", "1", nil, "a")
				c.Reservation("slots", "web", "4", 0, map[string]int64{"c": 1})
			},
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Workloads = protecting("web", "api").Spec.Workloads
				onlyA(s)
			},
			want: map[string]map[string]int32{"api 1": {"b": 1}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "no more than a fraction is held",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a") },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.MaxHeldFraction = resource.NewMilliQuantity(100, resource.DecimalSI)
				onlyA(s)
			}, // 2.4 CPUs
			want: map[string]map[string]int32{"web 2": {"c": 1}}, reason: v1alpha1.ReasonHeldFractionReached,
		},
		{
			name:    "any node: as many as the node with most pods has, on no node more than that with its pods",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a", "b", "c") },
			asked:   func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{Nodes: ptr.To[int32](1)} },
			want:    map[string]map[string]int32{"web 2 at most 2": {"a": 2, "b": 2, "c": 2}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "pods that may not share a node",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", func(t *v1.PodTemplateSpec) {
					t.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
						{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
					}}}
				}, "a", "b")
			},
			want: map[string]map[string]int32{"web 1 at most 1": {"a": 1, "b": 1, "c": 1}}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "something could not be read",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a") },
			options: survival.HoldOptions{Missing: []string{"the controller may not list services"}},
			reason:  v1alpha1.ReasonSnapshotIncomplete,
		},
		{
			name:    "a selector is invalid",
			cluster: func(*clitest.Cluster) {},
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
			},
			reason: v1alpha1.ReasonInvalid,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, asked := clitest.Zones("a", "b", "c"), holding("web")
			tc.cluster(c)
			if tc.asked != nil {
				tc.asked(asked)
			}
			var status v1alpha1.ZoneSurvivalStatus
			room := survival.Hold(c.Objects(), asked, tc.options, &status)
			require.Equal(t, tc.want, slotsOf(room.Changed))
			require.Empty(t, room.Unwanted)
			condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld)
			require.Equal(t, tc.reason, condition.Reason, condition.Message)
			require.Equal(t, tc.reason == v1alpha1.ReasonRoomHeld, condition.Status == metav1.ConditionTrue)
			require.Contains(t, condition.Message, tc.contains)
		})
	}
}

// slotsOf are the slots of reservations, by the owners' label app and the size.
func slotsOf(reservations []*v1alpha1.ZoneReservation) map[string]map[string]int32 {
	var out map[string]map[string]int32
	for _, r := range reservations {
		if out == nil {
			out = map[string]map[string]int32{}
		}
		key := r.Spec.Owners[0].PodSelector.MatchLabels["app"] + " " + r.Spec.Slot.Requests.Cpu().String()
		if r.Spec.SlotsPerNode != nil {
			key += " at most " + resource.NewQuantity(int64(*r.Spec.SlotsPerNode), resource.DecimalSI).String()
		}
		out[key] = map[string]int32{}
		for _, z := range r.Spec.Zones {
			out[key][z.Name] = z.Slots
		}
	}
	return out
}

// TestHeldRoomFollowsTheWorkload: what is there stays while pods come and go, is written again when the workload is
// another size, and is deleted when nothing is to be held.
func TestHeldRoomFollowsTheWorkload(t *testing.T) {
	c, asked := clitest.Zones("a", "b", "c"), holding("web")
	c.Running("web", "1", nil, "a", "a", "b", "b", "c", "c")
	room := hold(c, asked)
	require.Len(t, room.Changed, 1)
	adopt(c, room.Changed[0])
	requireUnchanged(t, hold(c, asked), "nothing has changed")

	for _, pod := range c.Pods()[:2] { // two pods of zone a are being replaced
		pod.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
	}
	requireUnchanged(t, hold(c, asked), "slots stay while fewer pods run than the Deployment wants")

	moved := clitest.Zones("a", "b", "c")
	moved.Running("web", "1", nil, "b", "b", "b", "c", "c", "c")
	adopt(moved, room.Changed[0])
	requireUnchanged(t, hold(moved, asked), "the same pods in other zones need the same slots")

	smaller := clitest.Zones("a", "b", "c")
	smaller.Running("web", "1", nil, "b", "c")
	adopt(smaller, room.Changed[0])
	again := hold(smaller, asked)
	require.Equal(t, map[string]map[string]int32{"web 1": {"a": 1, "b": 1, "c": 1}}, slotsOf(again.Changed))

	gone := clitest.Zones("a", "b", "c")
	adopt(gone, room.Changed[0])
	require.Len(t, hold(gone, asked).Unwanted, 1, "the workload is gone")
	asked.Spec.Hold = false
	require.Len(t, hold(c, asked).Unwanted, 1, "nothing is to be held")
}

// TestHeldZoneReturns: a zone keeps its slots while its nodes are deleted and come back, those of other pods first, for
// as long as it counts. One that the pods may not have any more has none, whatever counts.
func TestHeldZoneReturns(t *testing.T) {
	inPool := func(pool string) func(*v1.PodTemplateSpec) {
		return func(t *v1.PodTemplateSpec) { t.Spec.NodeSelector = map[string]string{"pool": pool} }
	}
	in := func(pool string, zones ...string) *clitest.Cluster {
		c := &clitest.Cluster{Snapshot: snapshot.New(clitest.Now)}
		for _, zone := range zones {
			c.Node(zone, zone, "8", "32Gi").Labels["pool"] = pool
		}
		return c
	}
	asked := holding("web")
	before := in("web", "a", "b", "c")
	before.Running("web", "1", inPool("web"), "a", "a", "b", "c")
	room := hold(before, asked)
	require.Equal(t, map[string]map[string]int32{"web 1": {"a": 2, "b": 2, "c": 2}}, slotsOf(room.Changed))
	reservation := room.Changed[0]
	require.Equal(t, map[string][]string{reservation.Name: {"a", "b", "c"}}, room.Zones)

	lost := map[string]map[string]int32{"web 1": {"a": 4, "b": 4}}
	counts := map[string][]string{reservation.Name: {"a", "b", "c"}}
	for _, tc := range []struct {
		name     string
		returned func(*clitest.Cluster)
		pool     string
		counts   map[string][]string
		want     map[string]map[string]int32 // nil if nothing changes
	}{
		{name: "no node is back", counts: counts},
		{name: "a node of other pods is back", returned: func(c *clitest.Cluster) { c.Node("c", "c", "8", "32Gi") }, counts: counts},
		{name: "it does not count any more", returned: func(c *clitest.Cluster) { c.Node("c", "c", "8", "32Gi") }, want: lost},
		{name: "another reservation's zone counts", counts: map[string][]string{"other": {"c"}}, want: lost},
		{name: "the pods go to other nodes now", pool: "new", counts: counts, want: lost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pool := cmp.Or(tc.pool, "web")
			c := in(pool, "a", "b")
			if tc.returned != nil {
				tc.returned(c)
			}
			c.Running("web", "1", inPool(pool), "a", "a", "b", "b")
			adopt(c, reservation)
			var status v1alpha1.ZoneSurvivalStatus
			room := survival.Hold(c.Objects(), asked, survival.HoldOptions{Zones: tc.counts}, &status)
			require.Equal(t, tc.want, slotsOf(room.Changed))
			require.Equal(t, []string{"a", "b"}, slices.Sorted(slices.Values(room.Zones[reservation.Name])))
		})
	}
}

// TestHeldSaysWhatIsMissing: the status follows what the scheduler says of the reservations.
func TestHeldSaysWhatIsMissing(t *testing.T) {
	c, asked := clitest.Zones("a", "b", "c"), holding("web")
	c.Running("web", "2", nil, "a", "a", "b", "b")
	r := hold(c, asked).Changed[0]
	says := func(observed int64, zones ...v1alpha1.ReservationZoneStatus) (v1alpha1.ZoneSurvivalStatus, *metav1.Condition) {
		has := r.DeepCopy()
		has.Status.ObservedGeneration, has.Status.Zones = observed, zones
		for _, z := range zones {
			has.Status.Slots.Desired += z.Desired
			has.Status.Slots.Held += z.Held
			has.Status.Slots.Used += z.Used
		}
		cluster := zonesWith(c, has)
		var status v1alpha1.ZoneSurvivalStatus
		requireUnchanged(t, survival.Hold(cluster.Objects(), asked, survival.HoldOptions{}, &status))
		return status, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld)
	}
	zone := func(name string, desired, held, used int64) v1alpha1.ReservationZoneStatus {
		return v1alpha1.ReservationZoneStatus{Name: name, SlotCounts: v1alpha1.SlotCounts{Desired: desired, Held: held, Used: used}}
	}
	_, held := says(0)
	require.Equal(t, v1alpha1.ReasonFilling, held.Reason)

	status, held := says(1, zone("a", 2, 2, 2), zone("b", 2, 2, 2), zone("c", 2, 2, 0))
	require.Equal(t, metav1.ConditionTrue, held.Status, held.Message)
	require.Equal(t, "4", status.Held.Cpu().String())
	require.Equal(t, []v1alpha1.SurvivalReservation{{Name: r.Name, SlotCounts: v1alpha1.SlotCounts{Desired: 6, Held: 6, Used: 4}}}, status.Reservations)
	require.Empty(t, status.Missing)

	onGone := zone("c", 2, 2, 0)
	onGone.Nodes = []v1alpha1.ReservationNodeStatus{{Name: "c", Slots: 1}, {Name: "gone", Slots: 1}}
	_, held = says(1, zone("a", 2, 2, 2), zone("b", 2, 2, 2), onGone)
	require.Equal(t, metav1.ConditionFalse, held.Status, "what was held there is not held")
	require.Contains(t, held.Message, "node gone is gone")

	status, held = says(1, zone("a", 2, 2, 2), zone("b", 2, 2, 2), zone("c", 2, 1, 0))
	require.Equal(t, v1alpha1.ReasonRoomMissing, held.Reason)
	require.Len(t, status.Missing, 1)
	require.Equal(t, "c 1 2", strings.Join([]string{status.Missing[0].Zone, resource.NewQuantity(status.Missing[0].Pods, resource.DecimalSI).String(), status.Missing[0].Requests.Cpu().String()}, " "))
}

// TestForeignReservation: one of that name that belongs to something else is left alone.
func TestForeignReservation(t *testing.T) {
	c, asked := clitest.Zones("a", "b", "c"), holding("web")
	c.Running("web", "2", nil, "a", "b")
	foreign := hold(c, asked).Changed[0].DeepCopy()
	foreign.OwnerReferences, foreign.Spec.Owners[0].PodSelector.MatchLabels = nil, map[string]string{"app": "other"}
	c.Add(foreign)
	var status v1alpha1.ZoneSurvivalStatus
	requireUnchanged(t, survival.Hold(c.Objects(), asked, survival.HoldOptions{}, &status))
	require.Equal(t, v1alpha1.ReasonReservationNotOwned, status.Conditions[0].Reason)
}

// TestReservationNames: every workload of every ZoneSurvival has a name of its own, which the API server takes.
func TestReservationNames(t *testing.T) {
	seen := map[string]bool{}
	for _, survivalName := range []string{"services", strings.Repeat("x", 250) + "aa", strings.Repeat("x", 250) + "ab"} {
		for _, app := range []string{"web", "web.v2", strings.Repeat("y", 200)} {
			c, asked := clitest.Zones("a", "b", "c"), holding("web")
			asked.Name = survivalName
			c.Running(app, "2", func(t *v1.PodTemplateSpec) { t.Labels["app"] = "web" }, "a", "b")
			name := hold(c, asked).Changed[0].Name
			require.LessOrEqual(t, len(name), 253)
			require.False(t, seen[name], "%s twice", name)
			seen[name] = true
		}
	}
}

// zonesWith is a cluster with a further reservation.
func zonesWith(c *clitest.Cluster, r *v1alpha1.ZoneReservation) *clitest.Cluster {
	out := clitest.New()
	out.Add(c.Objects()...)
	adopt(out, r)
	return out
}
