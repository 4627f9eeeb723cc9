package crd_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/informer"
)

const groupVersion = "scheduling.x-k8s.io/v1alpha1"

// apiServer answers what a watch of PodGroups asks: discovery, one list, and a watch that stays open.
// With the CRD absent it answers as the real one does, with 404.
type apiServer struct {
	mu        sync.Mutex // guards installed and broken
	installed bool
	broken    bool
	listed    chan string // the Accept header of each list
}

func (s *apiServer) set(installed, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installed, s.broken = installed, broken
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	installed, broken := s.installed, s.broken
	s.mu.Unlock()
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	switch {
	case broken:
		http.Error(w, "overloaded", http.StatusInternalServerError)
	case r.URL.Path == "/api":
		reply(metav1.APIVersions{Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		if installed {
			version := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: "v1alpha1"}
			groups.Groups = []metav1.APIGroup{{Name: "scheduling.x-k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}
		}
		reply(groups)
	case !installed:
		http.NotFound(w, r)
	case r.URL.Path == "/apis/"+groupVersion:
		reply(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: groupVersion,
			APIResources: []metav1.APIResource{{Name: "podgroups", SingularName: "podgroup", Namespaced: true, Kind: "PodGroup", Verbs: metav1.Verbs{"list", "watch", "get"}}},
		})
	case r.URL.Query().Get("sendInitialEvents") == "true":
		http.Error(w, "no streaming lists here", http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") == "true":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		s.listed <- r.Header.Get("Accept")
		list := schedv1alpha1.PodGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "PodGroupList", APIVersion: groupVersion},
			ListMeta: metav1.ListMeta{ResourceVersion: "7"},
			Items:    []schedv1alpha1.PodGroup{{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "trainer", UID: "1", ResourceVersion: "5"}}},
		}
		reply(list)
	}
}

func TestWatchStartsWhenTheKindAppears(t *testing.T) {
	api := &apiServer{listed: make(chan string, 100)}
	api.set(false, true)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf}}

	source, err := crd.Connect(config)
	require.NoError(t, err, "a server that answers nothing but errors is no reason to fail at start")
	require.Equal(t, runtime.ContentTypeProtobuf, config.ContentType, "the caller's config is left alone")

	added := make(chan string, 10)
	changes := make(chan bool, 10)
	kind, err := crd.Watch(t.Context(), source, informer.Funcs[*schedv1alpha1.PodGroup]{
		Add: func(obj *schedv1alpha1.PodGroup, _ bool) { added <- obj.Name },
	}, func(available bool) { changes <- available })
	require.NoError(t, err)
	require.False(t, kind.Available())
	require.False(t, kind.Settled(), "the API server has not said what it serves")

	api.set(false, false)
	require.Eventually(t, kind.Settled, time.Minute, 10*time.Millisecond, "there is nothing to wait for")
	require.False(t, kind.Available(), "the CRD is not installed")
	require.False(t, kind.HasSynced())

	api.set(true, false)
	require.Equal(t, "trainer", receive(t, added))
	require.True(t, receive(t, changes))
	require.Eventually(t, kind.HasSynced, time.Minute, 10*time.Millisecond)
	require.NotContains(t, receive(t, api.listed), "protobuf", "custom resources speak JSON")
}

// TestServedKindIsNotSettledBeforeItsObjects: between the answer that the kind is served and its first list, nothing is
// known.
func TestServedKindIsNotSettledBeforeItsObjects(t *testing.T) {
	api := &apiServer{listed: make(chan string, 100)}
	api.set(true, false)
	var requests atomic.Int64
	asked, held := make(chan struct{}, 100), make(chan struct{})
	answer := sync.OnceFunc(func() { close(held) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 { // the first one asks whether the kind is served
			asked <- struct{}{}
			<-held
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(answer)

	source, err := crd.Connect(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	kind, err := crd.Watch(t.Context(), source, informer.Funcs[*schedv1alpha1.PodGroup]{}, nil)
	require.NoError(t, err)
	receive(t, asked)
	require.False(t, kind.Settled())
	answer()
	require.Eventually(t, kind.Settled, time.Minute, 10*time.Millisecond)
	require.True(t, kind.HasSynced())
}

func TestWatchRefusesATypeOutsideTheScheme(t *testing.T) {
	source, err := crd.Connect(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	_, err = crd.Watch(t.Context(), source, informer.Funcs[*v1.Pod]{}, nil)
	require.ErrorContains(t, err, "Pod")
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}
