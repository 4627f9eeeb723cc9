package status_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/test/clitest"
)

func build(c *clitest.Cluster, namespace string) *status.Report {
	return status.Build(census.Take(c.Snapshot), namespace)
}

// text is what a user reads of a report.
func text(t *testing.T, report *status.Report, style show.Style) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, report.Text(&out, style, false))
	return out.String()
}

func TestGolden(t *testing.T) {
	report := build(clitest.Story(), "")
	for name, style := range map[string]show.Style{"story.txt": {}, "story-40.txt": {Width: 40}, "story-color.txt": {Color: true, Width: 200}} {
		t.Run(name, func(t *testing.T) { clitest.Golden(t, name, text(t, report, style)) })
	}
	for _, format := range []string{show.JSON, show.YAML} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, show.Object(&out, format, "Status", report))
			clitest.Golden(t, "story."+format, out.String())
		})
	}
}

func TestStatesOfPolicies(t *testing.T) {
	condition := func(kind string, s metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: s, Reason: reason, Message: reason}
	}
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	for _, tc := range []struct {
		want       string
		observed   int64
		conditions []metav1.Condition
	}{
		{status.Unknown, 0, nil},
		{status.OK, 1, []metav1.Condition{accepted}},
		{status.Unknown, 0, []metav1.Condition{accepted}},
		{status.Rejected, 1, []metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid")}},
		{status.Infeasible, 1, []metav1.Condition{accepted, condition(v1alpha1.ConditionInfeasible, metav1.ConditionTrue, "NoZones")}},
		{status.Violated, 1, []metav1.Condition{accepted, condition(v1alpha1.ConditionSatisfied, metav1.ConditionFalse, v1alpha1.ReasonSkewExceeded)}},
		{status.Waiting, 1, []metav1.Condition{accepted, condition(v1alpha1.ConditionSatisfied, metav1.ConditionFalse, v1alpha1.ReasonPodsWaiting)}},
	} {
		c := clitest.New()
		p := c.Policy("web", nil)
		p.Status.ObservedGeneration, p.Status.Conditions = tc.observed, tc.conditions
		require.Equal(t, tc.want, build(c, "").Policies[0].State, tc)
	}
}

func TestStatesOfReservations(t *testing.T) {
	for want, condition := range map[string]metav1.Condition{
		status.Rejected: {Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse},
		status.Expired:  {Type: v1alpha1.ConditionExpired, Status: metav1.ConditionTrue},
		status.Filling:  {Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse},
		status.OK:       {Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue},
	} {
		c := clitest.New()
		r := c.Reservation("r", "web", "1", 0, nil)
		r.Status.Conditions = []metav1.Condition{condition}
		if condition.Type != v1alpha1.ConditionAccepted {
			r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue})
		}
		require.Equal(t, want, build(c, "").Reservations[0].State)
	}
	c := clitest.New()
	c.Reservation("r", "web", "1", 0, nil).Status = v1alpha1.ZoneReservationStatus{}
	require.Equal(t, status.Unknown, build(c, "").Reservations[0].State)
}

func TestStatesOfGangs(t *testing.T) {
	labels := map[string]string{"scheduling.x-k8s.io/pod-group": "gang"}
	for _, tc := range []struct {
		name           string
		min            int32
		bound, waiting int
		state, message string
	}{
		{"whole", 2, 2, 0, status.OK, ""},
		{"more than whole", 2, 2, 1, status.OK, ""},
		{"waits for room", 2, 0, 2, status.Waiting, ""},
		{"waits for members", 3, 0, 1, status.Waiting, "1 of 3 members exist"},
		{"bound in part", 2, 1, 1, status.Partial, ""},
		{"bound in part, members gone", 3, 1, 0, status.Partial, "1 of 3 members exist"},
		{"no PodGroup", 0, 0, 2, status.Waiting, "its PodGroup does not exist"},
		{"no pods", 2, 0, 0, status.Waiting, "0 of 2 members exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node", "a", "8", "8Gi")
			if tc.min > 0 {
				c.Gang("gang", tc.min)
			}
			for range tc.bound {
				c.Pod("bound", "node", clitest.Plain("1", "1Gi"), labels)
			}
			for range tc.waiting {
				c.Pod("waiting", "", corev1.PodSpec{}, labels)
			}
			gangs := build(c, clitest.Namespace).Gangs
			require.Len(t, gangs, 1)
			require.Equal(t, tc.state, gangs[0].State)
			require.Equal(t, tc.message, gangs[0].Message)
		})
	}
}

func TestWhatCouldNotBeReadIsSaid(t *testing.T) {
	c := clitest.New()
	c.Pod("waiting", "", corev1.PodSpec{}, map[string]string{"scheduling.x-k8s.io/pod-group": "gang"})
	c.Missing = []snapshot.Missing{
		{Resource: "podgroups.scheduling.x-k8s.io", Reason: snapshot.NotInstalled},
		{Resource: "zonereservations.zonewise.dev", Reason: snapshot.Forbidden},
	}
	report := build(c, "")
	require.Equal(t, []string{
		"podgroups.scheduling.x-k8s.io are not installed in this cluster",
		"you may not list zonereservations.zonewise.dev, they are left out",
	}, report.Notes)
	require.Equal(t, "its PodGroup could not be read", report.Gangs[0].Message)
}

func TestANamespaceHasItsOwnOnly(t *testing.T) {
	report := build(clitest.Story(), "elsewhere")
	require.Empty(t, report.Policies)
	require.Empty(t, report.Gangs)
	require.Zero(t, report.Waiting)
	require.Len(t, report.Reservations, 1, "they are of no namespace")
}

// TestRoomOfSurvivals: what is held and missing is in the table, and the reason below it.
func TestRoomOfSurvivals(t *testing.T) {
	c := clitest.New()
	c.Add(&v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Status: v1alpha1.ZoneSurvivalStatus{
		ComputedAt: metav1.NewTime(clitest.Now.Add(-90 * time.Second)), Pods: 6, Held: clitest.Requests("3", "6Gi"),
		Missing: []v1alpha1.SurvivalMissing{{Zone: "a", Pods: 1}, {Zone: "b", Pods: 2}}, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse, Message: "room is missing"},
		},
	}})
	report := build(c, "")
	require.Equal(t, []string{status.OK, "room is missing"}, []string{report.Survivals[0].State, report.Survivals[0].Message})
	shown := text(t, report, show.Style{})
	require.Regexp(t, `(?m)^ *services +OK +6 +90s +3 cpu, 6Gi memory, 3 pods missing`, shown)
	require.Contains(t, shown, "services: room is missing")
}

func TestStatesOfSurvivals(t *testing.T) {
	answer := func(s metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: s, Message: "why"}}
	}
	for _, tc := range []struct {
		state, message string
		observed       int64
		conditions     []metav1.Condition
	}{
		{status.Unknown, "no controller has answered yet", 0, nil},
		{status.OK, "", 2, answer(metav1.ConditionTrue)},
		{status.Breaks, "why", 2, answer(metav1.ConditionFalse)},
		{status.Unknown, "why", 2, answer(metav1.ConditionUnknown)},
		{status.Breaks, "too few", 2, append(answer(metav1.ConditionTrue), metav1.Condition{Type: v1alpha1.ConditionServes, Status: metav1.ConditionFalse, Message: "too few"})},
		{status.OK, "", 2, append(answer(metav1.ConditionTrue), metav1.Condition{Type: v1alpha1.ConditionServes, Status: metav1.ConditionTrue, Message: "enough"})},
		{status.Unknown, "the status is of generation 1, the spec of 2", 1, answer(metav1.ConditionTrue)},
	} {
		c := clitest.New()
		c.Add(&v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services", Generation: 2}, Status: v1alpha1.ZoneSurvivalStatus{
			ObservedGeneration: tc.observed, ComputedAt: metav1.NewTime(clitest.Now.Add(-90 * time.Second)), Pods: 6, Conditions: tc.conditions,
			Losses: []v1alpha1.SurvivalLoss{{Zone: "a", Displaced: 2}, {Zone: "b", Displaced: 3, Waiting: 1}},
		}})
		report := build(c, "")
		require.Len(t, report.Survivals, 1)
		require.Equal(t, []string{tc.state, tc.message}, []string{report.Survivals[0].State, report.Survivals[0].Message})
		require.Equal(t, map[bool]string{true: "<unknown>", false: "90s"}[tc.conditions == nil], report.Survivals[0].Age())
		if tc.state == status.Breaks {
			shown := text(t, report, show.Style{})
			require.Regexp(t, `(?m)^ *services +Breaks +6 +90s +- +a 0/2, b 1/3$`, shown)
			require.Equal(t, tc.message == "why", strings.Contains(shown, "services: why"), shown)
		}
	}
}

// TestStatesOfRebalances: what stands in the way of a plan comes before what the plan says.
func TestStatesOfRebalances(t *testing.T) {
	condition := func(kind string, s metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: s, Reason: reason, Message: kind + " " + reason}
	}
	ready := condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPlanning)
	drifted := condition(v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonMovesPlanned)
	for _, tc := range []struct {
		state, message string
		observed       int64
		conditions     []metav1.Condition
	}{
		{status.Unknown, "no controller has answered yet", 0, nil},
		{status.OK, "", 2, []metav1.Condition{ready, condition(v1alpha1.ConditionBalanced, metav1.ConditionTrue, v1alpha1.ReasonBalanced)}},
		{status.Drifted, "Balanced MovesPlanned", 2, []metav1.Condition{ready, drifted}},
		{status.Unknown, "the status is of generation 1, the spec of 2", 1, []metav1.Condition{ready, drifted}},
		{status.Stopped, "Stopped MovesFailed", 2, []metav1.Condition{ready, drifted, condition(v1alpha1.ConditionStopped, metav1.ConditionTrue, v1alpha1.ReasonMovesFailed)}},
		{status.Rejected, "Ready Invalid", 2, []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalid), drifted}},
		{status.Unknown, "Ready Settling", 2, []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSettling), drifted}},
	} {
		c := clitest.New()
		c.Add(&v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "spread", Generation: 2}, Status: v1alpha1.ZoneRebalanceStatus{
			ObservedGeneration: tc.observed, Conditions: tc.conditions, Excess: 4, Planned: 2,
			Moves: []v1alpha1.RebalanceMove{{State: v1alpha1.MoveMoved}, {State: v1alpha1.MoveEvicted}},
			Plan:  []v1alpha1.PlannedMove{{MovedPod: v1alpha1.MovedPod{Namespace: "shop", Name: "web-1", From: "a", To: []string{"b"}}, Batch: 1, Rules: "a rule"}},
		}})
		report := build(c, "")
		require.Equal(t, []string{tc.state, tc.message}, []string{report.Rebalances[0].State, report.Rebalances[0].Message})
		shown := text(t, report, show.Style{})
		require.Regexp(t, `(?m)^ *spread +`+tc.state+` +Plan +4 +2 +1$`, shown)
		require.Regexp(t, `(?m)^ *shop/web-1 +spread +1 +a +b +a rule$`, shown)
	}
}

// TestOldAnswersAreNoAnswers: who looks at a cluster whose controller died yesterday is not told that all is well.
func TestOldAnswersAreNoAnswers(t *testing.T) {
	for age, want := range map[time.Duration][]string{
		3 * time.Hour:  {status.OK, ""},
		26 * time.Hour: {status.Unknown, "the answer is 26h old: no controller has looked at the cluster since"},
	} {
		c := clitest.New()
		c.Add(&v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Status: v1alpha1.ZoneSurvivalStatus{
			ComputedAt: metav1.NewTime(clitest.Now.Add(-age)), Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue}},
		}})
		s := build(c, "").Survivals[0]
		require.Equal(t, want, []string{s.State, s.Message})
	}
}
