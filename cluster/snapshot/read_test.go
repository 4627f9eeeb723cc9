package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
)

// pages is an API server that serves pods page by page, and forgets the version of a list once.
type pages struct {
	client.Client
	pods    int
	expired bool
}

func (p *pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	first := 0
	if o.Continue != "" {
		if !p.expired {
			p.expired = true
			return apierrors.NewResourceExpired("too old")
		}
		var err error
		if first, err = strconv.Atoi(o.Continue); err != nil {
			return err
		}
	}
	last := p.pods
	if o.Limit > 0 {
		last = min(first+int(o.Limit), p.pods)
	}
	for i := first; i < last; i++ {
		pods.Items = append(pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}})
	}
	if last < p.pods {
		pods.Continue = strconv.Itoa(last)
	}
	return nil
}

// Get implements client.Client: there are no leases.
func (p *pages) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "")
}

func TestReadTakesAllPages(t *testing.T) {
	most := 0
	s, err := snapshot.Read(t.Context(), &pages{pods: 2500}, func(objects int) { most = max(most, objects) })
	require.NoError(t, err)
	pods := snapshot.List[*corev1.Pod](s)
	require.Len(t, pods, 2500)
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Name] = true
	}
	require.Len(t, names, 2500, "a list that has to begin again has nothing twice")
	require.GreaterOrEqual(t, most, 2500)
	require.Empty(t, s.Missing)
}

// failing is an API server that fails for one kind.
type failing struct {
	client.Client
	on  client.ObjectList
	err error
}

// Get implements client.Client: the leases are there.
func (f *failing) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if f.on == nil {
		return f.err
	}
	obj.SetName(key.Name)
	obj.(*coordinationv1.Lease).Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(1_800_000_000, 0)}
	return nil
}

// Leases are read by name; without the permission they are missing.
func TestLeases(t *testing.T) {
	s, err := snapshot.Read(t.Context(), &failing{on: &schedulingv1.PriorityClassList{}}, nil)
	require.NoError(t, err)
	at := time.Unix(1_800_000_000, 0).UTC()
	require.Equal(t, []snapshot.Lease{{Name: "kube-scheduler", Renewed: at}, {Name: "zonewise-scheduler", Renewed: at}}, s.Leases)
	s.TakenAt = at.Add(time.Minute)
	require.True(t, s.Leads("zonewise-scheduler"))
	require.Zero(t, s.Silent())
	s.TakenAt = at.Add(time.Hour)
	require.False(t, s.Leads("zonewise-scheduler"))
	require.Equal(t, time.Hour, s.Silent())

	s, err = snapshot.Read(t.Context(), &failing{err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))}, nil)
	require.NoError(t, err)
	require.Contains(t, s.Missing, snapshot.Missing{Resource: "leases.coordination.k8s.io", Reason: snapshot.Forbidden})
	require.Zero(t, s.Silent(), "nothing is known")
}

func (f *failing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if f.on != nil && reflect.TypeOf(list) == reflect.TypeOf(f.on) {
		return f.err
	}
	return nil
}

// One optional kind that fails, however it fails, makes the answer partial and ends nothing.
func TestAnOptionalKindThatFails(t *testing.T) {
	for name, err := range map[string]error{
		"an internal error": apierrors.NewInternalError(errors.New("conversion webhook")),
		"unavailable":       apierrors.NewServiceUnavailable("etcd"),
		"a timeout":         apierrors.NewTimeoutError("request did not complete", 0),
		"too many requests": apierrors.NewTooManyRequestsError("later"),
		"the client's own":  fmt.Errorf("Get https://x: %w", context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			s, got := snapshot.Read(t.Context(), &failing{on: &schedulingv1.PriorityClassList{}, err: err}, nil)
			require.NoError(t, got, "a kind that is not needed ends nothing")
			require.Len(t, s.Missing, 1)
			require.Equal(t, snapshot.Unreadable, s.Missing[0].Reason)
		})
		_, got := snapshot.Read(t.Context(), &failing{on: &corev1.PodList{}, err: err}, nil)
		require.ErrorIs(t, got, err, "no answer without pods")
	}
}
