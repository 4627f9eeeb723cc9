package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/internal/apiserver"
)

// front stands before an API server and answers requests about PodGroups itself.
type front struct {
	*httptest.Server
	// code is with what it answers them; 0 lets them through.
	code atomic.Int32
}

// answer is what the API server would say with that code.
func (f *front) answer(code int, w http.ResponseWriter) {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), //nolint:gosec // three digits
		Reason: metav1.StatusReasonInternalError, Message: "etcd has lost them",
	}
	if code == http.StatusForbidden {
		status.Reason = metav1.StatusReasonForbidden
	}
	content, _ := json.Marshal(status) // plain data
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(content)
}

// newFront starts it before the API server of a kubeconfig, and returns a kubeconfig with which programs come through
// it as the same user.
func newFront(t *testing.T, kubeconfig string) (*front, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	behind, err := url.Parse(config.Host)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &front{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(f.code.Load()); code != 0 && strings.HasSuffix(r.URL.Path, "/podgroups") {
			f.answer(code, w)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	through := clientcmdapi.NewConfig()
	through.Clusters["c"] = &clientcmdapi.Cluster{Server: f.URL}
	through.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	through.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*through, file))
	return f, file
}

// TestAKindIsNotAnswered: while the API server fails to list PodGroups, the controller is not ready, says so, and
// answers Unknown; when it is mended, all is well; when PodGroups may not be listed any more, the answer is Unknown
// again.
func TestAKindIsNotAnswered(t *testing.T) {
	w := newWorld(t)
	w.run("web", "node-a", "node-a", "node-b", "node-b", "node-c", "node-c")
	w.Make(t, &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Spec: v1alpha1.ZoneSurvivalSpec{
		Workloads: []v1alpha1.SurvivalWorkload{{Namespace: apiserver.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)},
	}})
	var f *front
	w.through = func(kubeconfig string) string {
		var through string
		f, through = newFront(t, kubeconfig)
		f.code.Store(http.StatusInternalServerError)
		return through
	}
	defer w.startController()()
	const podGroups = "podgroups.scheduling.x-k8s.io"
	w.waitReady(http.StatusServiceUnavailable, podGroups+" have not been read yet")
	w.waitUnknown(podGroups + " could not be read: ")
	w.waitReady(http.StatusServiceUnavailable, podGroups+" could not be read: ")

	f.code.Store(0)
	w.waitReason(v1alpha1.ReasonAllPlaced)
	w.waitReady(http.StatusOK, "ok")

	f.code.Store(http.StatusForbidden)
	f.CloseClientConnections() // its watches end
	w.waitUnknown("the controller may not list " + podGroups)
}

// waitUnknown waits until the answer is Unknown because of something that could not be read.
func (w *world) waitUnknown(words string) {
	w.t.Helper()
	w.until(words, func() (bool, error) {
		var s v1alpha1.ZoneSurvival
		err := w.Get(w.t.Context(), client.ObjectKey{Name: "services"}, &s)
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionSurvives)
		return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == v1alpha1.ReasonSnapshotIncomplete &&
			c.ObservedGeneration == s.Generation && s.Status.ObservedGeneration == s.Generation && strings.Contains(c.Message, words), err
	})
}

// waitReady waits until the controller's readiness is that code, with these words.
func (w *world) waitReady(code int, words string) {
	w.t.Helper()
	w.until(words, func() (bool, error) {
		response, err := http.Get("http://" + w.address + "/readyz")
		if err != nil {
			return false, nil // it is not served yet
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		return response.StatusCode == code && strings.Contains(string(content), words), err
	})
}
