package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// upstream is an API server of a test: it says lines to those who watch, and keeps one lease.
type upstream struct {
	lines chan string
	lease []byte
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	switch {
	case watches(r.URL):
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-u.lines:
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case r.Method == http.MethodPut:
		u.lease, _ = io.ReadAll(r.Body)
		fallthrough
	default:
		_, _ = w.Write(u.lease)
	}
}

// proxied is a proxy before an upstream, and its address.
func proxied(t *testing.T) (*upstream, *proxy, string) {
	t.Helper()
	u := &upstream{lines: make(chan string, 10)}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	config.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	p, err := startProxy(file, t.TempDir(), "proxy")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.stop()) })
	own, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	require.NoError(t, err)
	return u, p, own.Host
}

// open begins a watch.
func open(t *testing.T, address, query string) (*http.Response, *bufio.Reader) {
	t.Helper()
	response, err := http.Get(address + "/api/v1/pods?watch=true" + query)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response, bufio.NewReader(response.Body)
}

func next(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	return line[:len(line)-1]
}

// TestViews: a proxy shows a watch late, twice, or not to its end.
func TestViews(t *testing.T) {
	u, p, address := proxied(t)
	_, lines := open(t, address, "")
	const added, bookmark = `{"type":"ADDED"}`, `{"type":"BOOKMARK"}`
	u.lines <- added
	require.JSONEq(t, added, next(t, lines))

	begun := time.Now()
	p.perturb(late, "pods", 200*time.Millisecond)
	u.lines <- added
	require.JSONEq(t, added, next(t, lines))
	require.GreaterOrEqual(t, time.Since(begun), 200*time.Millisecond)

	p.perturb(twice, "pods", time.Hour)
	u.lines <- added
	u.lines <- bookmark
	u.lines <- bookmark
	for _, want := range []string{added, added, bookmark, bookmark} {
		require.JSONEq(t, want, next(t, lines), "a bookmark is said once")
	}

	p.perturb(dropped, "nodes", 0)
	u.lines <- bookmark
	require.JSONEq(t, bookmark, next(t, lines), "another resource's watch has ended")
	p.perturb(dropped, "pods", 0)
	_, err := lines.ReadString('\n')
	require.Error(t, err)
	response, _ := open(t, address, "&resourceVersion=7&sendInitialEvents=true")
	require.Equal(t, http.StatusOK, response.StatusCode, "it begins with a list")
	response, _ = open(t, address, "&resourceVersion=7")
	require.Equal(t, http.StatusGone, response.StatusCode)
	response, _ = open(t, address, "&resourceVersion=7")
	require.Equal(t, http.StatusOK, response.StatusCode, "once is enough")
}

// TestTrigger: it goes off at the n-th write, of whichever scheduler.
func TestTrigger(t *testing.T) {
	_, p, address := proxied(t)
	var fired []*proxy
	trigger := &trigger{left: 2, fire: func(p *proxy) { fired = append(fired, p) }}
	p.arm(trigger)
	send := func(method, path string) {
		request, err := http.NewRequest(method, address+path, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	send(http.MethodPost, "/api/v1/namespaces/shop/pods/web/binding")
	send(http.MethodGet, "/api/v1/namespaces/shop/pods/web")
	send(http.MethodPost, "/api/v1/namespaces/shop/pods/web/binding?dryRun=All")
	send(http.MethodPost, "/api/v1/namespaces/shop/events")
	require.Empty(t, fired)
	require.Zero(t, trigger.fired())
	send(http.MethodPatch, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/shop/podgroups/gang/status")
	require.Equal(t, []*proxy{p}, fired)
	require.NotZero(t, trigger.fired())
	send(http.MethodPost, "/api/v1/namespaces/shop/pods/web/binding")
	require.Len(t, fired, 1)
}

// TestClock: a scheduler whose clock is wrong sees its own lease as it has written it, and others see it wrong, in JSON and protobuf.
func TestClock(t *testing.T) {
	u, p, address := proxied(t)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p.setClock(time.Minute)
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		info, ok := runtime.SerializerInfoForMediaType(clientgoscheme.Codecs.SupportedMediaTypes(), mediaType)
		require.True(t, ok)
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), RenewTime: ptr.To(metav1.NewMicroTime(now))}}
		content, err := runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion), lease)
		require.NoError(t, err)
		renewed := func(content []byte) time.Time {
			object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
			require.NoError(t, err)
			require.Equal(t, "me", *object.(*coordinationv1.Lease).Spec.HolderIdentity)
			return object.(*coordinationv1.Lease).Spec.RenewTime.UTC()
		}
		answered, err := stamped(content, mediaType, p.clock())
		require.NoError(t, err)
		require.Equal(t, now.Add(time.Minute), renewed(answered), mediaType)
	}
	lease := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{"renewTime":%q}}`, now.Format(metav1.RFC3339Micro))
	request, err := http.NewRequest(http.MethodPut, address+"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/zonewise-scheduler", strings.NewReader(lease))
	require.NoError(t, err)
	request.Header.Set("Content-Type", runtime.ContentTypeJSON)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Contains(t, string(u.lease), "12:01:00")
	require.Contains(t, string(answer), "12:00:00")
}
