package manifests

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"zonewise.dev/internal/controlplane"
	"zonewise.dev/test/internal/program"
)

// eventually is the bound of every wait, far above what any of them takes.
const eventually = 90 * time.Second

// until waits until a condition holds.
func until(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, eventually, true, condition)
	require.NoError(t, err, what)
}

// token asks the API server for a token of a ServiceAccount in kube-system, as a kubelet does for a pod.
func (c *cluster) token(t *testing.T, account string) string {
	t.Helper()
	request, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// kubeconfigOf writes a kubeconfig with a token.
func (c *cluster) kubeconfigOf(t *testing.T, token string) string {
	t.Helper()
	const name = "test"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	return file
}

// scheduler is a running scheduler.
type scheduler struct {
	url string // of its secure port
}

// startReplica runs a scheduler's program as the Deployment among the objects would, until the test ends or stop is
// called, and waits until the Deployment's probes find it well. Only where a pod differs from a process of a test are
// arguments added: the token of its ServiceAccount is in a kubeconfig, and the port is a free one.
func (c *cluster) startReplica(t *testing.T, binary string, objects []*unstructured.Unstructured) (s *scheduler, stop func()) {
	t.Helper()
	pod := only[appsv1.Deployment](t, objects, "Deployment").Spec.Template.Spec
	args := pod.Containers[0].Args
	profile := only[corev1.ConfigMap](t, objects, "ConfigMap").Data[filepath.Base(flags(t, args)("config"))]
	// No test waits for five minutes to see what the profile would allow then.
	timeout := regexp.MustCompile(`(?m)^( *)scheduleTimeout: 60s$`)
	require.Regexp(t, timeout, profile)
	profile = timeout.ReplaceAllString(profile, "${1}recoveryTimeout: 5s\n$0")
	kubeconfig := c.kubeconfigOf(t, c.token(t, pod.ServiceAccountName))
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(profile+"\nclientConnection:\n  kubeconfig: "+kubeconfig+"\n"), 0o600))
	port, err := controlplane.FreePort()
	require.NoError(t, err)
	s = &scheduler{url: "https://127.0.0.1:" + strconv.Itoa(port)}
	stop = runUntilTheEnd(t, binary, append(slices.Clone(args),
		"--config="+file, "--secure-port="+strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)...)
	container := pod.Containers[0]
	for _, path := range []string{container.StartupProbe.HTTPGet.Path, container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path} {
		until(t, path, func(ctx context.Context) (bool, error) { return s.get(ctx, path, "") == http.StatusOK, nil })
	}
	return s, stop
}

// startScheduler runs the scheduler of this checkout.
func (c *cluster) startScheduler(t *testing.T, objects []*unstructured.Unstructured) *scheduler {
	t.Helper()
	binary, err := program.Scheduler(repository(t))
	require.NoError(t, err)
	s, _ := c.startReplica(t, binary, objects)
	return s
}

// runUntilTheEnd runs a scheduler's program until the test ends or stop is called, and shows its log when the test has
// failed.
func runUntilTheEnd(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	logs, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = logs, logs
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		stopped := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), logs.Close())
		if t.Failed() || stopped != nil {
			data, err := os.ReadFile(logs.Name())
			require.NoError(t, err)
			t.Log(string(data[max(0, len(data)-10000):]))
		}
		require.NoError(t, stopped, "a scheduler that is told to stop exits with 0")
	})
	t.Cleanup(stop)
	return stop
}

// get returns the status of a request to the secure port, or 0 when nobody answered.
func (s *scheduler) get(ctx context.Context, path, token string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is made at the start and signed by nobody; a probe does not look at it either.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
