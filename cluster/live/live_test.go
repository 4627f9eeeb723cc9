package live

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))

// list returns the pods of a snapshot.
func list(s *snapshot.Snapshot) []*corev1.Pod { return snapshot.List[*corev1.Pod](s) }

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"large": "text"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
}

// server answers requests about pods with what the test says, and about other kinds with nothing.
type server struct {
	client.WithWatch
	list  func(ctx context.Context) ([]corev1.Pod, error)
	watch func() (watch.Interface, error)
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
	if asked.Raw.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("sendInitialEvents")
	}
	return s.watch()
}

// followPods follows the pods of a server until the test ends, as a kind that is needed or as one that may be missing.
func followPods(t *testing.T, patience time.Duration, needed bool, s *server) *Live {
	t.Helper()
	l := newLive(patience)
	kinds := snapshot.Kinds()
	described := kinds[slices.IndexFunc(kinds, func(k snapshot.Kind) bool { return k.Resource == "pods" })]
	described.Needed = needed
	k := l.newKind(s, described)
	l.kinds = []*kind{k}
	ctx, cancel := context.WithCancel(t.Context())
	l.running.Go(func() { k.Run(ctx) })
	t.Cleanup(func() { cancel(); l.Wait() })
	return l
}

func TestSnapshotFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := watch.NewFake()
		l := followPods(t, time.Hour, true, &server{
			list:  func(context.Context) ([]corev1.Pod, error) { return []corev1.Pod{*pod("b"), *pod("a")}, nil },
			watch: func() (watch.Interface, error) { return stream, nil },
		})
		require.NoError(t, l.Sync(t.Context()))
		<-l.Changed()
		got := l.Snapshot()
		require.Equal(t, []string{"a", "b"}, []string{list(got)[0].Name, list(got)[1].Name}, "in order")
		require.True(t, got.Has("pods"))

		moved := pod("a")
		moved.ResourceVersion, moved.Spec.NodeName = "2", "m"
		stream.Modify(moved)
		stream.Add(pod("c"))
		stream.Delete(pod("b"))
		synctest.Wait()
		<-l.Changed()
		require.Len(t, list(got), 2, "a snapshot does not change any more")
		require.Equal(t, "n", list(got)[0].Spec.NodeName)
		got = l.Snapshot()
		require.Equal(t, []string{"a", "c"}, []string{list(got)[0].Name, list(got)[1].Name})
		require.Equal(t, "m", list(got)[0].Spec.NodeName)
	})
}

func TestSyncSaysWhyThereIsNothing(t *testing.T) {
	silent := &server{list: func(ctx context.Context) ([]corev1.Pod, error) { <-ctx.Done(); return nil, ctx.Err() }}
	limited, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no answer"))
	require.EqualError(t, followPods(t, time.Hour, true, silent).Sync(limited), "no answer")

	refusing := &server{
		list:  func(context.Context) ([]corev1.Pod, error) { return nil, forbidden },
		watch: func() (watch.Interface, error) { return nil, forbidden },
	}
	err := followPods(t, time.Hour, true, refusing).Sync(t.Context())
	require.ErrorContains(t, err, "list pods: ")
	require.True(t, apierrors.IsForbidden(err))

	l := followPods(t, time.Hour, false, refusing)
	require.NoError(t, l.Sync(t.Context()))
	require.Equal(t, []snapshot.Missing{{Resource: "pods", Reason: snapshot.Forbidden}}, l.Snapshot().Missing)
	require.Empty(t, l.Troubles(), "what is refused is not late")
}

func TestTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused error
		l := followPods(t, time.Hour, true, &server{
			list:  func(context.Context) ([]corev1.Pod, error) { return nil, refused },
			watch: func() (watch.Interface, error) { return nil, forbidden },
		})
		require.NoError(t, l.Sync(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"you may list but not watch pods: changes show half a minute late"}, l.Troubles())
		require.Empty(t, l.Lacks())
		refused = errors.New("connection\nrefused")
		time.Sleep(2 * time.Minute)
		require.Len(t, l.Troubles(), 1)
		require.Regexp(
			t,
			`^the cluster has not been read since \d\d:\d\d:\d\d UTC, what you see may be older: pods: .*connection refused$`,
			l.Troubles()[0],
		)
		refused = nil
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"you may list but not watch pods: changes show half a minute late"}, l.Troubles())
	})
}

// TestAKindThatIsNotAnsweredIsMissing: whatever keeps the API server from answering about one kind, the rest is known
// soon, and the snapshot says what it lacks.
func TestAKindThatIsNotAnsweredIsMissing(t *testing.T) {
	broken := apierrors.NewInternalError(errors.New("no\ndisk"))
	for _, tc := range []struct {
		name string
		list func(ctx context.Context) ([]corev1.Pod, error)
		want string
	}{
		{"errors", func(context.Context) ([]corev1.Pod, error) {
			return nil, broken
		}, "pods could not be read: Internal error occurred: no disk"},
		{"silence", func(ctx context.Context) ([]corev1.Pod, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "pods could not be read: the API server does not answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := followPods(t, 50*time.Millisecond, false, &server{list: tc.list, watch: func() (watch.Interface, error) {
				return nil, broken
			}})
			require.Equal(t, []string{"pods have not been read yet"}, l.Lacks())
			require.NoError(t, l.Sync(t.Context()))
			require.Equal(t, []string{tc.want}, l.Lacks())
			require.Equal(t, []string{tc.want}, l.Snapshot().Notes())
			require.False(t, l.Snapshot().Has("pods"))
		})
	}
}

// TestAKindThatIsNoLongerAnsweredIsOutdated: what is known stays, and the snapshot says since when it is of the past.
// When the API server answers again, it says so no more.
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
	l := followPods(t, 50*time.Millisecond, false, &server{
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
