package survival_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// TestHold has a small cluster for each thing that decides what is held. The nodes a, b and c have 8 CPUs.
func TestHold(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		asked   func(s *v1alpha1.ZoneSurvival)
		options survival.Options
		// want is what is asked for, in CPUs on the nodes; missing is "zone pods requests".
		want    map[string]string
		missing []string
		reason  string
	}{
		{
			name:    "one node for all losses",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "2", nil, "a", "b") },
			want:    map[string]string{"c": "2"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "a share in each zone",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "2", nil, "a", "a", "b", "b", "c", "c") },
			want:    map[string]string{"a": "6", "b": "6", "c": "6"}, reason: v1alpha1.ReasonFilling, // beside the two pods there
		},
		{
			name:    "no pod runs",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "2", nil, "") },
			reason:  v1alpha1.ReasonRoomHeld,
		},
		{
			name: "the room of pods of a lower priority is asked for, and missing until they leave",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", priority(100), "a")
				deploy(c, "batch", "7", nil, "b", "c")
			},
			want: map[string]string{"b": "2"}, missing: []string{"b 1 cpu=2 memory=1Gi"}, reason: v1alpha1.ReasonRoomMissing,
		},
		{
			name: "that of a DaemonSet's pods is not",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				for _, node := range []string{"b", "c"} {
					c.Pod("agent-"+node, node, clitest.Plain("7", "1Gi"), map[string]string{"app": "agent"}).OwnerReferences = []metav1.OwnerReference{
						{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: ptr.To(true)},
					}
				}
			},
			missing: []string{" 1 cpu=2 memory=1Gi"}, reason: v1alpha1.ReasonRoomMissing,
		},
		{
			name: "what other reservations hold is taken",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "4", nil, "a")
				c.Reservation("slots", "other", "1", 0, map[string]int64{"b": 5}).Name = "slots"
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"c": "4"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "amounts as well",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "4", nil, "a")
				c.Amounts("amounts", "other", map[string]string{"c": "5"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"b": "4"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "pods of an older reservation have their own room",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "4", nil, "a")
				deploy(c, "api", "1", nil, "a")
				c.Amounts("amounts", "web", map[string]string{"c": "5"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Workloads = protecting("web", "api").Spec.Workloads
				s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}}
			},
			want: map[string]string{"b": "1"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name:    "no more than a fraction is held",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "2", nil, "a", "a") },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.MaxHeldFraction = resource.NewMilliQuantity(100, resource.DecimalSI)
			}, // 2.4 CPUs
			want: map[string]string{"b": "2"}, missing: []string{"b 1 cpu=2 memory=1Gi"}, reason: v1alpha1.ReasonHeldFractionReached,
		},
		{
			name: "a node that may take no pods holds nothing",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				c.Node("b2", "b", "64", "256Gi").Spec.Unschedulable = true
				own(c, nil, map[string]string{"b2": "2"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"b": "2"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "what serves stays where it is",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				own(c, nil, map[string]string{"c": "2"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"c": "2"}, reason: v1alpha1.ReasonRoomHeld,
		},
		{
			name: "what its pods have taken is no longer unused",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a", "c")
				own(c, nil, map[string]string{"c": "2"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"b": "2"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "a pod whose policy gives way uses what is held, although another node fits it more tightly",
			cluster: func(c *clitest.Cluster) {
				c.Node("c2", "c", "64", "256Gi")
				deploy(c, "web", "2", nil, "a", "c")
				deploy(c, "batch", "7", nil, "b")
				c.Policy("web", nil)
				own(c, nil, map[string]string{"c2": "2"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"c2": "2"}, reason: v1alpha1.ReasonRoomHeld,
		},
		{
			name: "much more than is needed is given up",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				own(c, nil, map[string]string{"b": "6", "c": "6"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"b": "2"}, reason: v1alpha1.ReasonFilling,
		},
		{
			name: "the scheduler does not hold all of it",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				own(c, &metav1.Condition{
					Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeldFractionReached, Message: "capped",
				}, map[string]string{"c": "2"})
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  map[string]string{"c": "2"}, reason: v1alpha1.ReasonHeldFractionReached,
		},
		{
			name: "a reservation of that name is not its own",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "2", nil, "a")
				own(c, nil, map[string]string{"c": "2"}).OwnerReferences = nil
			},
			reason: v1alpha1.ReasonReservationNotOwned,
		},
		{
			name:    "something could not be read",
			cluster: func(c *clitest.Cluster) { own(c, nil, map[string]string{"c": "2"}) },
			options: survival.Options{Missing: []string{"the controller may not list services"}},
			want:    map[string]string{"c": "2"}, reason: v1alpha1.ReasonSnapshotIncomplete,
		},
		{
			name:    "a selector is invalid",
			cluster: func(c *clitest.Cluster) { own(c, nil, map[string]string{"c": "2"}) },
			asked: func(s *v1alpha1.ZoneSurvival) {
				s.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
			},
			want: map[string]string{"c": "2"}, reason: v1alpha1.ReasonInvalid,
		},
		{
			name:    "nothing is to be held",
			cluster: func(c *clitest.Cluster) { own(c, nil, map[string]string{"c": "2"}) },
			asked:   func(s *v1alpha1.ZoneSurvival) { s.Spec.Hold = false },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, asked := zones(), holding("web")
			tc.cluster(c)
			if tc.asked != nil {
				tc.asked(asked)
			}
			tc.options.Sim.Now = clitest.Now
			var is v1alpha1.ZoneSurvivalStatus
			room, err := survival.Hold(t.Context(), c.Objects(), asked, tc.options, &is)
			require.NoError(t, err)
			condition := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionHeld)
			if tc.reason == "" {
				require.Nil(t, condition)
			} else {
				require.Equal(t, tc.reason, condition.Reason, condition.Message)
				require.Equal(t, tc.reason == v1alpha1.ReasonRoomHeld, condition.Status == metav1.ConditionTrue)
			}
			want := map[string]string{}
			if room.Wanted != nil {
				require.Equal(t, "survival-services", room.Wanted.Name)
				for _, n := range room.Wanted.Spec.Nodes {
					want[n.Name] = n.Amount.Cpu().String()
				}
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			require.Equal(t, tc.want, want)
			var missing []string
			for _, m := range is.Missing {
				missing = append(missing, fmt.Sprintf("%s %d cpu=%s memory=%s", m.Zone, m.Pods, m.Requests.Cpu(), m.Requests.Memory()))
			}
			require.Equal(t, tc.missing, missing)
		})
	}
}

// own adds the reservation of the ZoneSurvival, which holds CPUs and 1Gi on nodes, with a condition in place of Ready
// if there is one.
func own(c *clitest.Cluster, instead *metav1.Condition, cpus map[string]string) *v1alpha1.ZoneReservation {
	r := c.Amounts("survival-services", "web", cpus)
	r.Spec.Priority = priorityOf(10)
	for i := range r.Spec.Nodes {
		n := &r.Spec.Nodes[i]
		n.Amount[v1.ResourceMemory] = resource.MustParse("1Gi")
	}
	if instead != nil {
		r.Status.Conditions = []metav1.Condition{*instead}
	}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "zonewise.dev/v1alpha1", Kind: "ZoneSurvival", Name: "services", UID: "services", Controller: ptr.To(true)}}
	return r
}

// TestReservationName: every ZoneSurvival has a name of its own for its reservation, which the API server takes.
func TestReservationName(t *testing.T) {
	require.Equal(t, "survival-services", survival.ReservationName("services"))
	long := strings.Repeat("x", 250)
	require.Len(t, survival.ReservationName(long+"aa"), 253)
	require.NotEqual(t, survival.ReservationName(long+"aa"), survival.ReservationName(long+"ab"))
}
