package live

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"zonewise.dev/cluster/snapshot"
)

var (
	start     = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	resource  = schema.GroupResource{Resource: "things"}
	forbidden = apierrors.NewForbidden(resource, "", errors.New("no"))
	absent    = apierrors.NewNotFound(resource, "")
	errBroken = errors.New("connection refused")
)

// pods is a kind without an API server.
func pods(needed bool) (*Live, *set) {
	l := &Live{changed: make(chan struct{}, 1), answered: make(chan struct{})}
	kinds := snapshot.Kinds()
	kind := kinds[slices.IndexFunc(kinds, func(k snapshot.Kind) bool { return k.Resource == "pods" })]
	kind.Needed = needed
	s := newSet(l, nil, kind)
	l.kinds = []*set{s}
	return l, s
}

// list returns the pods of a snapshot.
func list(s *snapshot.Snapshot) []*corev1.Pod { return snapshot.List[*corev1.Pod](s) }

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"large": "text"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
}

func TestWhatRequestsSayAboutAKind(t *testing.T) {
	type request struct {
		err   error
		watch bool
	}
	for _, tc := range []struct {
		name     string
		needed   bool
		requests []request
		want     state
	}{
		{"a kind that is not installed is left out", false, []request{{absent, false}}, state{answered: true, missing: snapshot.NotInstalled}},
		{"one that may not be listed too", false, []request{{forbidden, true}, {forbidden, false}}, state{answered: true, missing: snapshot.Forbidden, unwatched: true}},
		{"one that is needed is not", true, []request{{forbidden, false}}, state{failed: forbidden, since: start}},
		{"one that may be listed alone", false, []request{{forbidden, true}, {nil, false}, {forbidden, true}}, state{unwatched: true}},
		{"and then watched too", false, []request{{forbidden, true}, {nil, true}}, state{}},
		{"a server that cannot send a list through a watch is asked for a list", false, []request{{apierrors.NewBadRequest("sendInitialEvents"), true}, {nil, false}}, state{}},
		{"a connection that fails", false, []request{{errBroken, true}, {errBroken, false}}, state{failed: errBroken, since: start}},
		{"and is back", false, []request{{errBroken, false}, {nil, false}}, state{since: start}},
		{"a version that is gone is no fault", false, []request{{apierrors.NewResourceExpired("old"), true}}, state{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &state{needed: tc.needed}
			for i, r := range tc.requests {
				s.noteLocked(r.err, r.watch, start.Add(time.Duration(i)*time.Second))
			}
			tc.want.needed = tc.needed
			require.Equal(t, &tc.want, s)
		})
	}
}

func TestSnapshotFollowsTheStore(t *testing.T) {
	l, s := pods(true)
	require.NoError(t, s.Replace([]any{pod("b"), pod("a")}, "1"))
	require.NoError(t, l.Sync(t.Context()))
	<-l.Changed()
	got := l.Snapshot()
	require.Equal(t, []string{"a", "b"}, []string{list(got)[0].Name, list(got)[1].Name}, "in order")
	require.Nil(t, list(got)[0].Annotations, "trimmed")
	require.True(t, got.Has("pods"))

	moved := pod("a")
	moved.Spec.NodeName = "m"
	require.NoError(t, s.Update(moved))
	require.NoError(t, s.Add(pod("c")))
	require.NoError(t, s.Delete(pod("b")))
	<-l.Changed()
	require.Len(t, list(got), 2, "a snapshot does not change any more")
	require.Equal(t, "n", list(got)[0].Spec.NodeName)
	got = l.Snapshot()
	require.Equal(t, []string{"a", "c"}, []string{list(got)[0].Name, list(got)[1].Name})
	require.Equal(t, "m", list(got)[0].Spec.NodeName)
	require.Error(t, s.Add(&corev1.Node{}))
}

func TestSyncSaysWhyThereIsNothing(t *testing.T) {
	l, s := pods(true)
	limited, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no answer"))
	require.EqualError(t, l.Sync(limited), "no answer")
	l.note(&s.state, forbidden, false)
	err := l.Sync(t.Context())
	require.ErrorContains(t, err, "list pods: ")
	require.True(t, apierrors.IsForbidden(err))

	l, s = pods(false)
	done := make(chan error, 1)
	go func() { done <- l.Sync(t.Context()) }()
	l.note(&s.state, context.Canceled, false) // the end is no answer
	l.note(&s.state, forbidden, false)
	require.NoError(t, <-done)
	require.Equal(t, []snapshot.Missing{{Resource: "pods", Reason: snapshot.Forbidden}}, l.Snapshot().Missing)
}

func TestTroubles(t *testing.T) {
	l, s := pods(true)
	require.NoError(t, s.Replace(nil, "1"))
	require.Empty(t, l.Troubles())
	l.note(&s.state, forbidden, true)
	require.Equal(t, []string{"you may list but not watch pods: changes show half a minute late"}, l.Troubles())
	l.note(&s.state, errors.New("connection\nrefused"), false)
	require.Len(t, l.Troubles(), 1)
	require.Regexp(t, `^the cluster has not been read since \d\d:\d\d:\d\d UTC, what you see may be older: pods: connection refused$`, l.Troubles()[0])
	require.NoError(t, s.Replace(nil, "2"))
	require.Len(t, l.Troubles(), 1)
}
