package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"zonewise.dev/config"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests/shipped"
	"zonewise.dev/test/internal/program"
)

// nodes is how many a cluster has.
const nodes = 3

// cluster has nodes, of 4 CPUs, 16Gi, 110 pods and 100Gi of ephemeral storage, each in a zone of its own.
type cluster struct {
	t     *testing.T
	plane *controlplane.ControlPlane
	admin client.Client
	// root is the repository's, and dir is where configurations and logs are.
	root, dir string
	// gates are the feature gates of all components, in the form of their flag.
	gates string
}

// startCluster starts a cluster without a scheduler, which runs until the test ends.
func startCluster(t *testing.T, gates string) *cluster {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	c := &cluster{t: t, root: root, dir: t.TempDir(), gates: gates}
	if *logs != "" {
		c.dir, err = filepath.Abs(filepath.Join(*logs, strings.ReplaceAll(t.Name(), "/", "-")))
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(c.dir))
		require.NoError(t, os.MkdirAll(c.dir, 0o755))
	}
	flags := map[string]string{"feature-gates": gates}
	if gates != "" {
		flags["runtime-config"] = "scheduling.k8s.io/v1beta1=true"
	}
	c.plane, err = controlplane.Start(controlplane.Options{
		Assets: filepath.Join(root, "bin"), Dir: c.dir, Flags: flags, Output: c.create("control-plane.log"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.plane.Stop()) })
	c.admin, err = client.New(c.plane.Config, client.Options{Scheme: scheme.Scheme})
	require.NoError(t, err)
	for i := range nodes {
		zone := string(rune('a' + i))
		name := "node-" + zone
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		}
		require.NoError(t, c.admin.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelTopologyZone: zone, corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}},
			Status: corev1.NodeStatus{
				Capacity: room, Allocatable: maps.Clone(room),
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i+1)}},
			},
		}))
	}
	c.startControllers()
	c.startKubelets()
	return c
}

// startControllers runs all controllers of kube-controller-manager that are on by default.
func (c *cluster) startControllers() {
	certificates := c.plane.Env.ControlPlane.GetAPIServer().CertDir
	c.run("kube-controller-manager", c.plane.Program("kube-controller-manager"),
		"--kubeconfig="+c.account("system:kube-controller-manager"), "--feature-gates="+c.gates,
		"--use-service-account-credentials", "--service-account-private-key-file="+filepath.Join(certificates, "sa-signer.key"),
		"--root-ca-file="+filepath.Join(certificates, "apiserver.crt"), // each namespace gets it
		"--leader-elect=false", "--secure-port=0",
		"--node-monitor-grace-period=20m") // the kubelets report rarely
}

// startKubelets has kwok behave as the demo's kubelets do, and for these specs in two more points as real ones.
func (c *cluster) startKubelets() {
	ctx, cancel := context.WithCancel(context.Background())
	files := filepath.Join(c.root, "demo", "cluster", "kwok.yaml") + "," + filepath.Join("testdata", "kubelets.yaml")
	cmd, err := c.plane.StartKubelets(ctx, files, c.create("kwok.log"))
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it is killed
	})
}

// startStock runs kube-scheduler as it comes.
func (c *cluster) startStock() {
	binary, err := program.StockScheduler(c.root, c.t.TempDir())
	require.NoError(c.t, err)
	c.run("kube-scheduler", binary, "--kubeconfig="+c.account("system:kube-scheduler"), "--feature-gates="+c.gates,
		"--leader-elect=false", "--secure-port=0")
}

// startZonewise installs the custom resources and the permissions that are shipped, and runs the scheduler with the
// shipped profile in kube-scheduler's place.
func (c *cluster) startZonewise() {
	definitions, err := shipped.Definitions()
	require.NoError(c.t, err)
	_, err = envtest.InstallCRDs(c.plane.Config, envtest.CRDInstallOptions{CRDs: definitions})
	require.NoError(c.t, err)
	roles := []string{shipped.SchedulerRoles}
	if c.gates != "" {
		roles = append(roles, "components/native-gangs")
	}
	for _, dir := range roles {
		require.NoError(c.t, shipped.CreatePermissions(c.t.Context(), c.admin, dir))
	}
	identity, err := c.plane.Kubeconfig("scheduler", shipped.SchedulerUser)
	require.NoError(c.t, err)
	profile, err := config.FS.ReadFile("zonewise.yaml")
	require.NoError(c.t, err)
	file := c.create("scheduler.yaml")
	alone := strings.Replace(string(profile), "leaderElect: true", "leaderElect: false", 1)
	_, err = file.WriteString(alone + "\nclientConnection:\n  kubeconfig: " + identity + "\n")
	require.NoError(c.t, err)
	binary, err := program.Scheduler(c.root)
	require.NoError(c.t, err)
	c.run("zonewise-scheduler", binary, "--config="+file.Name(), "--feature-gates="+c.gates, "--secure-port=0")
}

// runSystemPods waits until each node runs a pod whose name is that of three which the specs look for on a node. Before
// most of the specs they wait a minute for these, and go on without them.
func (c *cluster) runSystemPods() {
	c.t.Helper()
	labels := map[string]string{"app": "system"}
	const name = "kube-proxy-fluentd-elasticsearch-node-problem-detector"
	pods := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "system", Image: "pause"}}},
			},
		},
	}
	require.NoError(c.t, c.admin.Create(c.t.Context(), pods))
	require.Eventually(c.t, func() bool {
		return c.admin.Get(c.t.Context(), client.ObjectKeyFromObject(pods), pods) == nil && pods.Status.NumberReady == nodes
	}, 2*time.Minute, 200*time.Millisecond, "a scheduler, controllers and kubelets have pods run")
}

// account makes a user with this name, and returns the file of its kubeconfig.
func (c *cluster) account(user string) string {
	kubeconfig, err := c.plane.Kubeconfig(strings.TrimPrefix(user, "system:"), envtest.User{Name: user})
	require.NoError(c.t, err)
	return kubeconfig
}

// run runs a program until the test ends, which fails if it ends before.
func (c *cluster) run(name, path string, args ...string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	log := c.create(name + ".log")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.Wait(); ctx.Err() == nil {
			c.t.Errorf("%s has ended: %v\n%s", name, err, tail(c.t, log.Name()))
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// create creates a file of the cluster, which is closed when the test ends.
func (c *cluster) create(name string) *os.File {
	c.t.Helper()
	file, err := os.Create(filepath.Join(c.dir, name))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, file.Close()) })
	return file
}

// tail returns the end of a file.
func tail(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data[max(0, len(data)-4000):])
}
