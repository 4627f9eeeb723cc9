package chaos

import (
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

// upstream is an API server of a test, which keeps one lease.
type upstream struct{ lease []byte }

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if r.Method == http.MethodPut {
		u.lease, _ = io.ReadAll(r.Body)
	}
	_, _ = w.Write(u.lease)
}

// proxied is a proxy before an upstream, and its address.
func proxied(t *testing.T) (*upstream, *proxy, string) {
	t.Helper()
	u := &upstream{}
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
