// Package apiserver starts an API server for the tests of the command line: three zones of one node each, a namespace,
// and no scheduler.
package apiserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/program"
)

const (
	// Namespace is where the pods of the tests are.
	Namespace = "shop"
	// Eventually is the bound of every wait, far above what any of them takes.
	Eventually = 90 * time.Second
)

// Main runs the tests of a package, which run schedulers on copies and controllers in their process, without the logs
// of these.
func Main(m *testing.M) {
	sim.UseOneProcessor()
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Server is an API server that runs until its test ends. The client is an administrator's.
type Server struct {
	client.Client
	Env *envtest.Environment
	// Root is the repository's, and Dir a directory for the test's files.
	Root, Dir string
	plane     *controlplane.ControlPlane
}

// Start starts an API server with the nodes node-a, node-b and node-c of 4 CPUs, 16Gi and 110 pods, each in the zone of
// its letter, and the namespace Namespace. Our custom resources are not installed.
func Start(t *testing.T) *Server {
	t.Helper()
	s := StartEmpty(t)
	for _, zone := range []string{"a", "b", "c"} {
		s.Make(t, build.Node("node-"+zone, zone, "4", build.Capacity(corev1.ResourceMemory, "16Gi")))
	}
	return s
}

// StartEmpty starts an API server without nodes.
func StartEmpty(t *testing.T) *Server {
	t.Helper()
	s := &Server{Root: Root(t), Dir: t.TempDir()}
	plane, err := controlplane.Start(controlplane.Options{Assets: filepath.Join(s.Root, "bin"), Dir: s.Dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Stop()) })
	s.Env, s.plane = plane.Env, plane
	s.Client, err = client.New(plane.Config, client.Options{Scheme: kinds.Scheme})
	require.NoError(t, err)
	s.Make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	return s
}

// Make creates objects, in order.
func (s *Server) Make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, s.Create(t.Context(), o), o.GetName())
	}
}

// InstallAPIs installs the CustomResourceDefinitions.
func (s *Server) InstallAPIs(t *testing.T) {
	t.Helper()
	_, err := envtest.InstallCRDs(s.Env.Config, envtest.CRDInstallOptions{Paths: []string{filepath.Join(s.Root, "manifests", "crds")}, ErrorIfPathMissing: true})
	require.NoError(t, err)
}

// StartControllers runs controllers of Kubernetes until the test ends: those that are named, and without a name those
// behind a Deployment, the disruption controller and the garbage collector.
func (s *Server) StartControllers(t *testing.T, names ...string) {
	t.Helper()
	args := []string{"--kubeconfig=" + s.plane.Admin}
	if len(names) > 0 {
		args = append(args, "--controllers="+strings.Join(names, ","))
	}
	s.run(t, s.plane.Program("controllers"), nil, args...)
}

// StartKubelets has kwok run bound pods, and end deleted ones, until the test ends.
func (s *Server) StartKubelets(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.Dir, "kwok.log"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd, err := s.plane.StartKubelets(ctx, filepath.Join(s.Root, "demo", "cluster", "kwok.yaml"), log)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it is killed
		require.NoError(t, log.Close())
	})
}

// StartScheduler runs the scheduler with the shipped profile until the test ends, and returns its process and the file
// of its log.
func (s *Server) StartScheduler(t *testing.T) (process *os.Process, log string) {
	t.Helper()
	binary, err := program.Scheduler(s.Root)
	require.NoError(t, err)
	profile, err := os.ReadFile(filepath.Join(s.Root, "config", "zonewise.yaml"))
	require.NoError(t, err)
	content := strings.Replace(string(profile), "leaderElect: true", "leaderElect: false", 1) + "\nclientConnection:\n  kubeconfig: " + s.plane.Admin + "\n"
	return s.run(t, binary, nil, "--config="+s.Write(t, "config.yaml", []byte(content)), "--secure-port=0")
}

// StartKarpenter installs Karpenter's APIs, and runs it until the test ends. types is the file of its kwok provider's
// instance types.
func (s *Server) StartKarpenter(t *testing.T, types string) {
	t.Helper()
	binary := s.plane.Program("karpenter")
	crds, err := program.Run(s.Dir, binary, "crds")
	require.NoError(t, err)
	s.Kubectl(t, "apply", "--server-side", "-f", s.Write(t, "karpenter.yaml", []byte(crds)))
	s.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all")
	s.run(t, binary, []string{
		"KUBECONFIG=" + s.plane.Admin, "DISABLE_LEADER_ELECTION=true", "FEATURE_GATES=CapacityBuffer=true", "INSTANCE_TYPES_FILE_PATH=" + types,
	})
}

// Admin is the file of an administrator's kubeconfig.
func (s *Server) Admin() string { return s.plane.Admin }

// endsWithin is how long a program may take to end once it is asked to.
const endsWithin = time.Minute

// run runs a program, with variables beside those of the test, until the test ends, and returns its process and the
// file of its log.
func (s *Server) run(t *testing.T, program string, env []string, args ...string) (process *os.Process, log string) {
	t.Helper()
	file, err := os.Create(filepath.Join(s.Dir, filepath.Base(program)+".log"))
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = file, file
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM), program)
		kill := time.AfterFunc(endsWithin, func() { _ = cmd.Process.Kill() }) // an error means that it has ended
		err := cmd.Wait()
		kill.Stop()
		// A program ends by the signal, or by itself and without an error.
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
			require.NoError(t, err, program)
		} else {
			require.Equal(t, syscall.SIGTERM, status.Signal(), "%s does not end", program)
		}
		require.NoError(t, file.Close())
		if t.Failed() {
			data, err := os.ReadFile(file.Name())
			require.NoError(t, err)
			t.Log(filepath.Base(program)+":", string(data[max(0, len(data)-5000):]))
		}
	})
	return cmd.Process, file.Name()
}

// Account writes a kubeconfig of an identity, and returns its path.
func (s *Server) Account(t *testing.T, file string, user envtest.User) string {
	t.Helper()
	kubeconfig, err := s.plane.Kubeconfig(file, user)
	require.NoError(t, err)
	return kubeconfig
}

// Kubectl runs kubectl as an administrator, and returns what it prints.
func (s *Server) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(s.plane.Program("kubectl"), append([]string{"--kubeconfig=" + s.plane.Admin}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// Shell runs a command in a directory as an administrator whose PATH has kubectl, and returns what it prints.
func (s *Server) Shell(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.plane.Admin, "PATH="+filepath.Dir(s.plane.Program("kubectl"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}

// User makes a user who may do what the rules allow, and returns the file of a kubeconfig.
func (s *Server) User(t *testing.T, name string, rules []rbacv1.PolicyRule) string {
	t.Helper()
	kubeconfig, err := s.plane.Kubeconfig(name, envtest.User{Name: name})
	require.NoError(t, err)
	if rules != nil {
		s.Make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})
	}
	return kubeconfig
}

// Write writes a file of the test's, and returns its path.
func (s *Server) Write(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(s.Dir, name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

// ViewerRules are the rules of manifests/rbac/viewer.
func ViewerRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	data, err := manifests.FS.ReadFile("rbac/viewer/clusterrole.yaml")
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.UnmarshalStrict(data, &role))
	return role.Rules
}

// Root is the root of the repository, for a test in a directory of test.
func Root(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return path
}

// Zonewise builds the command and returns its path.
func Zonewise(t *testing.T) string {
	t.Helper()
	path, err := program.Zonewise(Root(t))
	require.NoError(t, err)
	return path
}
