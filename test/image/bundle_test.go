package image

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/test/internal/oci"
)

// accountDir is where a pod finds its ServiceAccount's token.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// mount, namespace and bundleConfig are as much of the OCI runtime specification, version 1.0, as a pod without
// volumes to write to needs (https://github.com/opencontainers/runtime-spec/blob/v1.0.2/config.md).
type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type namespace struct {
	Type string `json:"type"`
}

type bundleConfig struct {
	Version string `json:"ociVersion"`
	Process struct {
		User struct {
			UID int64 `json:"uid"`
			GID int64 `json:"gid"`
		} `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		Capabilities    map[string][]string `json:"capabilities"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
	} `json:"process"`
	Root struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	} `json:"root"`
	Mounts []mount `json:"mounts"`
	Linux  struct {
		Namespaces []namespace `json:"namespaces"`
	} `json:"linux"`
}

// runtimeProgram returns the OCI runtime of this machine. runc goes first: the crun of Debian 12 does nothing, and says
// nothing, on a host with both versions of cgroups.
func runtimeProgram(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"runc", "crun"} {
		// It is in sbin, which is not on every PATH.
		for _, candidate := range []string{name, "/usr/sbin/" + name} {
			if path, err := exec.LookPath(candidate); err == nil {
				return path
			}
		}
	}
	require.FailNow(t, "no OCI runtime: install runc (apt-get install runc) or crun")
	return ""
}

// bundle makes an OCI bundle of the image as the Deployment in the cluster would have a kubelet run it: the user and
// the program are the image's, arguments and restrictions are the Deployment's. Only the port is a free one, since the
// host's network is this machine's.
func (c *cluster) bundle(t *testing.T, image oci.Image, port int) string {
	t.Helper()
	deployment, err := c.client.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	pod := deployment.Spec.Template.Spec
	require.True(t, pod.HostNetwork, "the network is not a namespace of its own here")
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	container := pod.Containers[0]

	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // the container's user has to pass
	require.NoError(t, os.Chmod(dir, 0o755))
	root := filepath.Join(dir, "rootfs")
	require.NoError(t, os.Mkdir(root, 0o755))
	image.Unpack(t, root)

	var config bundleConfig
	config.Version = "1.0.2"
	config.Root.Path = "rootfs"
	config.Root.Readonly = *container.SecurityContext.ReadOnlyRootFilesystem
	process := &config.Process
	process.User.UID, process.User.GID = *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup
	require.Equal(t, image.Config.Config.User, strconv.FormatInt(process.User.UID, 10)+":"+strconv.FormatInt(process.User.GID, 10))
	process.Args = slices.Concat(image.Config.Config.Entrypoint, container.Args, []string{"--secure-port=" + strconv.Itoa(port)})
	process.Cwd = image.Config.Config.WorkingDir
	process.Env = append(slices.Clone(image.Config.Config.Env), c.serverEnv(t)...)
	require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	process.Capabilities = map[string][]string{"bounding": {}, "effective": {}, "permitted": {}, "inheritable": {}, "ambient": {}}
	process.NoNewPrivileges = !*container.SecurityContext.AllowPrivilegeEscalation
	config.Mounts = []mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		c.mount(t, dir, accountDir, map[string]string{"token": c.token(t, pod.ServiceAccountName), "ca.crt": string(c.config.CAData), "namespace": metav1.NamespaceSystem}),
		c.mount(t, dir, container.VolumeMounts[0].MountPath, c.profile(t, deployment)),
	}
	for _, kind := range []string{"pid", "ipc", "uts", "mount"} {
		config.Linux.Namespaces = append(config.Linux.Namespaces, namespace{kind})
	}
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600))
	return dir
}

// serverEnv is how a pod learns where the API server is.
func (c *cluster) serverEnv(t *testing.T) []string {
	t.Helper()
	host := c.config.Host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	name, port, err := net.SplitHostPort(host)
	require.NoError(t, err)
	return []string{"KUBERNETES_SERVICE_HOST=" + name, "KUBERNETES_SERVICE_PORT=" + port}
}

// profile is what the Deployment's volume has in it.
func (c *cluster) profile(t *testing.T, deployment *appsv1.Deployment) map[string]string {
	t.Helper()
	config, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return config.Data
}

// mount writes files below dir and mounts them, read-only, as a kubelet does with a volume.
func (*cluster) mount(t *testing.T, dir, at string, files map[string]string) mount {
	t.Helper()
	source := filepath.Join(dir, strings.ReplaceAll(strings.Trim(at, "/"), "/", "-"))
	require.NoError(t, os.Mkdir(source, 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(source, name), []byte(content), 0o644))
	}
	return mount{Destination: at, Type: "bind", Source: source, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}}
}

// running is a container that runs.
type running struct {
	port int
	pid  int // of the scheduler, as the host sees it
}

// runBundle runs a bundle until the test ends. The scheduler then has to exit with 0, as it does after SIGTERM.
func runBundle(t *testing.T, bundle string, port int) *running {
	t.Helper()
	runtime, state := runtimeProgram(t), t.TempDir()
	const id = "zonewise-test"
	logs, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd := exec.Command(runtime, "--root", state, "run", "--bundle", bundle, id)
	cmd.Stdout, cmd.Stderr = logs, logs
	require.NoError(t, cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		stopped := errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-exited, logs.Close())
		if t.Failed() || stopped != nil {
			data, err := os.ReadFile(logs.Name())
			require.NoError(t, err)
			t.Logf("%s; the end of what the container said:\n%s", runtime, data[max(0, len(data)-10000):])
			// What a runtime that failed halfway has left; there is nothing to say when it left nothing.
			_ = exec.Command(runtime, "--root", state, "delete", "--force", id).Run()
		}
		require.NoError(t, stopped, "a scheduler exits with 0 after SIGTERM")
	})

	r := &running{port: port}
	until(t, "the container runs", func(ctx context.Context) (bool, error) {
		select {
		case err := <-exited:
			exited <- err
			return false, errors.Join(errors.New("the container has ended"), err)
		default:
		}
		var told struct {
			Status string `json:"status"`
			PID    int    `json:"pid"`
		}
		// Until it is created there is no state, which is an error to the runtime, and no answer.
		out, _ := exec.CommandContext(ctx, runtime, "--root", state, "state", id).Output()
		if json.Unmarshal(out, &told) == nil {
			r.pid = told.PID
		}
		return told.Status == "running", nil
	})
	return r
}
