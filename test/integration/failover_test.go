package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/cli"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/scheduler/app"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/plugins"
	"zonewise.dev/test/build"
)

// asScheduler, when it is set in the environment, makes the test binary a scheduler: what a failover does
// to a process (it exits, or is killed) cannot be done to the process of the tests.
const asScheduler = "ZONEWISE_TEST_AS_SCHEDULER"

// runScheduler is the main of such a process.
func runScheduler() int {
	return cli.Run(app.NewSchedulerCommand(plugins.NewPack(plugins.WithFence())))
}

// replica is a scheduler in a process of its own, with leader election.
type replica struct {
	name    string // the first word of its user agent
	cmd     *exec.Cmd
	address string // where it serves
	done    chan error
}

// startReplica starts one that sends qps requests a second. Its lease is short, so that a test need not
// wait for it; it ends with the test.
func (w *world) startReplica(number int, qps int32) *replica {
	w.t.Helper()
	return w.startReplicaOf(os.Args[0], number, qps)
}

// startReplicaOf starts a replica of another program. To the API server it is replica-N.
func (w *world) startReplicaOf(program string, number int, qps int32) *replica {
	w.t.Helper()
	setup := &schedulerSetup{file: "second-scheduler.yaml"}
	edited(func(c *configv1.KubeSchedulerConfiguration) {
		c.LeaderElection.LeaderElect = ptr.To(true)
		c.LeaderElection.LeaseDuration = metav1.Duration{Duration: 4 * time.Second}
		c.LeaderElection.RenewDeadline = metav1.Duration{Duration: 3 * time.Second}
		c.LeaderElection.RetryPeriod = metav1.Duration{Duration: 500 * time.Millisecond}
	})(setup)
	slowly(qps)(setup)
	port, err := controlplane.FreePort()
	require.NoError(w.t, err)
	r := &replica{name: fmt.Sprintf("replica-%d", number), address: fmt.Sprintf("127.0.0.1:%d", port), done: make(chan error, 1)}

	log, err := os.Create(filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("replica-%d.log", number)))
	require.NoError(w.t, err)
	r.cmd = exec.CommandContext(w.ctx, program,
		"--config="+w.writeConfig(setup),
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--authentication-kubeconfig="+w.cp.schedulerKubeconfig,
		"--authorization-kubeconfig="+w.cp.schedulerKubeconfig,
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
		"-v=2",
	)
	r.cmd.Args[0] = r.name
	r.cmd.Env = append(os.Environ(), asScheduler+"=1")
	r.cmd.Stdout, r.cmd.Stderr = log, log
	require.NoError(w.t, r.cmd.Start())
	require.NoError(w.t, log.Close(), "the process has its own handle of the file")
	ended := make(chan struct{})
	go func() {
		r.done <- r.cmd.Wait()
		close(ended)
	}()
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has usually ended
		<-ended
		// The leader of the next test need not wait until this one's lease has run out. The context of the test is
		// over.
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "zonewise-scheduler"}}
		require.NoError(w.t, client.IgnoreNotFound(w.cp.client.Delete(context.Background(), lease)))
		if w.t.Failed() {
			content, err := os.ReadFile(log.Name())
			lines := strings.Split(string(content), "\n")
			w.t.Logf("the end of the log of replica %d (%v):\n%s", number, err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return r
}

// get asks a replica for a path of its secure port.
func (r *replica) get(ctx context.Context, path string) (int, string, error) {
	client := &http.Client{
		Timeout: 5 * time.Second,
		// The certificate is one that the process has made for itself.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// metric returns the value of a metric without labels, as text.
func metric(metrics, name string) string {
	scanner := bufio.NewScanner(strings.NewReader(metrics))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), name+" "); ok {
			return value
		}
	}
	return ""
}

// leaseHolder returns the identity of the replica that leads, which is random, or "" when none does.
func (w *world) leaseHolder() string {
	w.t.Helper()
	lease := &coordinationv1.Lease{}
	err := w.cp.client.Get(w.ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "zonewise-scheduler"}, lease)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return ""
	}
	require.NoError(w.t, err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// TestFailover: of two replicas one schedules. It is killed in the middle of a workload; the other takes
// over when the lease has run out, finishes the work, and ends well when it is told to.
func TestFailover(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1", "a2", "b1", "b2", "c1", "c2")
	ready := func(r *replica) {
		t.Helper()
		w.eventually("the replica is ready", func() (bool, string) {
			code, body, err := r.get(w.ctx, "/readyz")
			return code == http.StatusOK, fmt.Sprint(code, body, err)
		})
	}
	first := w.startReplica(1, 4)
	w.eventually("the first replica leads", func() (bool, string) { h := w.leaseHolder(); return h != "", h })
	ready(first)
	holder := w.leaseHolder()
	second := w.startReplica(2, 500)
	ready(second)
	require.Equal(t, holder, w.leaseHolder(), "the second replica waits")

	load := w.createWorkload(4, 4, build.Scheduler("zonewise-scheduler"))
	w.eventually("some pods are bound", func() (bool, string) { return w.boundCount() >= 12, fmt.Sprint(w.boundCount()) })
	require.NoError(t, first.cmd.Process.Kill())
	require.Error(t, <-first.done, "it was killed")
	middle := w.boundCount()
	require.Less(t, middle, len(load.pods), "the workload was done before the failover, so the test shows nothing")

	w.waitBound(load.pods...)
	require.NotEqual(t, holder, w.leaseHolder())
	for _, name := range load.apps {
		w.requireSkew(1, labelled(name), "zone-a", "zone-b", "zone-c")
	}
	w.eventually("the ledger has all pods and none is assumed", func() (bool, string) {
		code, metrics, err := second.get(w.ctx, "/metrics")
		have := fmt.Sprintf("pods %s, assumed %s, nodes %s",
			metric(metrics, "zonewise_reservecache_pods"), metric(metrics, "zonewise_reservecache_assumed_pods"),
			metric(metrics, "zonewise_reservecache_nodes"))
		return have == fmt.Sprintf("pods %d, assumed 0, nodes 6", len(load.pods)), fmt.Sprint(code, have, err)
	})
	t.Logf("killed the leader with %d of %d pods bound", middle, len(load.pods))

	require.NoError(t, second.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-second.done:
		require.NoError(t, err)
	case <-time.After(waitTimeout):
		require.Fail(t, "the replica did not end")
	}
}
