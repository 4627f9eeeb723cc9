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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	} {
		for _, reason := range []string{snapshot.Forbidden, snapshot.Unreadable} {
			cluster := snapshot.New(start)
			cluster.Missing = []snapshot.Missing{{Resource: resource, Reason: reason}}
			c := New(parts.Shared{CPUFraction: 1, Read: func() *snapshot.Snapshot { return cluster }}) // has no client
			result, err := c.Reconcile(t.Context(), parts.Look)
			require.NoError(t, err)
			require.Equal(t, lookInterval, result.RequeueAfter)
		}
	}
	cluster := snapshot.New(start)
	cluster.Missing = []snapshot.Missing{
		{Resource: "zonesurvivals.zonewise.dev", Reason: snapshot.NotInstalled},
		{Resource: "services", Reason: snapshot.Forbidden},
	}
	require.Empty(t, cluster.Unread(decidingKinds...))
}

// server lists what it has or an error, and notes what is deleted.
type server struct {
	client.Client
	err, refuses error // of lists, and of what is applied
	buffers      []unstructured.Unstructured
	templates    []v1.PodTemplate
	deleted      []string
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *unstructured.UnstructuredList:
		l.Items = s.buffers
	case *v1.PodTemplateList:
		l.Items = s.templates
	}
	return s.err
}

func (s *server) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return s.refuses
}

func (s *server) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	s.deleted = append(s.deleted, obj.GetNamespace()+"/"+obj.GetName())
	return nil
}

func (s *server) Status() client.SubResourceWriter { return statusWriter{} }

type statusWriter struct{ client.SubResourceWriter }

func (statusWriter) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return nil
}

// TestAnotherNamespace: what is asked for in one namespace stays until it is asked for in the other one, which may not
// exist.
func TestAnotherNamespace(t *testing.T) {
	cluster := snapshot.New(start)
	cluster.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1.LabelTopologyZone: "a"}}})
	cluster.Add(&v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"},
		Spec: v1alpha1.ZoneReservationSpec{
			Slot:  v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Zones: []v1alpha1.ReservationZone{{Name: "b", Slots: 2}},
			Buy:   &v1alpha1.Buy{Namespace: "new", Max: 10},
		},
	})
	own := metav1.ObjectMeta{
		Namespace: "old", Name: "web-1", Labels: map[string]string{buy.OwnerLabel: "1"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneReservation", UID: "1", Controller: new(true)},
		},
	}
	var buffer unstructured.Unstructured
	buffer.SetNamespace(own.Namespace)
	buffer.SetName(own.Name)
	buffer.SetLabels(own.Labels)
	buffer.SetOwnerReferences(own.OwnerReferences)
	to := &server{
		refuses: errors.New("namespaces \"new\" not found"), buffers: []unstructured.Unstructured{buffer},
		templates: []v1.PodTemplate{{ObjectMeta: own}},
	}
	c := New(parts.Shared{Client: to, CPUFraction: 1000, Read: func() *snapshot.Snapshot { return cluster }})
	now := start
	c.now = func() time.Time { return now }
	turn := func() {
		now = now.Add(time.Minute)
		_, err := c.Reconcile(t.Context(), parts.Look)
		require.NoError(t, err)
	}
	turn()
	require.Empty(t, to.deleted)
	require.EqualValues(t, 2, c.asked["1"].wanted)
	to.refuses = nil
	turn()
	require.Equal(t, []string{"old/web-1", "old/web-1"}, to.deleted)
}

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
		read := func() *snapshot.Snapshot { return snapshot.New(start) }
		c := New(parts.Shared{Client: &server{err: tc.err}, CPUFraction: 1, Read: read})
		result, err := c.Reconcile(t.Context(), parts.Look)
		require.NoError(t, err)
		require.Equal(t, tc.next, result.RequeueAfter, tc.err)
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
	all := buyersOf(cluster, start)
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
