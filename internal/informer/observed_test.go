package informer

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server answers requests about pods with what the test says.
type server struct {
	client.WithWatch
	list  func(ctx context.Context) ([]corev1.Pod, error)
	watch func(ctx context.Context) (watch.Interface, error)
	// streams: the first list may come through a watch.
	streams bool
}

func (s *server) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	found, err := s.list(ctx)
	list.(*corev1.PodList).Items = found
	list.SetResourceVersion("1")
	return err
}

func (s *server) Watch(ctx context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	if asked.Raw.SendInitialEvents != nil && !s.streams {
		return nil, apierrors.NewBadRequest("sendInitialEvents")
	}
	return s.watch(ctx)
}

func podOf(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, ResourceVersion: version, UID: types.UID(name),
		Annotations: map[string]string{"large": "text"},
	}}
}

// events are what a handler got, in order.
type events struct {
	mu  sync.Mutex // guards got
	got []string
}

func (e *events) add(event string, pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, event+" "+pod.Name+pod.ResourceVersion)
}

func (e *events) handler() Funcs[*corev1.Pod] {
	return Funcs[*corev1.Pod]{
		Add: func(pod *corev1.Pod, initial bool) {
			if initial {
				e.add("first", pod)
			} else {
				e.add("add", pod)
			}
		},
		Update: func(_, newer *corev1.Pod) { e.add("update", newer) },
		Delete: func(last *corev1.Pod) { e.add("delete", last) },
	}
}

// take returns what has come since the last time, in the order of names where one list brought it.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := slices.Sorted(slices.Values(e.got))
	e.got = nil
	return taken
}

// follow runs an informer of the pods of a server until the test ends.
func follow(t *testing.T, s *server, e *events) *Observed {
	t.Helper()
	w := New(Config{
		Client: s, Example: &corev1.Pod{}, List: &corev1.PodList{}, Handler: e.handler(),
		Trim: func(obj client.Object) { obj.SetAnnotations(nil) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func names(w *Observed) []string {
	var out []string
	for _, obj := range w.Objects() {
		out = append(out, obj.GetName()+obj.GetResourceVersion())
	}
	return out
}

// TestAKindComesAndGoes: it is followed from the time that it is served, is as it was while it is not, and what has
// changed meanwhile is told.
func TestAKindComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type reply struct {
			listed  []corev1.Pod
			refused error
		}
		var replies atomic.Pointer[reply]
		replies.Store(&reply{refused: absent})
		var stream atomic.Pointer[watch.FakeWatcher]
		var asked atomic.Int64
		var e events
		w := follow(t, &server{
			list: func(context.Context) ([]corev1.Pod, error) {
				asked.Add(1)
				r := replies.Load()
				return r.listed, r.refused
			},
			watch: func(context.Context) (watch.Interface, error) {
				stream.Store(watch.NewFake())
				return stream.Load(), replies.Load().refused
			},
		}, &e)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, NotInstalled, w.State().Refused)
		require.Less(t, asked.Load(), int64(200), "the pauses grow to half a minute and more")
		require.Empty(t, e.take())

		replies.Store(&reply{listed: []corev1.Pod{*podOf("b", "1"), *podOf("a", "1")}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"first a1", "first b1"}, e.take())
		require.Equal(t, []string{"a1", "b1"}, names(w))
		require.Nil(t, w.Objects()[0].GetAnnotations(), "trimmed")
		state := w.State()
		require.True(t, state.Served())
		require.NoError(t, state.Err)

		stream.Load().Add(podOf("c", "2"))
		stream.Load().Modify(podOf("a", "3"))
		stream.Load().Delete(podOf("b", "4"))
		synctest.Wait()
		require.Equal(t, []string{"add c2", "delete b4", "update a3"}, e.take())
		require.Equal(t, []string{"a3", "c2"}, names(w))
		require.Nil(t, w.Objects()[1].GetAnnotations(), "trimmed")

		replies.Store(&reply{refused: absent})
		stream.Load().Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		state = w.State()
		require.False(t, state.Served())
		require.Empty(t, e.take(), "objects stay")
		require.Equal(t, []string{"a3", "c2"}, names(w))

		replies.Store(&reply{listed: []corev1.Pod{*podOf("a", "3"), *podOf("d", "9")}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"add d9", "delete c2"}, e.take(), "what has not changed is no event")
		require.Equal(t, []string{"a3", "d9"}, names(w))
	})
}

// TestAListThroughAWatch: the first list may be the beginning of a watch, whose end a bookmark marks. Its objects are
// trimmed as well.
func TestAListThroughAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		stream.Add(podOf("a", "1"))
		stream.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
		var e events
		w := follow(t, &server{watch: func(context.Context) (watch.Interface, error) {
			return stream, nil
		}, streams: true}, &e)
		synctest.Wait()
		require.Equal(t, []string{"first a1"}, e.take())
		require.True(t, w.State().Listed)
		require.Nil(t, w.Objects()[0].GetAnnotations(), "trimmed")
	})
}

// TestNothingOutlivesAnInformer: it ends while events wait to be read. A goroutine that is left would fail the test.
func TestNothingOutlivesAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 20})
		for range 20 {
			stream.Add(podOf("a", "1"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := New(Config{
			Client: &server{
				list:  func(context.Context) ([]corev1.Pod, error) { return nil, nil },
				watch: func(context.Context) (watch.Interface, error) { return stream, nil },
			},
			Example: &corev1.Pod{}, List: &corev1.PodList{},
			Handler: Funcs[*corev1.Pod]{Add: func(*corev1.Pod, bool) { cancel(); synctest.Wait() }},
		})
		w.Run(ctx)
	})
}

// TestTheEndIsNoFault: a request that ends because the informer does says nothing of the kind.
func TestTheEndIsNoFault(t *testing.T) {
	w := New(Config{})
	w.note(context.Canceled, (*State).recordList)
	require.Equal(t, State{}, w.State())
	w.note(errors.Join(errBroken), (*State).recordList)
	require.Error(t, w.State().Err)
}
