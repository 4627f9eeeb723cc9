package live

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func pods(needed bool) (*Live, *kind) {
	l := newLive(time.Hour)
	kinds := snapshot.Kinds()
	described := kinds[slices.IndexFunc(kinds, func(k snapshot.Kind) bool { return k.Resource == "pods" })]
	described.Needed = needed
	k := newKind(l, nil, described)
	l.kinds = []*kind{k}
	return l, k
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
	require.EqualError(t, s.Add(&corev1.Node{}), "a *v1.Node among pods")
	require.Error(t, s.Replace([]any{&corev1.Node{}}, "2"))
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
	require.Empty(t, l.Lacks())
	l.note(&s.state, forbidden, true)
	require.Equal(t, []string{"you may list but not watch pods: changes show half a minute late"}, l.Troubles())
	l.note(&s.state, errors.New("connection\nrefused"), false)
	require.Len(t, l.Troubles(), 1)
	require.Regexp(t, `^the cluster has not been read since \d\d:\d\d:\d\d UTC, what you see may be older: pods: connection refused$`, l.Troubles()[0])
	require.NoError(t, s.Replace(nil, "2"))
	require.Len(t, l.Troubles(), 1)
}

// server answers requests about pods with what the test says, and about other kinds with nothing.
type server struct {
	client.WithWatch
	list  func(ctx context.Context) ([]corev1.Pod, error)
	watch func() (watch.Interface, error)
	// streams: the first list may come through a watch.
	streams bool
}

func (s *server) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	found, err := s.list(ctx)
	list.(*corev1.PodList).Items = found
	list.SetResourceVersion("1")
	return err
}

func (s *server) Watch(_ context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	if asked.Raw.SendInitialEvents != nil && !s.streams {
		return nil, apierrors.NewBadRequest("sendInitialEvents")
	}
	return s.watch()
}

// followPods follows the pods of a server as a kind that may be missing.
func followPods(t *testing.T, patience time.Duration, s *server) *Live {
	t.Helper()
	l, k := pods(false)
	l.patience, k.client = patience, s
	ctx, cancel := context.WithCancel(t.Context())
	l.running.Go(func() { k.run(ctx) })
	t.Cleanup(func() { cancel(); l.Wait() })
	return l
}

// TestAKindThatIsNotAnsweredIsMissing: whatever keeps the API server from answering about one kind, the rest is known soon, and the snapshot says
// what it lacks.
func TestAKindThatIsNotAnsweredIsMissing(t *testing.T) {
	broken := apierrors.NewInternalError(errors.New("no\ndisk"))
	for _, tc := range []struct {
		name string
		list func(ctx context.Context) ([]corev1.Pod, error)
		want string
	}{
		{"errors", func(context.Context) ([]corev1.Pod, error) { return nil, broken }, "pods could not be read: Internal error occurred: no disk"},
		{"silence", func(ctx context.Context) ([]corev1.Pod, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "pods could not be read: the API server does not answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := followPods(t, 50*time.Millisecond, &server{list: tc.list, watch: func() (watch.Interface, error) { return nil, broken }})
			require.Equal(t, []string{"pods have not been read yet"}, l.Lacks())
			require.NoError(t, l.Sync(t.Context()))
			require.Equal(t, []string{tc.want}, l.Lacks())
			require.Equal(t, []string{tc.want}, l.Snapshot().Notes())
			require.False(t, l.Snapshot().Has("pods"))
		})
	}
}

// TestAKindThatIsNoLongerAnsweredIsOutdated: what is known stays, and the snapshot says since when it is of the past. When the API server answers
// again, it says so no more.
func TestAKindThatIsNoLongerAnsweredIsOutdated(t *testing.T) {
	var broken atomic.Bool
	var streams sync.Mutex // guards stream
	stream := watch.NewFake()
	answer := func() error {
		if broken.Load() {
			return apierrors.NewServiceUnavailable("starting")
		}
		return nil
	}
	l := followPods(t, 50*time.Millisecond, &server{
		list: func(context.Context) ([]corev1.Pod, error) { return []corev1.Pod{*pod("a")}, answer() },
		watch: func() (watch.Interface, error) {
			streams.Lock()
			defer streams.Unlock()
			if err := answer(); err != nil {
				return nil, err
			}
			stream = watch.NewFake()
			return stream, nil
		},
	})
	require.NoError(t, l.Sync(t.Context()))
	require.Nil(t, list(l.Snapshot())[0].Annotations, "trimmed")
	broken.Store(true)
	streams.Lock()
	stream.Stop()
	streams.Unlock()
	for len(l.Snapshot().Notes()) == 0 {
		<-l.Changed()
	}
	require.Regexp(t, `^pods have not been read since \d\d:\d\d:\d\d UTC: .*starting$`, l.Snapshot().Notes()[0])
	require.Len(t, list(l.Snapshot()), 1)
	require.True(t, l.Snapshot().Has("pods"))
	broken.Store(false)
	for len(l.Snapshot().Notes()) > 0 {
		<-l.Changed()
	}
	require.Empty(t, l.Lacks())
}

// TestAListThroughAWatch: the first list may be the beginning of a watch, whose end a bookmark marks. Its objects are trimmed as well.
func TestAListThroughAWatch(t *testing.T) {
	stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
	stream.Add(pod("a"))
	stream.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	l := followPods(t, time.Hour, &server{watch: func() (watch.Interface, error) { return stream, nil }, streams: true})
	require.NoError(t, l.Sync(t.Context()))
	require.Len(t, list(l.Snapshot()), 1)
	require.Nil(t, list(l.Snapshot())[0].Annotations)
}
