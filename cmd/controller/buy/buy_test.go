package buy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestWhatIsNotSeenStays: while the objects cannot be read nothing is asked of the API server, so nothing is withdrawn.
func TestWhatIsNotSeenStays(t *testing.T) {
	for _, resource := range []string{
		"nodes", "pods", "zonereservations.zonewise.dev", "zonesurvivals.zonewise.dev",
		"zonespreadpolicies.zonewise.dev",
	} {
		for _, reason := range []string{snapshot.Forbidden, snapshot.Unreadable} {
			c := New(parts.Shared{CPUFraction: 1}) // has no client
			cluster := snapshot.New(start)
			cluster.Missing = []snapshot.Missing{{Resource: resource, Reason: reason}}
			next, err := c.Turn(t.Context(), func() *snapshot.Snapshot { return cluster })
			require.NoError(t, err)
			require.Equal(t, lookInterval, next)
		}
	}
	cluster := snapshot.New(start)
	cluster.Missing = []snapshot.Missing{
		{Resource: "zonesurvivals.zonewise.dev", Reason: snapshot.NotInstalled},
		{Resource: "services", Reason: snapshot.Forbidden},
	}
	require.Empty(t, cluster.Unread(decidingKinds...))
}

// lists answers each list with an error, or with nothing.
type lists struct {
	client.Client
	err error
}

func (l *lists) List(context.Context, client.ObjectList, ...client.ListOption) error { return l.err }

// TestNothingIsLeft: that nothing of the part is left is seen, not concluded from an API server that does not answer.
func TestNothingIsLeft(t *testing.T) {
	for _, tc := range []struct {
		err  error
		next time.Duration
	}{
		{apierrors.NewInternalError(errors.New("no disk")), lookInterval},
		{&meta.NoKindMatchError{}, idleInterval},
		{nil, idleInterval},
	} {
		c := New(parts.Shared{Client: &lists{err: tc.err}, CPUFraction: 1})
		cluster := snapshot.New(start)
		next, err := c.Turn(t.Context(), func() *snapshot.Snapshot { return cluster })
		require.NoError(t, err)
		require.Equal(t, tc.next, next, tc.err)
	}
}

// TestReport: what the conditions say of a look.
func TestReport(t *testing.T) {
	answer := []metav1.Condition{
		{Type: "Provisioning", Status: metav1.ConditionFalse, Reason: "NoRoom", Message: "no pool"},
	}
	for _, tc := range []struct {
		name       string
		asked      int32
		since      time.Time
		answer     []metav1.Condition
		atMax      bool
		frozen     string
		wantStatus metav1.ConditionStatus
		wantReason string
	}{
		{name: "asked now", asked: 2, since: start, wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAsked},
		{
			name: "no answer for long", asked: 2, since: start.Add(-answerWithin), wantStatus: metav1.ConditionUnknown,
			wantReason: v1alpha1.ReasonNotAnswered,
		},
		{
			name: "an answer", asked: 2, since: start.Add(-answerWithin), answer: answer,
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAsked,
		},
		{
			name: "no more is allowed", asked: 1, since: start, atMax: true, wantStatus: metav1.ConditionFalse,
			wantReason: v1alpha1.ReasonMaxReached,
		},
		{
			name: "frozen", asked: 1, since: start, frozen: "a zone is lost", wantStatus: metav1.ConditionTrue,
			wantReason: v1alpha1.ReasonFrozen,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &v1alpha1.ZoneReservation{Spec: v1alpha1.ZoneReservationSpec{Buy: &v1alpha1.Buy{}}}
			r.Status.Buy = &v1alpha1.BuyStatus{Buffers: []v1alpha1.BuyBuffer{
				{Name: "web", Asked: int64(tc.asked), AskedSince: metav1.NewTime(tc.since)},
			}}
			b := &buyer{
				object: r, demand: buy.ReservationDemand(r, &buy.Cluster{Now: start}), status: &r.Status.Buy,
				conditions: &r.Status.Conditions,
			}
			b.demand.Frozen = tc.frozen
			b.reportAsked(&planned{
				buffers: []buy.Buffer{{Name: "web", Zone: "a", Wanted: 2, Asked: tc.asked}}, atMax: tc.atMax,
				answers: map[string][]metav1.Condition{"web": tc.answer},
			}, nil, start)
			c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBuying)
			require.Equal(t, []string{string(tc.wantStatus), tc.wantReason}, []string{string(c.Status), c.Reason})
			require.Equal(t, tc.since, r.Status.Buy.Buffers[0].AskedSince.UTC())
		})
	}
}

// TestExpiredAsksForNothing: a reservation that holds nothing any more wants nothing, and neither does one that is
// being deleted.
func TestExpiredAsksForNothing(t *testing.T) {
	cluster := snapshot.New(start)
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec: v1alpha1.ZoneReservationSpec{
			Buy: &v1alpha1.Buy{}, Zones: []v1alpha1.ReservationZone{{Name: "a", Slots: 1}},
		},
		Status: v1alpha1.ZoneReservationStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionExpired, Status: metav1.ConditionTrue}},
			Buy:        &v1alpha1.BuyStatus{},
		},
	}
	deleted := r.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "deleted", &metav1.Time{Time: start}
	cluster.Add(r, deleted, &v1.Node{})
	all := buyersOf(cluster, start, refusals{})
	require.Len(t, all, 1)
	require.Nil(t, all[0].demand)
	all[0].withdraw(start)
	after := all[0].object.(*v1alpha1.ZoneReservation)
	require.Nil(t, after.Status.Buy)
	require.Equal(
		t, v1alpha1.ReasonExpired, meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionBuying).Reason,
	)
	require.NotNil(t, r.Status.Buy, "what was read is not modified")
}
