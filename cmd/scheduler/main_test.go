package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"zonewise.dev/internal/controlplane"
)

// asProgram, when it is set in the environment, makes the test binary run main: the tests start the
// program as a process, and it is built with the same race detector and coverage as they are.
const asProgram = "ZONEWISE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// processTimeout bounds one run of the program, the wait for an unreachable API server included.
const processTimeout = time.Minute

// result is what a run of the program left behind.
type result struct {
	code   int
	stdout string
	stderr string
}

// reason returns the one line in which the program says why it ended. Goroutines that are still running
// may log behind it.
func (r result) reason(t *testing.T) string {
	t.Helper()
	var reasons []string
	for line := range strings.Lines(r.stderr) {
		if strings.HasPrefix(line, "zonewise-scheduler: ") || strings.Contains(line, "Cannot run the scheduler") {
			reasons = append(reasons, strings.TrimSuffix(line, "\n"))
		}
	}
	require.Len(t, reasons, 1, "stderr:\n%s", r.stderr)
	return reasons[0]
}

// runProgram runs the program to its end.
func runProgram(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), processTimeout)
	defer cancel()
	cmd, stdout, stderr := newProcess(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err(), "the program did not end by itself:\n%s", stderr)
	return result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

func newProcess(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Args[0] = "bin/zonewise-scheduler"
	cmd.Env = append(os.Environ(), asProgram+"=1")
	// A test that runs in a pod must not find that pod's cluster.
	cmd.Env = append(cmd.Env, "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=", "KUBERNETES_MASTER=")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// writeFile writes a file into the test's directory and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// writeKubeconfig writes a kubeconfig for the API server at address.
func writeKubeconfig(t *testing.T, address string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: address}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// writeConfig writes a KubeSchedulerConfiguration that uses kubeconfig and goes on with rest.
func writeConfig(t *testing.T, kubeconfig, rest string) string {
	t.Helper()
	return writeFile(t, "config.yaml", fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: false}
%s`, kubeconfig, rest))
}

// versionOnly serves what the program asks before it builds the scheduler, and no resource.
func versionOnly(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"37","gitVersion":"v1.37.2"}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// closedPort returns an address of the loopback interface where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	return listener.Addr().String()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--version"}, {"controller", "--version"}} {
		got := runProgram(t, args...)
		require.Zero(t, got.code, got.stderr)
		require.Regexp(t, `^Kubernetes v\S+\n$`, got.stdout)
	}
}

// TestProgramsAreNamedAsTheyAreCalled: in the help and in errors, in the image and where the program has another name.
func TestProgramsAreNamedAsTheyAreCalled(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/usr/local/bin/kube-scheduler", "bin/zonewise-scheduler"} {
		name := filepath.Base(path)
		for _, tc := range []struct{ args, want string }{
			{args: "--help", want: "Usage:\n  " + name + " [flags]\n"},
			{args: "--help", want: name + " controller is a program of its own"},
			{args: "--leader-elekt", want: name + ": unknown flag: --leader-elekt; " + name + " --help lists the flags\n"},
			{args: "controller --help", want: "Usage:\n  " + name + " controller [flags]\n"},
			{args: "controller --help", want: "help for " + name + " controller\n"},
			{args: "controller now", want: name + ` controller: unknown command "now" for "` + name + " controller\"\n"},
			{args: "controller --survivel", want: name + " controller: unknown flag: --survivel; " + name + " controller --help lists the flags\n"},
			{args: "controller", want: name + " controller: nothing is turned on: "},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), processTimeout)
			cmd, stdout, stderr := newProcess(ctx, strings.Fields(tc.args)...)
			cmd.Args[0] = path
			_ = cmd.Run()
			cancel()
			require.Contains(t, stdout.String()+stderr.String(), tc.want, "%s %s", path, tc.args)
		}
	}
}

func TestWriteConfig(t *testing.T) {
	t.Parallel()
	// No API server is there and none is needed.
	config := writeConfig(t, writeKubeconfig(t, "http://"+closedPort(t)), `profiles:
- schedulerName: demo
  plugins: {multiPoint: {enabled: [{name: ZoneSpread, weight: 2}, {name: ReserveCache}, {name: PermitGate}], disabled: [{name: PodTopologySpread}]}, postFilter: {enabled: [{name: DynamicResources}, {name: ZoneSpread}, {name: PermitGate}]}}
  pluginConfig: [{name: PermitGate, args: {scheduleTimeout: 45s}}]
`)
	out := filepath.Join(t.TempDir(), "written.yaml")
	got := runProgram(t, "--config", config, "--secure-port=0", "--write-config-to", out)
	require.Zero(t, got.code, got.stderr)
	written, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, want := range []string{"schedulerName: demo", "name: ZoneSpread", "name: ReserveCache", "name: PermitGate", "scheduleTimeout: 45s"} {
		require.Contains(t, string(written), want)
	}
}

// TestProfilesWithoutReserveCache are named at the start when others have it.
func TestProfilesWithoutReserveCache(t *testing.T) {
	t.Parallel()
	const warning = "pods of profiles without ReserveCache take the room that ZoneReservations hold"
	for plugins, want := range map[string]bool{
		"{}": true,
		"{multiPoint: {enabled: [{name: ReserveCache}]}}":                                           false,
		"{preFilter: {enabled: [{name: ReserveCache}]}, filter: {enabled: [{name: ReserveCache}]}}": false,
	} {
		config := writeConfig(t, writeKubeconfig(t, "http://"+closedPort(t)),
			"profiles:\n- schedulerName: default-scheduler\n  plugins: {multiPoint: {enabled: [{name: ReserveCache}]}}\n- schedulerName: batch\n  plugins: "+plugins+"\n")
		got := runProgram(t, "--config", config, "--secure-port=0", "--write-config-to", filepath.Join(t.TempDir(), "written.yaml"))
		require.Zero(t, got.code, got.stderr)
		require.Equal(t, want, strings.Contains(got.stderr, warning), got.stderr)
		require.Equal(t, want, strings.Contains(got.stderr, `without=["batch"]`), got.stderr)
	}
}

// TestAskedToStop ends the program as an init system or a kubelet does.
func TestAskedToStop(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			port, err := controlplane.FreePort()
			require.NoError(t, err)
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			config := writeConfig(t, writeKubeconfig(t, versionOnly(t)), "")
			ctx, cancel := context.WithTimeout(t.Context(), processTimeout)
			defer cancel()
			cmd, _, stderr := newProcess(ctx, "--config", config, "--bind-address=127.0.0.1", "--secure-port", strconv.Itoa(port))
			require.NoError(t, cmd.Start())
			// The program listens once its signal handler is in place and its profiles are built.
			require.Eventually(t, func() bool {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err != nil {
					return false
				}
				return conn.Close() == nil
			}, processTimeout, 20*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(sig))
			require.NoError(t, cmd.Wait(), "stderr:\n%s", stderr)
		})
	}
}

// Upstream's handler may hear of the signal first, and the command end with an error at once. Not parallel: the signal
// is for the whole process.
func TestUpstreamHearsOfTheSignalFirst(t *testing.T) {
	for range 200 {
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
			first := make(chan os.Signal, 1)
			signal.Notify(first, syscall.SIGTERM)
			defer signal.Stop(first)
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-first
			return errors.New("finished without leader elect")
		}}
		cmd.SetArgs([]string{})
		require.Zero(t, run(cmd))
	}
}

func TestBusyPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	port := listener.Addr().(*net.TCPAddr).Port

	config := writeConfig(t, writeKubeconfig(t, versionOnly(t)), "")
	got := runProgram(t, "--config", config, "--bind-address=127.0.0.1", "--secure-port", strconv.Itoa(port))
	require.Equal(t, 1, got.code, got.stderr)
	require.Regexp(t, fmt.Sprintf(`^zonewise-scheduler: .*127\.0\.0\.1:%d: bind: address already in use; stop the process that has the port, or choose another one with --secure-port$`, port), got.reason(t))
}

// TestAPIServerThatIsNotThere yet: the program says so once and waits, since ending would put its kubelet's backoff in
// front of all pods. When the server comes, it goes on.
func TestAPIServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	address := closedPort(t)
	ctx, cancel := context.WithTimeout(t.Context(), processTimeout)
	defer cancel()
	cmd, _, _ := newProcess(ctx, "--config", writeConfig(t, writeKubeconfig(t, "http://"+address), ""), "--secure-port=0")
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer file.Close()
	cmd.Stderr = file
	log := func() string {
		content, err := os.ReadFile(file.Name())
		require.NoError(t, err)
		return string(content)
	}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	warned := func() int {
		return strings.Count(log(), "the API server has not answered, and the scheduler waits for it")
	}
	require.Eventually(t, func() bool { return warned() > 0 }, processTimeout, 20*time.Millisecond)

	listed := make(chan struct{}, 1)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			select {
			case listed <- struct{}{}:
			default:
			}
		}
		http.NotFound(w, r)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	select {
	case <-listed: // upstream lists what it schedules on
	case err := <-ended:
		t.Fatalf("the program has ended: %v\n%s", err, log())
	case <-ctx.Done():
		t.Fatalf("the program does not go on when the server is there:\n%s", log())
	}
	require.Equal(t, 1, warned(), "it is said once:\n%s", log())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, "stderr:\n%s", log())
}

// TestAPIServerOfAnotherAuthority is not waited for.
func TestAPIServerOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	got := runProgram(t, "--config", writeConfig(t, writeKubeconfig(t, server.URL), ""), "--secure-port=0")
	require.Equal(t, 1, got.code, got.stderr)
	require.Regexp(t, "^zonewise-scheduler: the API server "+server.URL+" is not known: .*certificate signed by unknown authority; correct the certificate authority in the kubeconfig$", got.reason(t))
}

func TestAPIServerThatRefusesTheCredentials(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	got := runProgram(t, "--config", writeConfig(t, writeKubeconfig(t, server.URL), ""), "--secure-port=0")
	require.Equal(t, 1, got.code, got.stderr)
	require.Regexp(t, "^zonewise-scheduler: the API server "+server.URL+" refuses the credentials: .*; renew the token or certificate in the kubeconfig$", got.reason(t))
}

func TestReasonInTheLogFormatThatWasChosen(t *testing.T) {
	t.Parallel()
	got := runProgram(t, "--config", writeConfig(t, writeKubeconfig(t, "http://"+closedPort(t)), "profiels: []\n"), "--secure-port=0", "--logging-format=json")
	require.Equal(t, 1, got.code, got.stderr)
	require.Contains(t, got.reason(t), `unknown field`)
	require.Contains(t, got.reason(t), `correct its spelling or remove it`)
}
