package image

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/internal/controlplane"
	"zonewise.dev/test/internal/oci"
)

// TestSchedulesInAContainer runs the image under an OCI runtime, runc or crun, as a node would run the Deployment of
// zonewise.dev/manifests: as the image's user, without capabilities, with a read-only root, and with the token of its
// ServiceAccount where a pod finds it. The scheduler spreads pods over the zones of a real API server. A runtime needs
// root: elsewhere hack/test.sh leaves this test out and says so.
func TestSchedulesInAContainer(t *testing.T) {
	runtimeProgram(t) // fails at once when there is none
	image := oci.Read(t, image(t).layout).For(t, runtime.GOARCH)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	c := startCluster(t, root)
	port, err := controlplane.FreePort()
	require.NoError(t, err)
	r := runBundle(t, c.bundle(t, image, port), port)
	until(t, "the scheduler is ready", func(ctx context.Context) (bool, error) { return r.ready(ctx), nil })

	zones := map[string]bool{}
	for i := range 3 {
		name := fmt.Sprintf("web-%d", i)
		c.create(t, name)
		zones[c.bound(t, name)] = true
	}
	require.Len(t, zones, 3, "one in each zone")
	lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, *lease.Spec.HolderIdentity, "it leads with the permissions of the manifests")

	r.requireConfined(t, image)
}

// requireConfined looks from outside at what the process is allowed.
func (r *running) requireConfined(t *testing.T, image oci.Image) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(r.pid))
	data, err := os.ReadFile(filepath.Join(proc, "status"))
	require.NoError(t, err)
	status := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.Join(strings.Fields(value), " ")
	}
	uid, gid, _ := strings.Cut(image.Config.Config.User, ":")
	require.Equal(t, strings.Join([]string{uid, uid, uid, uid}, " "), status["Uid"])
	require.Equal(t, strings.Join([]string{gid, gid, gid, gid}, " "), status["Gid"])
	require.Equal(t, "1", status["NoNewPrivs"])
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		require.Equal(t, "0000000000000000", status[set], set)
	}

	// https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html: the fifth field is the mount point, the sixth
	// are its options.
	data, err = os.ReadFile(filepath.Join(proc, "mountinfo"))
	require.NoError(t, err)
	mounts := map[string]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		mounts[fields[4]] = "," + fields[5] + ","
	}
	for _, at := range []string{"/", "/etc/zonewise", accountDir} {
		require.Contains(t, mounts[at], ",ro,", at)
	}
}

// ready asks the readiness probe's question.
func (r *running) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", r.port), nil)
	if err != nil {
		return false
	}
	// The certificate is made at the start and signed by no authority; a probe does not look at it either.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
